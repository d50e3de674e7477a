"""`twinbus dlq` against a broker."""

from __future__ import annotations

import pytest

from support.atom import Rule
from support.broker import BrokerProcess, NewQueue
from support.prompt import Prompt, bodies, kill_off
from twinbus.client import connect
from twinbus.client.messages import read

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")


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


def test_dead_letters_of_a_subscription_go_back_to_it_or_where_somebody_says(run: Prompt, new_queue: NewQueue) -> None:
    run("entity", "create", "alarms", "--topic")
    run("entity", "create", "alarms:one")
    run("entity", "create", "alarms:two")
    run("send", "alarms", "a", "b")
    run("receive", "alarms:one", "--count", "2", "--dead-letter", "--reason", "broken")
    assert bodies(run.json("dlq", "list", "alarms:one")) == ["a", "b"]
    assert "nobody sends to a subscription" in run("dlq", "redrive", "alarms:one", "--to", "x:y", code=1).stderr
    rescue = new_queue()
    assert run("dlq", "redrive", "alarms:one", "--to", rescue, "--limit", "1").stdout == "1 message sent back.\n"
    assert bodies(run.json("receive", rescue)) == ["a"]
    assert run("dlq", "redrive", "alarms:one", "--to", "alarms").stdout == "1 message sent back.\n"
    assert bodies(run.json("receive", "alarms:one")) == ["b"]
    assert bodies(run.json("peek", "alarms:two")) == ["a", "b", "b"]
    run("send", "alarms", "c")
    run("receive", "alarms:one", "--dead-letter")
    assert run("dlq", "redrive", "alarms:one").stdout == "1 message sent back, 0 messages left.\n"
    assert bodies(run.json("receive", "alarms:one")) == ["c"]
    run("receive", "alarms:two", "--count", "3", "--dead-letter")
    assert run("dlq", "purge", "alarms:two", "--yes").stdout == "3 dead letters removed.\n"
