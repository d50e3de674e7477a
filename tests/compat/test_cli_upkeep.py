"""`twinbus status`, `store`, `purge`, `reset`, `clock` and the broker's own redrive, at a prompt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.broker import BrokerProcess, NewQueue
from support.prompt import Prompt, kill_off

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--test-clock", "--stores", "2", "--datacenter", "north", "--queue", "declared", "--journal", "default")
    with BrokerProcess(tmp_path_factory.mktemp("broker"), options=options) as process:
        yield process


def test_the_namespace_tells_how_it_is(run: Prompt) -> None:
    shown = run("status").stdout
    assert "Datacenter  north" in shown
    assert "(test clock)" in shown
    (found,) = run.json("status")
    assert (found["namespace"], found["datacenter"], len(found["stores"])) == ("compat", "north", 2)


def test_a_store_is_taken_down_and_brought_up_again(run: Prompt) -> None:
    (taken,) = run.json("store", "down", "1", "--reason", "a new disk")
    assert (taken["state"], taken["reason"]) == ("down", "a new disk")
    assert "a new disk" in run("store", "list").stdout
    assert [store["state"] for store in run.json("store", "list")] == ["up", "down"]
    (brought,) = run.json("store", "up", "1")
    assert brought["state"] == "up"
    assert "no messaging store 7" in run("store", "up", "7", code=1).stderr


def test_the_journal_is_exported(run: Prompt, broker: BrokerProcess) -> None:
    run("send", "declared", "one")
    (done,) = run.json("store", "journal", "--export")
    assert (done["directory"], done["files"] > 0) == (str(broker.data / "journal"), True)
    shown = run("store", "journal").stdout
    assert str(broker.data / "journal") in shown
    assert "IN FILES" in shown


def test_a_queue_is_emptied(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    run("send", queue, "one", "two")
    assert "Nothing was done" in run("purge", queue, typed="n\n", code=1).stderr
    assert run("purge", queue, "--yes").stdout == "2 messages removed.\n"
    kill_off(run, queue, "broken", "three")
    assert run.json("purge", queue, "--sub-queue", "dead-letter", "--yes") == [{"removed": 1}]
    assert broker.count(queue, "DeadLetterMessageCount") == 0


def test_a_filter_chooses_dead_letters(run: Prompt, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue()
    kill_off(run, queue, "broken", "one")
    kill_off(run, queue, "stale", "two")
    told = run("dlq", "redrive", queue, "--filter", "DeadLetterReason = 'stale'").stdout
    assert told == "1 message sent back, 1 message left.\n"
    assert broker.count(queue) == 1
    assert "position" in run("dlq", "redrive", queue, "--filter", "DeadLetterReason =", code=1).stderr
    assert "no --new-ids" in run("dlq", "redrive", queue, "--filter", "a = 1", "--new-ids", code=1).stderr


def test_the_clock_is_moved_and_the_namespace_reset(run: Prompt, broker: BrokerProcess) -> None:
    before = run.json("clock", "show")[0]
    assert before["movable"] is True
    assert run.json("clock", "advance", "1h30m")[0]["ahead"] == "PT1H30M"
    assert "ahead" in run("clock", "show").stdout
    run("send", "declared", "one")
    broker.create_queue("of-a-test")
    (done,) = run.json("reset", "--yes")
    assert done["created"] == 1
    assert broker.count("declared") == 0
