"""The test kit for applications: quick, as good as new for each test, obedient in its clock and its outages."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from proton import Delivery, Link, Message, symbol, timestamp
from proton.utils import LinkDetached, SendException

from support.broker import wait_for
from support.peer import TIMEOUT_S, Modes, Receiver, connected
from twinbus.testing import BrokerError, LocalNamespace, namespace, pair

pytestmark = pytest.mark.feature("test-kit")

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CONFIG = """
[[queues]]
Name = "declared"

[[policies]]
Name = "listener"
Rights = ["Listen"]
"""
# Says for which tests a process is started.
NOTED = """
import os
from twinbus.testing.running import BrokerRun

launch = BrokerRun.launch
started = []


def launch_and_note(self):
    started.append(os.environ["PYTEST_CURRENT_TEST"])
    launch(self)


BrokerRun.launch = launch_and_note


def pytest_terminal_summary(terminalreporter):
    for each in started:
        terminalreporter.line(f"started for {each}")
"""
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    config = tmp_path_factory.mktemp("kit") / "broker.toml"
    config.write_text(CONFIG)
    with namespace("kit", stores=1, config=config, datacenter="north") as made:
        yield made


@pytest.fixture
def bus(process: LocalNamespace) -> LocalNamespace:
    process.renew()
    return process


@pytest.fixture(scope="module")
def moving() -> Iterator[LocalNamespace]:
    """Its clock only goes on, from test to test; each test has its own queue."""
    with namespace("moving", stores=1) as made:
        yield made


def peer(bus: LocalNamespace) -> Any:
    """The namespace as `support.peer` wants it."""
    key = re.findall(";SharedAccessKey=([^;]+)", bus.connection_string)[0]
    return SimpleNamespace(host="127.0.0.1", amqp_port=bus.amqp_port, key=key)


def send(bus: LocalNamespace, queue: str, *messages: Message) -> None:
    with connected(peer(bus)) as connection:
        sender = connection.create_sender(queue)
        for message in messages:
            sender.send(message)


def receive(bus: LocalNamespace, queue: str, count: int) -> list[Message]:
    with connected(peer(bus)) as connection:
        receiver = Receiver(connection, queue, credit=count, options=Modes(snd=Link.SND_SETTLED))
        return [receiver.take()[0] for _ in range(count)]


# A namespace


def test_it_has_a_connection_string_for_each_policy(bus: LocalNamespace) -> None:
    assert set(bus.connection_strings) == {"RootManageSharedAccessKey", "listener"}
    assert f"sb://localhost:{bus.amqp_port};" in bus.connection_string


def test_the_next_test_finds_what_the_file_declares_and_nothing_else(bus: LocalNamespace) -> None:
    bus.create_queue("mine")
    send(bus, "declared", Message(body="left over"))
    process = bus._run._process
    bus.renew()
    assert bus._run._process is process, "the process is reset, which is quicker than starting another"
    assert bus.counts("declared")["active"] == 0
    with pytest.raises(BrokerError, match="404"):
        bus.counts("mine")


@pytest.mark.parametrize("change", ["clock", "store", "killed"])
def test_what_a_reset_cannot_undo_is_undone_too(bus: LocalNamespace, change: str) -> None:
    port = bus.amqp_port
    send(bus, "declared", Message(body="left over"))
    if change == "clock":
        bus.advance(timedelta(days=400))
    elif change == "store":
        bus.stores[0].down()
    else:
        bus.kill()
    bus.renew()
    assert (bus.amqp_port, bus.stores[0].state, bus.counts("declared")["active"]) == (port, "up", 0)
    assert bus.call("GET", "clock")["ahead"] == "PT0S"


def test_settings_have_the_official_clients_names(bus: LocalNamespace) -> None:
    bus.create_queue("q", lock_duration=timedelta(seconds=7), max_delivery_count=3, requires_session=True)
    text = bus._ask("GET", "/q?api-version=2021-05")
    assert "<LockDuration>PT7S</LockDuration>" in text
    assert "<MaxDeliveryCount>3</MaxDeliveryCount>" in text
    with pytest.raises(TypeError, match="no setting 'colour'; there are auto_delete_on_idle"):
        bus.create_queue("p", colour="blue")
    with pytest.raises(TypeError, match="'lock_duration' must be a timedelta"):
        bus.create_queue("p", lock_duration=7)
    with pytest.raises(BrokerError, match="409"):
        bus.create_queue("q")


def test_subscriptions_have_the_filter_that_is_asked_for(bus: LocalNamespace) -> None:
    bus.create_topic("t")
    bus.create_subscription("t", "all")
    bus.create_subscription("t", "red", sql_filter="colour = 'red'", sql_action="SET seen = 1")
    bus.create_subscription("t", "labelled", correlation_filter={"label": "x", "properties": {"colour": "blue"}})
    send(
        bus,
        "t",
        Message(body="1", properties={"colour": "red"}),
        Message(body="2", properties={"colour": "blue"}, subject="x"),
    )
    counts = {name: bus.counts(f"t/Subscriptions/{name}")["active"] for name in ("all", "red", "labelled")}
    assert counts == {"all": 2, "red": 1, "labelled": 1}
    (red,) = receive(bus, "t/Subscriptions/red", 1)
    assert red.properties["seen"] == 1
    assert bus.purge("t/Subscriptions/all") == 2
    bus.delete("t/Subscriptions/all")


# Time


def test_a_lock_expires_when_the_clock_says_so(moving: LocalNamespace) -> None:
    moving.create_queue("lock", lock_duration=timedelta(minutes=5))
    send(moving, "lock", Message(body="m"))
    with connected(peer(moving)) as connection:
        receiver = Receiver(connection, "lock", credit=1)
        _, delivery = receiver.take()
        moving.advance(timedelta(minutes=5, seconds=1))
        receiver.link.flow(1)
        again, _ = receiver.take()
        assert again.delivery_count == 1
        delivery.update(Delivery.ACCEPTED)
        connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S, msg="the refusal")
        assert delivery.remote_state == Delivery.REJECTED


def test_a_message_lives_as_long_as_the_clock_says(moving: LocalNamespace) -> None:
    moving.create_queue(
        "ttl", default_message_time_to_live=timedelta(days=7), dead_lettering_on_message_expiration=True
    )
    send(moving, "ttl", Message(body="m"))
    moving.advance(timedelta(days=6))
    assert moving.counts("ttl")["active"] == 1
    moving.advance(timedelta(days=1, seconds=1))
    assert (moving.counts("ttl")["active"], moving.counts("ttl")["dead_letter"]) == (0, 1)


def test_a_scheduled_message_comes_when_the_clock_says_so(moving: LocalNamespace) -> None:
    moving.create_queue("schedule")
    ahead = datetime.fromisoformat(moving.call("GET", "clock")["now"]) + timedelta(hours=1)
    at = timestamp(int(ahead.timestamp() * 1000))
    send(moving, "schedule", Message(body="m", annotations={symbol("x-opt-scheduled-enqueue-time"): at}))
    assert (moving.counts("schedule")["active"], moving.counts("schedule")["scheduled"]) == (0, 1)
    moving.advance(timedelta(hours=1, seconds=1))
    assert (moving.counts("schedule")["active"], moving.counts("schedule")["scheduled"]) == (1, 0)


def test_a_duplicate_window_ends_when_the_clock_says_so(moving: LocalNamespace) -> None:
    window = timedelta(minutes=10)
    moving.create_queue("window", requires_duplicate_detection=True, duplicate_detection_history_time_window=window)
    send(moving, "window", Message(id="1", body="m"), Message(id="1", body="m"))
    assert moving.counts("window")["active"] == 1
    moving.advance(window + SECOND)
    send(moving, "window", Message(id="1", body="m"))
    assert moving.counts("window")["active"] == 2


def test_an_idle_queue_is_deleted_when_the_clock_says_so(moving: LocalNamespace) -> None:
    moving.create_queue("idle", auto_delete_on_idle=timedelta(minutes=5))
    moving.advance(timedelta(minutes=5, seconds=1))
    with pytest.raises(BrokerError, match="404"):
        moving.counts("idle")


def test_a_reset_sets_the_clock_right_and_everything_obeys_it_again(bus: LocalNamespace) -> None:
    send(bus, "declared", Message(body="old"))
    bus.advance(timedelta(days=400))
    bus.reset()
    assert abs(datetime.fromisoformat(bus.call("GET", "clock")["now"]).timestamp() - time.time()) < 60
    bus.create_queue("q", default_message_time_to_live=timedelta(hours=1), lock_duration=timedelta(seconds=30))
    send(bus, "q", Message(body="1"), Message(body="2"))
    with connected(peer(bus)) as connection:
        receiver = Receiver(connection, "q", credit=1)
        receiver.take()
        bus.advance(timedelta(seconds=31))
        receiver.link.flow(1)
        assert receiver.take()[0].delivery_count == 1
    bus.advance(timedelta(hours=1))
    assert bus.counts("q")["active"] == 0


def test_a_client_is_not_cut_off_by_a_clock_that_is_not_its_own(moving: LocalNamespace) -> None:
    moving.create_queue("client")
    with connected(peer(moving)) as connection:
        sender = connection.create_sender("client")
        moving.advance(timedelta(days=30))
        sender.send(Message(body="still connected"))
    assert moving.counts("client")["active"] == 1


# Outages


def test_what_was_accepted_is_there_after_a_kill_on_the_same_port(bus: LocalNamespace) -> None:
    port = bus.amqp_port
    send(bus, "declared", Message(body="accepted"))
    bus.kill()
    assert not bus.is_running
    with pytest.raises(BrokerError, match="'kit' is not running"):
        bus.counts("declared")
    bus.start()
    assert (bus.amqp_port, bus.counts("declared")["active"]) == (port, 1)
    bus.stop()
    bus.start()
    assert [message.body for message in receive(bus, "declared", 1)] == ["accepted"]


def test_a_store_that_is_down_refuses_and_returns_with_its_messages(bus: LocalNamespace) -> None:
    send(bus, "declared", Message(body="kept"))
    (store,) = bus.stores
    store.down("a drill")
    assert store.state == "down"
    with pytest.raises((LinkDetached, SendException)):
        send(bus, "declared", Message(body="refused"))
    store.up()
    assert [message.body for message in receive(bus, "declared", 1)] == ["kept"]


def test_halves_of_a_pair_fail_alone() -> None:
    with pair(stores=1) as (primary, secondary):
        for one in (primary, secondary):
            one.create_queue("q")
        assert (primary.datacenter, secondary.datacenter) == ("east", "west")
        assert secondary.call("GET", "status")["datacenter"] == "west"
        primary.kill()
        send(secondary, "q", Message(body="m"))
        assert secondary.counts("q")["active"] == 1
        primary.start()
        assert primary.counts("q")["active"] == 0


async def test_it_works_in_a_coroutine() -> None:
    async with namespace(stores=1) as bus:
        bus.create_queue("q")
        assert bus.counts("q")["active"] == 0
    assert not bus.is_running


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("colour = 'blue'")
    with pytest.raises(BrokerError, match=r"broker\.toml:1: unknown setting 'colour'"), namespace(config=config):
        pass


def test_a_broker_ends_with_the_tests_that_started_it() -> None:
    script = (
        "from twinbus.testing import namespace\n"
        "bus = namespace(stores=1).__enter__()\n"
        "print(bus.amqp_port, flush=True)\n"
        "input()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        port = int(tests.stdout.readline())
        tests.send_signal(signal.SIGKILL)

    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    wait_for(is_gone, "the broker ends")


# The plug-in and its page


@pytest.fixture(scope="module", autouse=True)
def examples(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[str] | None]:
    """The page's examples on their way beside all other tests: the official client makes them long, and they wait."""
    if not any(item.name == "test_the_examples_of_the_page_run" for item in request.session.items):
        yield None
        return
    directory = tmp_path_factory.mktemp("examples")
    (directory / "conftest.py").write_text(NOTED)
    for number, text in enumerate(EXAMPLES):
        (directory / f"test_example_{number}.py").write_text(text)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "twinbus.testing.plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    plugins += ["-o", "asyncio_default_fixture_loop_scope=function"]
    options = ["-vv", "--rootdir", str(directory), *plugins, str(directory)]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.timeout(120)
def test_the_examples_of_the_page_run(examples: subprocess.Popen[str]) -> None:
    told, _ = examples.communicate(timeout=100)
    assert examples.returncode == 0, told[-8000:]
    tests = len(re.findall(r"^(?:async )?def test_", "\n".join(EXAMPLES), re.MULTILINE))
    assert f"{tests} passed" in told
    started = re.findall(r"^started for .*::(\w+)", told, re.MULTILINE)
    assert "test_an_order_arrives" in started
    assert "test_nothing_is_left_of_the_test_before" not in started, "a process is kept from test to test"
