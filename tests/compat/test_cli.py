"""The daily commands as a person or a script runs them: a process of their own against a broker process."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.atom import Rule
from support.broker import BrokerProcess, NewQueue, free_ports, wait_for
from twinbus.client import ConnectionString, connect
from twinbus.client.messages import build, read

pytestmark = pytest.mark.feature("commands at a prompt")
SOON_S = 30


class Prompt:
    """Runs commands against one broker."""

    def __init__(self, broker: BrokerProcess, connection_string: str | None = None) -> None:
        self.environment = {
            **os.environ,
            "TWINBUS_CONNECTION_STRING": connection_string or broker.connection_string(),
            "TWINBUS_HTTP_PORT": str(broker.http_port),
        }

    def __call__(self, *words: str, typed: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        """One command to its end, which must be `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "twinbus", *words],
            input=typed,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=SOON_S,
        )
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> list[dict[str, Any]]:
        """What a command prints for scripts."""
        return [json.loads(line) for line in self(*words, "--json").stdout.splitlines()]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "twinbus", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )


@pytest.fixture
def run(broker: BrokerProcess) -> Prompt:
    return Prompt(broker)


Follow = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def follow(run: Prompt) -> Iterator[Follow]:
    """Starts a command that goes on, and makes sure that it ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        started.append(run.start(*words))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def bodies(found: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in found]


# Entities


def test_a_queue_is_created_changed_and_deleted(run: Prompt) -> None:
    settings = ["--lock-duration", "1m", "--ttl", "P14D", "--max-delivery-count", "5", "--duplicate-detection"]
    assert run("entity", "create", "life/of-a.queue", *settings).stdout == "Created 'life/of-a.queue'.\n"
    (made,) = run.json("entity", "show", "life/of-a.queue")
    assert (made["kind"], made["lock_duration"], made["default_time_to_live"]) == ("queue", "PT1M", "P14D")
    assert (made["max_delivery_count"], made["requires_duplicate_detection"]) == (5, True)
    assert "exists already" in run("entity", "create", "life/of-a.queue", "--if-missing").stderr
    assert "already exists" in run("entity", "create", "life/of-a.queue", code=1).stderr
    run("entity", "update", "life/of-a.queue", "--lock-duration", "20", "--metadata", "<mine & yours>")
    (changed,) = run.json("entity", "show", "life/of-a.queue")
    differences = {name for name in made if made[name] != changed[name]} - {"updated_at", "accessed_at"}
    assert differences == {"lock_duration", "metadata"}
    assert changed["metadata"] == "<mine & yours>"
    assert "Nothing would change" in run("entity", "update", "life/of-a.queue", "--lock-duration", "20s", code=1).stderr
    assert "LockDuration" in run("entity", "update", "life/of-a.queue", "--lock-duration", "1h", code=1).stderr
    assert "Nothing was done" in run("entity", "delete", "life/of-a.queue", code=1).stderr
    assert "Deleted" in run("entity", "delete", "life/of-a.queue", typed="y\n").stdout
    assert "could not be found" in run("entity", "show", "life/of-a.queue", code=1).stderr


def test_a_list_goes_over_all_pages_and_is_aligned(tmp_path: Path) -> None:
    names = "".join(f'[[queues]]\nName = "q-{number:03}"\n' for number in range(130))
    with BrokerProcess(tmp_path, config=names) as broker:
        run = Prompt(broker)
        assert [queue["name"] for queue in run.json("entity", "list")] == [f"q-{number:03}" for number in range(130)]
        listed = run("entity", "list")
    lines = listed.stdout.splitlines()
    assert len(lines) == 131
    assert lines[0].split() == ["NAME", "STATUS", "ACTIVE", "SCHEDULED", "DEAD", "BYTES", "LOCK", "TTL", "DELIVERIES"]
    assert len({line.index("Active") for line in lines[1:]}) == 1
    assert listed.stderr == "130 queues.\n"


# Messages


def test_what_is_sent_is_seen_and_received(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue()
    words = ["--subject", "greeting", "--content-type", "text/plain", "--ttl", "5m", "--message-id", "id"]
    words += ["--property", "colour=blue", "-p", "size:=5"]
    assert run("send", queue, "hello", *words).stdout == "1 message accepted.\n"
    (seen,) = run.json("peek", queue)
    expected = {"message_id": "id", "subject": "greeting", "content_type": "text/plain", "time_to_live": "PT5M"}
    assert {name: seen[name] for name in expected} == expected
    assert seen["properties"] == {"colour": "blue", "size": 5}
    received = run("receive", queue)
    header, row = received.stdout.splitlines()
    assert header.split() == ["NUMBER", "ENQUEUED", "ID", "STATE", "TRIES", "SESSION", "SUBJECT", "BODY"]
    assert row.split()[-2:] == ["greeting", "hello"]
    assert received.stderr == "1 message received.\n"
    assert run("receive", queue, "--wait", "0.2").stderr == "No messages within 0.2 s.\n"


def test_lines_go_through_in_order_and_come_out_as_they_went_in(run: Prompt, new_queue: NewQueue) -> None:
    queue, text = new_queue(), "".join(f"line {number} é\n" for number in range(2500))
    assert run("send", queue, "-", "--message-id", "run-7", typed=text).stdout == "2,500 messages accepted.\n"
    assert run.json("peek", queue, "--from", "2500")[0]["message_id"] == "run-7-2500"
    assert run("receive", queue, "--raw", "--count", "2500").stdout == text
    assert run("peek", queue).stderr == "No messages.\n"


def test_batches_and_counts(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    run("send", queue, "a", "b", "--count", "60", "--batch")
    assert broker.count(queue) == 120
    assert bodies(run.json("peek", queue, "--from", "60", "--count", "2")) == ["a", "b"]


def test_refused_lines_are_named_and_the_others_are_there(
    run: Prompt, new_queue: NewQueue, tmp_path: Path, broker: BrokerProcess
) -> None:
    queue, file = new_queue(), tmp_path / "lines.txt"
    large = "x" * 300_000
    file.write_text(f"one\n{large}\nthree\n{large}\n{large}\n")
    done = run("send", queue, "--file", str(file), "--lines", code=1)
    assert done.stdout == "2 of 5 messages accepted.\n"
    assert "lines 2, 4-5 not accepted" in done.stderr
    assert "message-size-exceeded" in done.stderr
    assert bodies(run.json("peek", queue)) == ["one", "three"]


def test_a_file_is_one_message_byte_for_byte(run: Prompt, new_queue: NewQueue, tmp_path: Path) -> None:
    queue, file = new_queue(), tmp_path / "body"
    file.write_bytes(b"\x00\xffone\r\n\r\n")
    run("send", queue, "--file", str(file))
    (seen,) = run.json("peek", queue)
    assert (seen["body"], seen["body_base64"]) == (None, "AP9vbmUNCg0K")
    assert "0x00ff6f6e650d0a0d0a" in run("peek", queue).stdout
    assert "cannot be read" in run("send", queue, "--file", str(tmp_path / "none"), code=1).stderr


def test_a_line_is_sent_as_soon_as_it_comes(follow: Follow, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    process = follow("send", queue, "-")
    assert process.stdin is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    wait_for(lambda: broker.count(queue) == 1, "the line")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SOON_S)
    assert (process.returncode, out, err) == (130, "1 message accepted.\n", "twinbus: interrupted\n")


def test_a_message_can_be_sent_for_later(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue()
    run("send", queue, "soon", "--at", "1h")
    run("send", queue, "later", "--at", "2040-01-31T08:00:00Z")
    soon, later = run.json("peek", queue)
    assert (soon["state"], later["state"]) == ("scheduled", "scheduled")
    assert later["scheduled_at"] == "2040-01-31T08:00:00.000Z"
    assert run("receive", queue, "--wait", "0.1").stdout == ""


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--complete"], []),
        (["--mode", "receive-and-delete"], []),
        (["--abandon"], [("active", 1)]),
        (["--release"], [("active", 0)]),
        (["--defer"], [("deferred", 0)]),
    ],
)
def test_every_fate_of_a_message(run: Prompt, new_queue: NewQueue, options: list[str], left: list[Any]) -> None:
    queue = new_queue()
    run("send", queue, "hello")
    assert bodies(run.json("receive", queue, *options)) == ["hello"]
    assert [(seen["state"], seen["delivery_count"]) for seen in run.json("peek", queue)] == left


def test_a_deferred_message_is_had_by_its_number(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue()
    run("send", queue, "hello")
    (deferred,) = run.json("receive", queue, "--defer")
    number = str(deferred["sequence_number"])
    assert bodies(run.json("receive", queue, "--deferred", number)) == ["hello"]
    assert "message-not-found" in run("receive", queue, "--deferred", number, code=1).stderr


def test_what_cannot_be_shown_is_given_back(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue()
    run("send", queue, "hello", "again")
    command = f"{sys.executable} -m twinbus receive {queue} --count 2 | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=run.environment, timeout=SOON_S)
    assert "Traceback" not in done.stderr
    assert done.stdout == "141\n"
    assert [(seen["body"], seen["delivery_count"]) for seen in run.json("peek", queue)] == [("hello", 0), ("again", 0)]
    assert len(run.json("receive", queue, "--count", "2")) == 2


def test_sessions_are_taken_by_name_and_one_after_the_other(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    assert "requires sessions" in run("send", queue, "x", code=1).stderr
    assert "--session next" in run("receive", queue, "--wait", "1", code=1).stderr
    for session in ("a", "b", "c"):
        run("send", queue, f"{session}1", f"{session}2", "--session", session)
    assert bodies(run.json("peek", queue, "--session", "b")) == ["b1", "b2"]
    assert bodies(run.json("receive", queue, "--session", "b", "--count", "9", "--wait", "0.2")) == ["b1", "b2"]
    assert bodies(run.json("receive", queue, "--session", "next", "--count", "9", "--wait", "0.2")) == ["a1", "a2"]
    assert run("receive", queue, "--session", "b", "--wait", "0.2").stderr == "No messages within 0.2 s.\n"


def test_following_goes_on_from_session_to_session_until_it_is_told_to_stop(
    run: Prompt, follow: Follow, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue(RequiresSession=True)
    process = follow("receive", queue, "--session", "next", "--follow", "--wait", "0.3", "--raw")
    assert process.stdout is not None
    for session in ("a", "b"):
        run("send", queue, f"from {session}", "--session", session)
        assert process.stdout.readline() == f"from {session}\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SOON_S)
    assert (process.returncode, err) == (0, "2 messages received.\n")
    assert broker.count(queue) == 0


def test_a_session_is_kept_for_longer_than_its_lock(run: Prompt, follow: Follow, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True, LockDuration="PT5S")
    run("send", queue, "first", "--session", "s")
    process = follow("receive", queue, "--session", "s", "--follow", "--raw", "--wait", "1")
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(6)
    run("send", queue, "second", "--session", "s")
    assert process.stdout.readline() == "second\n"


# Dead letters


def kill_off(run: Prompt, queue: str, reason: str, *texts: str) -> None:
    run("send", queue, *texts, "-p", "kept=yes")
    run("receive", queue, "--count", str(len(texts)), "--dead-letter", "--reason", reason, "--description", "in words")


def test_dead_letters_are_listed_shown_and_sent_back_as_they_were(
    run: Prompt, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    kill_off(run, queue, "broken", "one", "two\nlines")
    kill_off(run, queue, "stale", "three")
    listed = run("dlq", "list", queue).stdout.splitlines()
    assert [row.split()[4] for row in listed[1:]] == ["broken", "broken", "stale"]
    shown = run("dlq", "show", queue, "2").stdout
    assert "dead letter reason" in shown
    assert "property kept" in shown
    assert shown.endswith("\ntwo\nlines\n")
    assert "no dead letter 77" in run("dlq", "show", queue, "77", code=1).stderr
    ids = [letter["message_id"] for letter in run.json("dlq", "list", queue)]
    assert "2 messages would be sent back." in run("dlq", "redrive", queue, "--reason", "Broken", "--dry-run").stdout
    assert broker.count(queue, "DeadLetterMessageCount") == 3
    (told,) = run.json("dlq", "redrive", queue, "--reason", "Broken")
    assert (told["redriven"], told["left"]) == (2, {"another reason": 1})
    back = run.json("peek", queue)
    assert [message["message_id"] for message in back] == ids[:2]
    assert [(message["properties"], message["delivery_count"]) for message in back] == [({"kept": "yes"}, 0)] * 2
    assert run("dlq", "redrive", queue, "--limit", "5").stdout == "1 message sent back.\n"
    assert run("dlq", "redrive", queue).stdout == "0 messages sent back.\n"
    assert run("dlq", "list", queue).stderr == "No dead letters.\n"
    assert bodies(run.json("receive", queue, "--count", "3")) == ["one", "two\nlines", "three"]


async def test_thousands_that_stay_do_not_hide_the_one_that_goes(
    run: Prompt, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue, many = new_queue(LockDuration="PT1M"), 6000
    run("send", queue, "-", typed="x\n" * (many + 1))
    run("receive", queue, "--count", str(many), "--dead-letter", "--reason", "stale", "--raw")
    run("receive", queue, "--dead-letter", "--reason", "broken")
    (told,) = run.json("dlq", "redrive", queue, "--reason", "broken")
    assert (told["redriven"], told["left"]) == (1, {"another reason": many})
    # And they are free again, at once.
    async with connect(broker.connection_string()) as connection:
        receiver = await connection.receiver(f"{queue}/$DeadLetterQueue", credit=0)
        (first,) = await receiver.receive(1, 5.0)
        assert (read(first.payload).sequence_number, read(first.payload).delivery_count) == (1, 0)
        await receiver.settle([first])


def test_a_message_that_would_vanish_as_a_duplicate_stays_dead(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresDuplicateDetection=True)
    kill_off(run, queue, "broken", "one")
    done = run("dlq", "redrive", queue)
    assert done.stdout == "0 messages sent back.\n1 message left: would be taken for a duplicate.\n"
    assert "--new-ids" in done.stderr
    assert run("dlq", "redrive", queue, "--new-ids").stdout == "1 message sent back.\n"
    assert bodies(run.json("receive", queue)) == ["one"]


def test_dead_letters_of_sessions_go_back_to_their_sessions(run: Prompt, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    run("send", queue, "one", "--session", "s")
    run("receive", queue, "--session", "s", "--dead-letter")
    assert bodies(run.json("receive", queue, "--dlq", "--release")) == ["one"]
    run("dlq", "redrive", queue)
    assert bodies(run.json("receive", queue, "--session", "s")) == ["one"]


def test_a_refused_redrive_leaves_everything_dead(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    kill_off(run, queue, "broken", "one", "two")
    run("entity", "update", queue, "--status", "senddisabled")
    assert "entity-disabled" in run("dlq", "redrive", queue, code=1).stderr
    assert broker.count(queue, "DeadLetterMessageCount") == 2


def test_whoever_may_not_ask_about_duplicates_is_told_what_to_do(
    run: Prompt, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue(AuthorizationRules=[Rule("worker", ("Listen", "Send"), "a-key-of-the-worker")])
    kill_off(run, queue, "broken", "one")
    worker = Prompt(broker, broker.connection_string("worker", "a-key-of-the-worker"))
    assert "--no-duplicate-check" in worker("dlq", "redrive", queue, code=1).stderr
    assert worker("dlq", "redrive", queue, "--no-duplicate-check").stdout == "1 message sent back.\n"


def test_dead_letters_are_removed_when_that_is_meant(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    kill_off(run, queue, "broken", "one", "two")
    kill_off(run, queue, "stale", "three")
    run("send", queue, "alive")
    assert run("dlq", "purge", queue, "--dry-run").stdout.split() == (
        ["3", "dead", "letters", "would", "be", "removed.", "broken", "2", "stale", "1"]
    )
    assert "Nothing was done" in run("dlq", "purge", queue, code=1).stderr
    assert broker.count(queue, "DeadLetterMessageCount") == 3
    assert run("dlq", "purge", queue, "--yes").stdout == "3 dead letters removed.\n"
    assert (broker.count(queue, "DeadLetterMessageCount"), broker.count(queue)) == (0, 1)


# Keys


def test_a_policy_is_added_used_rotated_and_removed(run: Prompt, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    shown = run("keys", queue, "--add", "app", "--right", "send")
    assert shown.stdout.split() == ["QUEUE", "POLICY", "RIGHTS", queue, "app", "Send"]
    assert {"queue": queue, "name": "app", "rights": ["Send"]} in run.json("keys")
    (policy,) = run.json("keys", queue, "--show")
    app = Prompt(broker, policy["connection_string"])
    app("send", queue, "hello")
    assert "unauthorized-access" in app("peek", queue, code=1).stderr
    assert ConnectionString.parse(policy["connection_string"]).entity_path == queue
    (rotated,) = run.json("keys", queue, "--rotate", "app", "--yes", "--show")
    assert rotated["primary_key"] not in (policy["primary_key"], policy["secondary_key"])
    assert rotated["secondary_key"] == policy["primary_key"]
    app("send", queue, "still")
    assert "no policy 'other'" in run("keys", queue, "--remove", "other", code=1).stderr
    assert "has a policy" in run("keys", queue, "--add", "APP", "--right", "send", code=1).stderr
    assert "No policies" in run("keys", queue, "--remove", "app", "--yes").stderr
    assert "not valid here" in app("send", queue, "no more", code=1).stderr
    assert bodies(run.json("peek", queue)) == ["hello", "still"]


# What may go wrong


def test_failures_are_sentences(run: Prompt, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    for words in (("peek", "nope"), ("send", "nope", "x"), ("receive", "nope"), ("dlq", "list", "nope")):
        assert "'nope' could not be found" in run(*words, code=1).stderr
    stranger = Prompt(broker, broker.connection_string("stranger", "a-key-that-opens-nothing"))
    for words in (("peek", queue), ("entity", "list")):
        told = stranger(*words, code=1).stderr
        assert "not valid here" in told
        assert "TrackingId: " in told
    (closed,) = free_ports(1)
    nowhere = Prompt(broker, broker.connection_string().replace(str(broker.amqp_port), str(closed)))
    assert f"No connection to 127.0.0.1:{closed}" in nowhere("peek", queue, code=1).stderr
    assert "Is it running" in run("entity", "list", "--http-port", str(closed), code=1).stderr


def test_whoever_waits_in_vain_can_give_up(follow: Follow, new_queue: NewQueue, broker: BrokerProcess) -> None:
    process = follow("receive", new_queue(), "--wait", "600")
    # Two links for the token, and the receiver's.
    wait_for(lambda: broker.metrics()["twinbus_open_links"] >= 3, "the receiver")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SOON_S)
    assert (process.returncode, out, err) == (130, "", "twinbus: interrupted\n")


def test_a_connection_that_is_lost_tells_what_is_certain_and_what_is_not(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, options=("--queue", "orders")) as broker:
        process = Prompt(broker).start("send", "orders", "-", "--json")
        assert process.stdin is not None
        process.stdin.write("one\ntwo\n")
        process.stdin.flush()
        wait_for(lambda: broker.count("orders") == 2, "the first lines")
        broker.kill()
        out, err = process.communicate("three\nfour\n", timeout=SOON_S)
    assert process.returncode == 1
    assert json.loads(out) == {"accepted": 2, "refused": [], "unknown": []}
    assert "nothing was sent from line 3 on" in err
    assert "The connection was lost" in err
    assert "Traceback" not in err


async def test_a_row_is_cut_for_terminals_alone(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send([build(b"x" * 200, message_id="wide")])
    controller, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "twinbus", "peek", queue],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            env={**run.environment, "COLUMNS": "80", "TERM": "xterm"},
        )
        process.communicate(timeout=SOON_S)
        on_terminal = os.read(controller, 65536).decode().splitlines()
    finally:
        os.close(controller)
        os.close(terminal)
    assert on_terminal[0].startswith("\x1b[1mNUMBER")
    assert len(on_terminal[1]) == 80
    assert on_terminal[1].endswith("…")
    assert run("peek", queue).stdout.endswith("x" * 200 + "\n")


@pytest.mark.timeout(60)
def test_everything_works_over_tls_with_a_private_authority(tmp_path: Path) -> None:
    authority = tmp_path / "tls"
    subprocess.run([sys.executable, "-m", "twinbus", "certs", str(authority)], check=True, capture_output=True)
    amqps, https = free_ports(2)
    options = ("--tls", str(authority), "--amqps-port", str(amqps), "--https-port", str(https))
    with BrokerProcess(tmp_path / "broker", options=options) as broker:
        text = f"Endpoint=sb://localhost:{amqps};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={broker.key}"
        run = Prompt(broker, text)
        run.environment |= {"TWINBUS_HTTP_PORT": str(https), "TWINBUS_CA": str(authority / "ca.pem")}
        run("entity", "create", "secure")
        run("send", "secure", "hello")
        assert bodies(run.json("receive", "secure")) == ["hello"]
        del run.environment["TWINBUS_CA"]
        assert "is not trusted" in run("send", "secure", "hello", code=1).stderr
        assert "is not trusted" in run("entity", "list", code=1).stderr
