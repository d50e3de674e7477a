"""`twinbus up`, as somebody uses it daily: a pair on this machine that stays, and whose data is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from support.broker import free_ports, wait_for
from support.prompt import Done
from twinbus.cli import app
from twinbus.local import LocalPair
from twinbus.pair import PairedServiceBusClient

Run = Callable[..., Done]


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
    amqp, http = next(
        (port, port + 50) for port in free_ports(20) if all(_is_free(port + step) for step in (0, 50, 100, 150))
    )
    text = run("up", "--amqp-port", str(amqp), "--http-port", str(http), "--json").stdout
    found: dict[str, Any] = json.loads(text)
    return found


def _is_free(port: int) -> bool:
    import socket

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
    assert "watches 3 backlog queues" in run("logs", "syphon").stdout


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


def test_data_is_kept_from_down_to_up(run: Run, told: dict[str, Any]) -> None:
    assert json.loads(run("down", "--json").stdout)["ended"] == ["syphon", "secondary", "primary"]
    assert run("down").stdout == "Nothing was running.\n"
    assert "No namespace is named" in run("status", code=1).stderr
    again = json.loads(run("up", "--json").stdout)
    assert again["primary"]["connection_string"] == told["primary"]["connection_string"]
    assert run("receive", "orders", "-c", again["primary"]["connection_string"]).stdout.strip().endswith("first")


def test_what_cannot_be_is_told(run: Run, told: dict[str, Any], home: Path, tmp_path: Path) -> None:
    amqp = told["primary"]["connection_string"].split(";")[0].rpartition(":")[2]
    http = told["primary"]["http"].rpartition(":")[2]
    other = str(tmp_path / "other")
    taken = run("up", "--data", other, "--amqp-port", amqp, "--http-port", http, code=1)
    assert f"Port {http} is taken by another broker" in taken.stderr
    assert "There is no 'tertiary': the parts are primary, secondary, syphon." in run("logs", "tertiary", code=1).stderr
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "primary.toml").write_text("amqp_port = 1\n")
    assert "must say 'http_port'" in run("up", "--data", str(tmp_path / "broken"), code=1).stderr
