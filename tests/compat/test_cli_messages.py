"""`twinbus send`, `receive` and `peek` against a broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.broker import BrokerProcess, NewQueue, free_ports, wait_for
from support.prompt import SOON_S, Follow, Prompt, bodies

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")


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
    assert bodies(run.json("receive", queue, "--session", "b", "--count", "9", "--wait", "3")) == ["b1", "b2"]
    assert bodies(run.json("receive", queue, "--session", "next", "--count", "9", "--wait", "3")) == ["a1", "a2"]
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
    queue = new_queue(RequiresSession=True, LockDuration="PT12S")
    run("send", queue, "first", "--session", "s")
    process = follow("receive", queue, "--session", "s", "--follow", "--raw", "--wait", "1")
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(13)
    run("send", queue, "second", "--session", "s")
    assert process.stdout.readline() == "second\n"


def test_what_a_topic_gets_is_had_from_its_subscriptions(run: Prompt) -> None:
    run("entity", "create", "fan", "--topic")
    run("entity", "create", "fan:all")
    run("entity", "create", "fan:big", "--filter", "size > 5", "--action", "SET size = 0")
    assert run("send", "fan", "one", "two", "-p", "size:=9").stdout == "2 messages accepted.\n"
    assert bodies(run.json("peek", "fan:all")) == ["one", "two"]
    assert bodies(run.json("receive", "fan/Subscriptions/all", "--count", "2")) == ["one", "two"]
    (first,) = run.json("receive", "fan:big", "--dead-letter", "--reason", "no")
    assert first["properties"] == {"size": 0, "RuleName": "$Default"}
    assert bodies(run.json("receive", "fan:big", "--dlq")) == ["one"]
    told = run("receive", "fan", code=1).stderr
    assert "is a topic: receive from one of its subscriptions" in told


def test_a_subscription_tells_the_time_to_live_that_holds_there(run: Prompt) -> None:
    run("entity", "create", "mortal", "--topic", "--ttl", "1d")
    run("entity", "create", "mortal:long")
    run("entity", "create", "mortal:short", "--ttl", "20m")
    run("send", "mortal", "a")
    run("send", "mortal", "b", "--ttl", "9m")
    for look in (["peek"], ["receive", "--count", "2"]):
        told = {name: run.json(look[0], f"mortal:{name}", *look[1:]) for name in ("long", "short")}
        assert [message["time_to_live"] for message in told["long"]] == ["P1D", "PT9M"]
        assert [message["time_to_live"] for message in told["short"]] == ["PT20M", "PT9M"]


def test_following_goes_on_when_the_broker_comes_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, options=("--queue", "orders")) as broker:
        run = Prompt(broker)
        process = run.start("receive", "orders", "--follow", "--raw")
        try:
            assert process.stdout is not None
            run("send", "orders", "before")
            assert process.stdout.readline() == "before\n"
            wait_for(lambda: broker.count("orders") == 0, "the message to be completed")
            broker.kill()
            broker.start()
            run("send", "orders", "after")
            assert process.stdout.readline() == "after\n"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=SOON_S)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 0
    assert "Trying again" in err
    assert "connected again" in err
    assert "2 messages received." in err


def test_following_what_was_never_there_fails(run: Prompt, broker: BrokerProcess) -> None:
    assert "could not be found" in run("receive", "nope", "--follow", code=1).stderr
    (closed,) = free_ports(1)
    nowhere = Prompt(broker, broker.connection_string().replace(str(broker.amqp_port), str(closed)))
    assert "No connection" in nowhere("receive", "orders", "--follow", code=1).stderr
