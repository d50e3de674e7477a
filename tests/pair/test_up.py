"""`twinbus up`, as somebody uses it daily: a pair on this machine that stays, and whose data is kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from support.broker import wait_for
from support.prompt import Done
from twinbus.cli import app
from twinbus.local import LocalPair
from twinbus.pair import PairedServiceBusClient

Run = Callable[..., Done]
# Beyond those of all other tests, and below those that the system gives away.
_ports = iter(range(32_000, 32_500))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "pair"


@pytest.fixture(scope="module")
def run(home: Path) -> Iterator[Run]:
    def twinbus(*words: str, code: int = 0) -> Done:
        environment = {**os.environ, "TWINBUS_UP": str(home)}
        environment.pop("TWINBUS_CONNECTION_STRING", None)
        if words[0] == "up":  # What it starts shall outlive it, and be nobody's child here.
            command = [sys.executable, "-m", "twinbus", *words]
            ended = subprocess.run(command, capture_output=True, text=True, env=environment)
            done = Done(ended.returncode, ended.stdout, ended.stderr)
        else:
            result = CliRunner().invoke(app, words, env={**environment, "TWINBUS_CONNECTION_STRING": None})
            done = Done(result.exit_code, result.stdout, result.stderr)
        assert done.code == code, done.stderr
        return done

    yield twinbus
    LocalPair(home).down()


@pytest.fixture(scope="module")
def told(run: Run, home: Path) -> dict[str, Any]:
    """What `up` says to scripts."""
    text = run("up", *_free_ports(), "--json").stdout
    found: dict[str, Any] = json.loads(text)
    return found


def _free_ports() -> tuple[str, str, str, str]:
    """Options for four ports that are free."""
    port = next(port for port in _ports if all(_is_free(port + step) for step in (0, 50, 100, 150)))
    return "--amqp-port", str(port), "--http-port", str(port + 50)


def _port_of(told: dict[str, Any], role: str, door: str) -> int:
    address = told[role]["connection_string"].split(";")[0] if door == "amqp" else told[role]["http"]
    return int(address.rpartition(":")[2])


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def test_the_pair_is_there_for_applications_and_commands(run: Run, told: dict[str, Any]) -> None:
    run("entity", "create", "orders", "-c", told["primary"]["connection_string"])
    with PairedServiceBusClient.from_description(told["pair"]) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("first", message_id="first"))
    shown = run("status").stdout
    assert "primary/x-servicebus-transfer/0" in shown
    assert str(told["syphon"]["pid"]) in shown
    assert "watches 10 backlog queues" in run("logs", "syphon").stdout


def test_up_again_shows_the_same_processes(run: Run, told: dict[str, Any]) -> None:
    again = json.loads(run("up", "--json").stdout)
    assert again == told


def test_a_part_that_died_is_started_again_and_the_others_stay(run: Run, told: dict[str, Any], home: Path) -> None:
    killed = told["secondary"]["pid"]
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: "secondary" not in LocalPair(home).running(), "the end of the secondary")
    again = json.loads(run("up", "--json").stdout)
    assert again["secondary"]["pid"] != killed
    assert again["primary"] == told["primary"]


def test_it_starts_everything_though_nobody_reads_what_it_says(run: Run, told: dict[str, Any], home: Path) -> None:
    """`twinbus up 2>&1 | head -1`"""
    os.kill(LocalPair(home).running()["syphon"].pid, signal.SIGKILL)
    wait_for(lambda: "syphon" not in LocalPair(home).running(), "the end of the syphon")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as closed:
        environment = {**os.environ, "TWINBUS_UP": str(home)}
        ended = subprocess.run([sys.executable, "-m", "twinbus", "up"], stdout=closed, stderr=closed, env=environment)
    assert ended.returncode == 141
    assert LocalPair(home).running().keys() == {"primary", "secondary", "syphon"}


def test_data_is_kept_from_down_to_up(run: Run, told: dict[str, Any]) -> None:
    assert json.loads(run("down", "--json").stdout)["ended"] == ["syphon", "secondary", "primary"]
    assert run("down").stdout == "Nothing was running.\n"
    assert "No namespace is named" in run("status", code=1).stderr
    again = json.loads(run("up", "--json").stdout)
    assert again["primary"]["connection_string"] == told["primary"]["connection_string"]
    assert run("receive", "orders", "-c", again["primary"]["connection_string"]).stdout.strip().endswith("first")


def test_what_cannot_be_is_told(run: Run, told: dict[str, Any], home: Path, tmp_path: Path) -> None:
    amqp, http = _port_of(told, "primary", "amqp"), _port_of(told, "primary", "http")
    other = str(tmp_path / "other")
    taken = run("up", "--data", other, "--amqp-port", str(amqp), "--http-port", str(http), code=1)
    assert f"Port {amqp} (AMQP of the primary) is in use; choose another with --amqp-port." in taken.stderr
    assert f"Port {http} (HTTP of the primary) is in use; choose another with --http-port." in taken.stderr
    assert not Path(other).exists()
    running = run("up", "--amqp-port", str(amqp + 1), code=1).stderr
    assert "The pair is running, at other ports. `twinbus down` ends it" in running
    assert "There is no 'tertiary': the parts are primary, secondary, syphon." in run("logs", "tertiary", code=1).stderr
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "primary.toml").write_text("amqp_port = 1\n")
    assert "must say 'http_port'" in run("up", "--data", str(tmp_path / "broken"), code=1).stderr


def test_what_it_says_is_of_use_and_fits_on_a_screen(run: Run, told: dict[str, Any], home: Path) -> None:
    said = run("up").stdout
    for role in ("primary", "secondary"):
        console = f"{told[role]['http']}/"
        assert f"The {role} namespace, console at {console}, connection string\n" in said
        assert f"  {told[role]['connection_string']}\n" in said
        request = urllib.request.Request(console, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
    assert f"  twinbus down --data {home} " in said
    usual = said.replace(str(home), "/home/somebody/.twinbus")  # That of a test is as long as the tests like.
    assert sum(-(-len(line) // 80) or 1 for line in usual.splitlines()) <= 24
    commands = [line.strip() for line in said.splitlines() if "export TWINBUS" in line or "twinbus " in line]
    script = " && ".join(command for command in commands if "twinbus down" not in command)
    run("entity", "delete", "orders", "--yes", "-c", told["primary"]["connection_string"])  # An earlier test's.
    there = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=there)
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout


@pytest.mark.parametrize(
    "held",
    [
        [("primary", "amqp")],
        [("secondary", "http")],
        [("primary", "amqp"), ("primary", "http"), ("secondary", "amqp"), ("secondary", "http")],
    ],
)
def test_ports_that_somebody_else_has_are_named_at_once(
    run: Run, told: dict[str, Any], home: Path, held: list[tuple[str, str]]
) -> None:
    run("down")
    with ExitStack() as stack:
        expected = []
        for role, door in held:
            port = _port_of(told, role, door)
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
            named = f"Port {port} ({door.upper()} of the {role}) is in use; choose another with --{door}-port."
            expected.append(f"{named} The secondary's is 100 higher." if role == "secondary" else named)
        refused = run("up", code=1)
        assert refused.stderr.removeprefix("twinbus: ").splitlines() == expected
        assert LocalPair(home).running() == {}


def test_a_pair_that_is_down_can_have_other_ports_and_keeps_them(run: Run, told: dict[str, Any], home: Path) -> None:
    file = home / "primary.toml"
    file.write_text(f"{file.read_text()}\n[[queues]]\nName = 'declared'  # By hand.\n")
    others = _free_ports()
    moved = json.loads(run("up", *others, "--json").stdout)
    assert _port_of(moved, "primary", "amqp") == int(others[1])
    assert _port_of(moved, "secondary", "http") == int(others[3]) + 100
    assert "# By hand." in file.read_text()
    assert run("send", "declared", "here", "-c", moved["primary"]["connection_string"])
    assert json.loads(run("up", "--json").stdout) == moved
