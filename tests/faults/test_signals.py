"""Ctrl-C and SIGTERM end every command that takes its time: soon, with an exit code, without a traceback or orphans.

A table of commands and moments, each told to end in one of several ways; `make test-long` tries many more moments.
"""

from __future__ import annotations

import http.client
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from support.broker import BrokerProcess, free_ports, running, wait_for
from support.repetition import IS_LONG, times
from support.signalled import Signalled
from twinbus.local import LocalPair

pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]

SOON_S = 4.0  # It takes one second, or two; a machine that is busy takes its time to end a process.
WAIT_S = 30.0
BACKLOG_QUEUES = 10  # As many as a pair has by default.
INT, TERM = signal.SIGINT, signal.SIGTERM
POLICY = "SharedAccessKeyName=x;SharedAccessKey=x;UseDevelopmentEmulator=true"
NOBODY, NOBODY_ELSE = f"Endpoint=sb://localhost:1;{POLICY}", f"Endpoint=sb://localhost:2;{POLICY}"
SERVE = ("serve", "--data", "data", "--amqp-port", "0", "--http-port", "0")
DRILL = ("drill", "--no-spark")
SYPHON = ("syphon", "--primary", NOBODY, "--secondary", NOBODY_ELSE)
PIPELINE = ("pipeline", "syphon", "--watch", "--primary", NOBODY, "--secondary", NOBODY_ELSE)

Moment = Callable[[Signalled], None]


def begun(run: Signalled) -> None:
    run.until_begun()


def says(text: str) -> Moment:
    return lambda run: run.until_it_says(text)


def runs(program: str) -> Moment:
    return lambda run: run.until_it_runs(program)


class Case(NamedTuple):
    """A command, when it is told to end, how, and its exit code then."""

    words: tuple[str, ...]
    moment: Moment
    how: signal.Signals
    code: int
    group: bool = False  # Whether everything below it gets the signal, too.
    times: int = 1


CASES = {
    "serve, imports": Case(SERVE, begun, INT, 130),
    "drill, imports": Case(DRILL, begun, INT, 130, group=True),
    "syphon, imports": Case(SYPHON, begun, TERM, 143),
    "receive, imports": Case(("receive", "orders", "-c", NOBODY), begun, INT, 130),
    "serve": Case(SERVE, says("ready\n"), TERM, 0),
    "serve, Ctrl-C twice": Case(SERVE, says("ready\n"), INT, 0, group=True, times=2),
    "drill, its brokers start": Case(DRILL, says("seed"), TERM, 143),
    "drill, in the midst": Case(DRILL, says("two namespaces are up"), INT, 130, group=True, times=2),
    "drill, Java starts": Case(("drill", "--spark"), runs("java"), INT, 130),
    "syphon": Case(SYPHON, says("Again in"), TERM, 0),
    "bench": Case(("bench",), runs("serve"), TERM, 143),
    "pipeline, Java starts": Case(PIPELINE, runs("java"), TERM, 143),
}


