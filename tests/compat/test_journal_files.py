"""The journal of a broker in which everything has happened: its files say what the stores hold and what clients saw."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)

from support import journals
from support.broker import SOON_S, BrokerProcess, wait_for
from support.replay import Told, residents

DELETING = ServiceBusReceiveMode.RECEIVE_AND_DELETE
DEAD = ServiceBusSubQueue.DEAD_LETTER
CONFIG = """
[[queues]]
Name = "plain"
DeadLetteringOnMessageExpiration = true
[[queues]]
Name = "near"
[[queues]]
Name = "far"
[[queues]]
Name = "source"
ForwardTo = "far"
[[queues]]
Name = "spread"
EnablePartitioning = true
[[queues]]
Name = "ordered"
RequiresSession = true
[[queues]]
Name = "once"
RequiresDuplicateDetection = true
[[queues]]
Name = "doomed"
[[topics]]
Name = "events"
[[topics.subscriptions]]
Name = "audit"
[[topics.subscriptions]]
Name = "onward"
ForwardTo = "near"
[[topics]]
Name = "wide"
EnablePartitioning = true
[[topics.subscriptions]]
Name = "all"
"""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, dict[str, Any]]]:
    """A broker in which everything has happened, and what the client saw of it."""
    options = ("--journal", "default", "--test-clock", "--stores", "3")
    directory = tmp_path_factory.mktemp("journal")
    with BrokerProcess(directory, namespace="contoso", config=CONFIG, options=options) as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
            saw = everything(broker, client)
        yield broker, saw


def message(message_id: str, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage(message_id, message_id=message_id, **more)


def everything(broker: BrokerProcess, client: ServiceBusClient) -> dict[str, Any]:
    """Each way to make, move and end a copy; what of it the tests compare with."""
    saw: dict[str, Any] = {}
    later = datetime.now(UTC) + timedelta(hours=1)
    with client.get_queue_sender("plain") as sender:
        sender.send_messages([message(f"m{n}") for n in range(6)])
        sender.send_messages(message("brief", time_to_live=timedelta(seconds=1)))
        first, _ = sender.schedule_messages([message("never"), message("later")], later)
        sender.cancel_scheduled_messages(first)
    with client.get_queue_receiver("plain") as receiver:
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < 4:
            taken += receiver.receive_messages(4 - len(taken), max_wait_time=SOON_S)
        done, dead, back, deferred = taken
        receiver.complete_message(done)
        receiver.dead_letter_message(dead)
        receiver.abandon_message(back)
        receiver.defer_message(deferred)
    with client.get_queue_receiver("plain", receive_mode=DELETING) as receiver:
        receiver.receive_messages(1, max_wait_time=SOON_S)
    for queue in ("source", "doomed"):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([message(f"{queue}-{n}") for n in range(3)])
    with client.get_queue_sender("spread") as sender:
        for number in range(8):
            sender.send_messages(message(f"spread-{number}"))
    with client.get_queue_receiver("spread") as receiver:
        saw["spread"] = {m.message_id: m.sequence_number for m in receiver.peek_messages(20)}
    with client.get_queue_sender("ordered") as sender:
        sender.send_messages([message(f"ordered-{n}", session_id=f"s{n % 2}") for n in range(4)])
    with client.get_queue_sender("once") as sender:
        for _ in range(2):
            sender.send_messages(message("only"))
    for topic in ("events", "wide"):
        with client.get_topic_sender(topic) as sender:
            sender.send_messages([message(f"{topic}-{n}", session_id="S") for n in range(2)])
            sender.schedule_messages(message(f"{topic}-later"), later)
    with client.get_subscription_receiver("wide", "all") as receiver:
        saw["wide"] = {m.message_id: m.sequence_number for m in receiver.peek_messages(20)}
    wait_for(lambda: broker.count("far") == 3 and broker.count("near") == 2, "what is forwarded")
    asked = json.dumps({"advance": "PT2H"})
    assert broker.request("POST", "/$api/clock", asked)[0] == 200  # What was scheduled comes, what was brief goes.
    wait_for(lambda: broker.count("near") == 3, "what was scheduled on a topic")
    assert broker.request("POST", "/$api/redrive", json.dumps({"entity": "plain", "limit": 1}))[0] == 200
    assert broker.request("POST", "/$api/purge", json.dumps({"entity": "once"}))[0] == 200
    broker.delete_queue("doomed")
    journals.export(broker)
    return saw


@pytest.fixture(scope="module")
def rows(scene: tuple[BrokerProcess, dict[str, Any]]) -> list[Row]:
    return journals.exported(scene[0].data / "journal")


def sent(rows: list[Row], entity: str) -> dict[str, Row]:
    return {row["message_id"]: row for row in rows if row["entity"] == entity and row["operation"] == "send"}


pytestmark = pytest.mark.feature("extension: the journal as files")


def test_they_say_exactly_what_the_stores_hold(scene: tuple[BrokerProcess, dict[str, Any]], rows: list[Row]) -> None:
    topics = frozenset((row["store"], row["queue"]) for row in rows if row["kind"] == "topic")
    inner = (1 << 48) - 1  # Stores know nothing of fragments.
    told = [
        Told(row["operation"], (row["store"], row["queue"]), row["sequence_number"] & inner, old(row, inner))
        for row in rows
    ]
    held = set()
    for store, path in enumerate(sorted(scene[0].data.glob("store-*.db"))):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            held |= {((store, queue), seq) for queue, seq in database.execute("SELECT queue, seq FROM message")}
    assert residents(told, topics) == held
    assert len(held) > 20
    assert journals.missing_batches(rows) == []


def old(row: Row, inner: int) -> str:
    return str(int(row["outcome"]) & inner) if row["operation"] == "activate" else row["outcome"]


def test_every_way_is_there(rows: list[Row]) -> None:
    operations = {row["operation"] for row in rows}
    assert operations >= {
        "send", "copy", "schedule", "cancel", "activate", "receive", "receive_delete", "complete", "abandon", "defer",
        "deadletter", "forward", "ttl_expire", "delete", "drop", "peek", "manage", "connect", "disconnect",
    }  # fmt: skip


def test_every_entity_has_its_name_and_kind(rows: list[Row]) -> None:
    named = {(row["entity"], row["kind"]) for row in rows}
    assert named == {
        ("", ""),
        ("events", "topic"),
        ("wide", "topic"),
        ("events/Subscriptions/audit", "subscription"),
        ("events/Subscriptions/onward", "subscription"),
        ("wide/Subscriptions/all", "subscription"),
        *((name, "queue") for name in ("plain", "near", "far", "source", "spread", "ordered", "once", "doomed")),
    }
    dropped = [row["message_id"] for row in rows if row["operation"] == "drop" and row["entity"] == "doomed"]
    assert sorted(dropped) == ["doomed-0", "doomed-1", "doomed-2"]


def test_numbers_are_as_receivers_see_them(scene: tuple[BrokerProcess, dict[str, Any]], rows: list[Row]) -> None:
    saw = scene[1]
    assert {name: row["sequence_number"] for name, row in sent(rows, "spread").items()} == saw["spread"]
    assert len({number >> 48 for number in saw["spread"].values()}) > 1
    copied = {
        row["message_id"]: row["sequence_number"]
        for row in rows
        if row["operation"] == "copy" and row["entity"] == "wide/Subscriptions/all"
    }
    assert saw["wide"].items() <= copied.items()


def test_what_makes_a_copy_in_a_session_names_it(rows: list[Row]) -> None:
    assert {row["message_id"]: row["session_id"] for row in sent(rows, "ordered").values()} == {
        f"ordered-{n}": f"s{n % 2}" for n in range(4)
    }
    copies = {row["session_id"] for row in rows if row["operation"] == "copy" and "later" not in row["message_id"]}
    assert copies == {"S"}


def test_a_dropped_duplicate_is_known_by_its_outcome(rows: list[Row]) -> None:
    outcomes = [(row["outcome"], row["sequence_number"]) for row in rows if row["message_id"] == "only"]
    assert outcomes.count(("duplicate", 0)) == 1


def test_files_are_in_the_directory_of_their_day(scene: tuple[BrokerProcess, dict[str, Any]]) -> None:
    for path in Path(scene[0].data / "journal").glob("day=*/*.parquet"):
        days = {row["at"].strftime("day=%Y-%m-%d") for row in journals.exported_in(path)}
        assert days == {path.parent.name}
