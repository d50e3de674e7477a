"""`twinbus outbox` at the prompt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from support.broker import wait_for
from support.pair_scene import Scene
from twinbus.cli import app
from twinbus.pair.outbox.outbox import Outbox

PAIR = """
[primary]
connection_string = "{primary}"
name = "{name}"
[secondary]
connection_string = "{secondary}"
[options]
backlog_queue_count = 1
failover_interval = 0
enable_syphon = true
poll = 2
attempts = 1
"""


def twinbus(*words: object, code: int = 0) -> str:
    """One command to its end, in this process; a thread of its own, because it has a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(CliRunner().invoke, app, ["outbox", *map(str, words)]).result(150)
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def put(where: Path, queue: str, *ids: str, key: str | None = None) -> None:
    with Outbox(where) as outbox:
        outbox.put([ServiceBusMessage(f"body of {each}", message_id=each, session_id=key) for each in ids], queue)


async def test_an_outbox_is_shown_and_drained_to_one_namespace(scene: Scene, where: Path) -> None:
    queue = scene.queue()
    put(where, queue, "one", "two")
    shown = json.loads(twinbus("show", where, "--json"))
    assert (shown["waiting"], shown["set_aside"], shown["dispatcher"]) == (2, 0, None)
    assert "2 messages" in twinbus("show", where)
    peeked = [json.loads(line) for line in twinbus("peek", where, "--json").splitlines()]
    assert [(each["number"], each["path"], each["body"]) for each in peeked] == [
        (1, queue, "body of one"),
        (2, queue, "body of two"),
    ]
    assert "body of two" in twinbus("peek", where)

    assert "sent 2, set aside 0" in twinbus("drain", where, "-c", scene.primary.connection_string())
    assert scene.primary.count(queue) == 2
    assert "No messages." in twinbus("peek", where)


async def test_what_cannot_be_sent_stays_and_the_command_says_so(scene: Scene, where: Path) -> None:
    queue = scene.queue()
    put(where, queue, "kept")
    scene.primary.kill()

    told = twinbus("drain", where, "--patience", "0.5", "-c", scene.primary.connection_string(), code=1)

    assert "1 message could not be sent" in told
    with Outbox(where) as outbox:
        assert outbox.counts().messages == 1


async def test_messages_refused_for_good_are_tried_again_or_given_up(scene: Scene, where: Path) -> None:
    queue = scene.queue()
    put(where, f"{queue}-missing", "one", "two", "three")
    told = twinbus("drain", where, "-c", scene.primary.connection_string())
    assert "sent 0, set aside 3" in told
    assert "not-found" in twinbus("peek", where, "--aside")
    assert "Name messages" in twinbus("retry", where, code=1)
    assert "1 message given up" in twinbus("drop", where, 2, "--yes")
    scene.primary.create_queue(f"{queue}-missing")
    assert "2 messages will be tried again" in twinbus("retry", where, "--all")
    assert "sent 2" in twinbus("drain", where, "-c", scene.primary.connection_string())
    assert scene.primary.count(f"{queue}-missing") == 2


@pytest.mark.timeout(180)
async def test_a_dispatcher_of_its_own_sends_through_the_pair_until_it_is_told_to_end(
    scene: Scene, where: Path, tmp_path: Path
) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    put(where, queue, "first")
    description = tmp_path / "pair.toml"
    description.write_text(
        PAIR.format(
            primary=scene.primary.connection_string(), secondary=scene.secondary.connection_string(), name=scene.name
        )
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "twinbus", "outbox", "dispatch", str(where), "--pair", str(description)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with Outbox(where) as outbox:
        wait_for(lambda: outbox.counts().messages == 0, "dispatching", 60)
        scene.primary.kill()
        outbox.put([ServiceBusMessage(b"x", message_id=f"m{number}") for number in range(10)], queue)
        wait_for(lambda: outbox.counts().messages == 0, "diverting")
        scene.primary.start()
        wait_for(lambda: scene.primary.count(queue) == 11, "bringing home")
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "sent 11, set aside 0" in told


def test_a_name_that_is_none_is_told(tmp_path: Path) -> None:
    assert "There is no outbox" in twinbus("show", tmp_path / "nothing.db", code=1)
    assert not (tmp_path / "nothing.db").exists()