@pytest.mark.parametrize("name", CASES)
def test_a_signal_ends_it(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with Signalled(tmp_path, *case.words) as run:
        case.moment(run)
        assert run.end(case.how, SOON_S, group=case.group, times=case.times) == case.code, run.said


# At any moment


@pytest.fixture
def ports() -> tuple[str, ...]:
    amqp, http = next(pair for pair in zip(free_ports(8), free_ports(8), strict=True) if _are_free(*pair))
    return "--amqp-port", str(amqp), "--http-port", str(http)


def _are_free(*ports: int) -> bool:
    try:
        for port in ports:
            socket.create_server(("127.0.0.1", port + 100)).close()
    except OSError:
        return False
    return len({*ports, *(port + 100 for port in ports)}) == 4


ANYTIME = {  # And how long it makes sense to wait for the moment.
    "serve": (SERVE, 3.0),
    "syphon": (SYPHON, 4.0),
    "up": (("up", "--data", "home"), 8.0),
    "drill": (DRILL, 25.0),
    "drill with Spark": (("drill",), 45.0),
    "pipeline syphon": (PIPELINE, 15.0),
}
ENDS_BY_SIGNAL = ("serve", "syphon", "pipeline syphon")


@pytest.mark.parametrize("number", range(times(1, 30)))
@pytest.mark.parametrize("name", ANYTIME if IS_LONG else ["serve"])
def test_a_signal_ends_it_at_any_moment(
    name: str, number: int, tmp_path: Path, random: Random, ports: tuple[str, ...]
) -> None:
    """A third of the moments are in the first second, when most of it is imports."""
    words, longest_s = ANYTIME[name]
    with Signalled(tmp_path, *words, *(ports if name == "up" else ())) as run:
        run.until_begun()
        time.sleep(random.uniform(0, 1.0 if number % 3 == 0 else longest_s))
        if run.process.poll() is not None:
            return  # It was quicker.
        how = random.choice((INT, TERM))
        code = run.end(how, SOON_S, group=random.random() < 0.5, times=random.choice((1, 2)))
        assert code == 128 + how or (code == 0 and name in ENDS_BY_SIGNAL), run.said


# A pair of namespaces


@pytest.mark.parametrize(
    ("moment", "how", "group"),
    [(begun, TERM, False), (says("Starting the primary"), INT, True), (says("Starting the syphon"), TERM, False)],
    ids=["imports", "the primary starts", "the syphon starts"],
)
def test_up_that_is_interrupted_leaves_nothing_running(
    moment: Moment, how: signal.Signals, group: bool, tmp_path: Path, ports: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    with Signalled(tmp_path, "up", "--data", str(home), *ports) as run:
        moment(run)
        assert run.end(how, SOON_S, group=group) == 128 + how, run.said
        assert LocalPair(home).running() == {}


def test_following_a_log_ends_with_zero(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "primary.log").write_text("a line\n")
    with Signalled(tmp_path, "logs", "--follow", "--data", str(tmp_path / "home")) as run:
        run.until_it_says("a line")
        assert run.end(INT, SOON_S) == 0, run.said


# Commands that talk to a broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), options=("--no-console",)) as process:
        process.create_queue("orders")
        yield process


def test_receiving_ends_with_zero_when_it_follows(broker: BrokerProcess, tmp_path: Path) -> None:
    with Signalled(tmp_path, "receive", "orders", "--follow", "-c", broker.connection_string()) as run:
        wait_for(lambda: broker.metric("twinbus_open_links") > 0, "a receiver", WAIT_S)
        assert run.end(TERM, SOON_S, times=2) == 0, run.said


def test_receiving_is_cut_off_when_it_does_not(broker: BrokerProcess, tmp_path: Path) -> None:
    wait_for(lambda: broker.metric("twinbus_open_links") == 0, "the end of an earlier receiver", WAIT_S)
    with Signalled(tmp_path, "receive", "orders", "--wait", "60", "-c", broker.connection_string()) as run:
        wait_for(lambda: broker.metric("twinbus_open_links") > 0, "a receiver", WAIT_S)
        assert run.end(TERM, SOON_S) == 143, run.said


def test_a_relay_is_no_longer_listened_to(broker: BrokerProcess, tmp_path: Path) -> None:
    words = ("relay", "expose", "http://localhost:1", "--path", "hidden", "--create")
    with Signalled(tmp_path, *words, "-c", broker.connection_string()) as run:
        run.until_it_says("is reachable at")
        assert run.end(INT, SOON_S) == 130, run.said


def test_a_syphon_does_not_wait_for_a_namespace_that_is_frozen(tmp_path: Path) -> None:
    """Which is when somebody wants to end it."""
    primary, secondary = (BrokerProcess(tmp_path / name, namespace=name) for name in ("primary", "secondary"))
    words = ("syphon", "--primary", primary.connection_string(), "--secondary", secondary.connection_string())
    with running(primary, secondary), Signalled(tmp_path / "syphon", *words) as run:
        run.until_it_says("The syphon watches")
        wait_for(lambda: secondary.metric("twinbus_open_links") >= BACKLOG_QUEUES, "the links to the backlog", WAIT_S)
        assert secondary.process is not None
        secondary.process.send_signal(signal.SIGSTOP)
        assert run.end(TERM, SOON_S) == 143, run.said


# A broker whose clients do not go


def test_a_broker_does_not_wait_for_slow_clients(tmp_path: Path) -> None:
    """One that waits for a message over HTTP, and one that is frozen: it is given a second to say goodbye."""
    broker = BrokerProcess(tmp_path / "broker", options=("--no-console",)).start()
    try:
        broker.create_queue("orders")
        waiting = http.client.HTTPConnection(broker.host, broker.http_port, timeout=10)
        waiting.request("DELETE", "/orders/messages/head?timeout=60", headers={"Authorization": broker.token()})
        with Signalled(
            tmp_path / "frozen", "receive", "orders", "--follow", "-c", broker.connection_string()
        ) as frozen:
            wait_for(lambda: broker.metric("twinbus_open_links") > 0, "a receiver", WAIT_S)
            frozen.signal(signal.SIGSTOP, group=False)
            began = time.monotonic()
            assert broker.stop(SOON_S) == 0
            assert time.monotonic() - began < 2.0
        waiting.close()
        assert "Traceback" not in broker.log
    finally:
        broker.kill()
