"""What the catalog does not know, through the commands: listed, saved, moved, taken up under another name, given up."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from support.broker import BrokerProcess, wait_for
from support.disks import copy_data
from support.prompt import Prompt

CONFIG = """
[[queues]]
Name = "plain"
[[queues]]
Name = "spread"
EnablePartitioning = true
[[queues]]
Name = "talks"
RequiresSession = true
[[topics]]
Name = "news"
[[topics.subscriptions]]
Name = "all"
[[queues]]
Name = "target"
[[queues]]
Name = "other-talks"
RequiresSession = true
EnablePartitioning = true
"""
FORGOTTEN = ("plain", "spread", "talks", "news", "news/Subscriptions/all")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a namespace whose catalog has lost most of its entities."""
    with BrokerProcess(tmp_path_factory.mktemp("prepared"), config=CONFIG, options=("--no-console",)) as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
            with client.get_queue_sender("plain") as sender:
                sender.send_messages([ServiceBusMessage(f"body {n}", message_id=f"plain-{n}") for n in range(5)])
            with client.get_queue_receiver("plain") as receiver:
                (dead,) = receiver.receive_messages(1, max_wait_time=10)
                receiver.dead_letter_message(dead, reason="tried")
                (later,) = receiver.receive_messages(1, max_wait_time=10)
                receiver.defer_message(later)
            with client.get_queue_sender("spread") as sender:
                for n in range(20):
                    sender.send_messages(ServiceBusMessage("x", message_id=f"spread-{n}"))
            with client.get_queue_sender("talks") as sender:
                for n in range(6):
                    sender.send_messages(ServiceBusMessage("x", message_id=f"talk-{n}", session_id="ab"[n % 2]))
            with client.get_queue_receiver("talks", session_id="a") as receiver:
                dead, deferred = receiver.receive_messages(2, max_wait_time=10)
                receiver.dead_letter_message(dead)
                receiver.defer_message(deferred)
            with client.get_topic_sender("news") as sender:
                sender.send_messages(ServiceBusMessage("x", message_id="news-0"))
        assert broker.stop() == 0
    catalog = apsw.Connection(str(broker.data / "catalog.db"))
    for name in FORGOTTEN:
        catalog.execute("DELETE FROM entity WHERE name = ?", (name,))
    catalog.close()
    return broker.data


@pytest.fixture
def broker(prepared: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, options=("--no-console",))
    copy_data(prepared, broker.data)
    with broker:
        yield broker


def at_prompt(broker: BrokerProcess, *words: str, code: int = 0) -> str:
    done = Prompt(broker)(*words, code=code)
    return done.stdout + done.stderr


def received(broker: BrokerProcess, name: str, count: int, ordered: bool = False, **options: object) -> list[str]:
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        topic, _, subscription = name.partition("/Subscriptions/")
        receiver = (
            client.get_subscription_receiver(topic, subscription, **options)
            if subscription
            else client.get_queue_receiver(name, **options)
        )
        found: list[str] = []
        with receiver:
            while len(found) < count:
                messages = receiver.receive_messages(count, max_wait_time=10)
                assert messages, f"only {len(found)} of {count}"
                for message in messages:
                    receiver.complete_message(message)
                found += [str(message.message_id) for message in messages]
    return found if ordered else sorted(found)


def test_all_of_them_are_listed_and_come_back_as_they_were(broker: BrokerProcess) -> None:
    listed = at_prompt(broker, "store", "orphans")
    for name in FORGOTTEN:
        assert name in listed
    assert broker.request("GET", "/plain?api-version=2021-05")[0] == 404
    assert "twinbus store orphans" in broker.request("GET", "/readyz")[1]
    for name in FORGOTTEN:
        at_prompt(broker, "store", "adopt", name)
    assert "Nothing is set aside" in at_prompt(broker, "store", "orphans")
    assert received(broker, "plain", 3) == [f"plain-{n}" for n in range(2, 5)]
    assert received(broker, "plain", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER) == ["plain-0"]
    assert received(broker, "spread", 20) == sorted(f"spread-{n}" for n in range(20))
    assert received(broker, "talks", 1, session_id="a") == ["talk-4"]
    assert received(broker, "talks", 3, session_id="b") == ["talk-1", "talk-3", "talk-5"]
    assert received(broker, "news/Subscriptions/all", 1) == ["news-0"]
    broker.restart()
    assert "Nothing is set aside" in at_prompt(broker, "store", "orphans")


def test_messages_are_moved_saved_and_given_up(broker: BrokerProcess, tmp_path: Path) -> None:
    saved = tmp_path / "plain.jsonl"
    assert "5 messages" in at_prompt(broker, "store", "export", "plain", str(saved))
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    assert sorted(line["message_id"] for line in lines) == [f"plain-{n}" for n in range(5)]
    assert b"body 0" in base64.b64decode(next(line["amqp"] for line in lines if line["message_id"] == "plain-0"))
    at_prompt(broker, "store", "export", "plain", str(saved), code=1)
    at_prompt(broker, "store", "move", "plain", "nowhere", code=1)
    at_prompt(broker, "store", "move", "plain", "target")
    assert received(broker, "target", 5) == [f"plain-{n}" for n in range(5)]
    at_prompt(broker, "store", "adopt", "news/Subscriptions/all", "--as", "all-news")
    assert received(broker, "all-news", 1) == ["news-0"]
    at_prompt(broker, "store", "drop", "talks", "--yes")
    at_prompt(broker, "store", "drop", "talks", "--yes", code=1)
    assert "talks" not in at_prompt(broker, "store", "orphans")


def test_sessions_are_moved_where_there_are_sessions(broker: BrokerProcess) -> None:
    assert "belong to sessions" in at_prompt(broker, "store", "move", "talks", "target", code=1)
    assert "with a SessionId only" in at_prompt(broker, "store", "move", "plain", "other-talks", code=1)
    assert "talks" in at_prompt(broker, "store", "orphans")
    shown = at_prompt(broker, "store", "move", "talks", "other-talks")
    assert "6 messages" in shown
    (name,) = re.findall(r"set-aside/talks-\d+", shown)
    # In the order of each session; what was deferred is a message like any other, what was dead comes when it comes.
    assert received(broker, "other-talks", 3, session_id="b", ordered=True) == ["talk-1", "talk-3", "talk-5"]
    of_a = received(broker, "other-talks", 3, session_id="a", ordered=True)
    assert sorted(of_a) == ["talk-0", "talk-2", "talk-4"]
    assert of_a.index("talk-2") < of_a.index("talk-4")
    wait_for(lambda: broker.count(name) == 0, "an empty queue")
    broker.delete_queue(name)
    broker.restart()
    assert "talks" not in at_prompt(broker, "store", "orphans")


def test_a_name_that_is_taken_again_needs_another(broker: BrokerProcess) -> None:
    broker.create_queue("plain")
    assert "another name" in at_prompt(broker, "store", "adopt", "plain", code=1)
    at_prompt(broker, "store", "adopt", "plain", "--as", "old-plain")
    assert received(broker, "old-plain", 3) == [f"plain-{n}" for n in range(2, 5)]
