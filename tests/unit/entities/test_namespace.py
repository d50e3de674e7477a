"""The namespace: creating, changing and deleting queues, in order and at the same time, and waking who waits."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from twinbus.entities.feed import Feed
from twinbus.entities.namespace import Namespace
from twinbus.entities.policies import RULES_KEY
from twinbus.entities.queue import Queue, settings_of
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.entity import QueueDescription, from_document
from twinbus.model.errors import BusError, Fault
from twinbus.model.hybrid import HybridConnectionDescription
from twinbus.model.message import Origin
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.store.commands import (
    AcceptSession,
    Acquire,
    Configure,
    Create,
    Drop,
    DropLocks,
    EntityName,
    Hints,
    Introduce,
    Note,
    Record,
)
from twinbus.store.quarantine import Held, SetAside
from twinbus.wire import view

ORIGIN = Origin("connection-1")
READER = AuthorizationRule("reader", "a", "b", Rights.LISTEN)
WRITER = AuthorizationRule("writer", "c", "d", Rights.SEND)


@pytest.fixture
def namespace(clock: Any, stores: list[Any], catalog: Any) -> Namespace:
    return Namespace("test", clock, stores, catalog, view)


def described(name: str, **settings: Any) -> QueueDescription:
    return QueueDescription(name=name, **settings)


async def started(coroutine: Any) -> asyncio.Task[Any]:
    """A task that has run as far as it could."""
    task = asyncio.create_task(coroutine)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


class TestCreate:
    async def test_a_queue_is_durable_in_its_store_and_in_the_catalog_before_it_is_visible(
        self, namespace: Namespace, stores: list[Any], catalog: Any, clock: Any
    ) -> None:
        stores[0].open.clear()
        task = await started(namespace.create_queue(described("Orders", lock_duration_ms=7_000)))
        assert namespace.find("orders") is None
        assert catalog.rows == {}
        stores[0].open.set()
        queue = await task
        asked = stores[0].take(Create)
        assert (asked.queue, asked.settings) == (queue.number(), settings_of(queue.description))
        assert catalog.log == ["take 1", "put 1"]
        assert namespace.queue("Orders") is queue
        assert (queue.description.created_at_ms, queue.description.updated_at_ms) == (clock.now, clock.now)

    async def test_a_name_is_found_whatever_its_case(self, namespace: Namespace) -> None:
        queue = await namespace.create_queue(described("Orders/EU"))
        assert namespace.queue("oRDERS/eu") is queue
        assert queue.name == "Orders/EU"

    async def test_a_name_that_exists_is_refused_whatever_its_case(self, namespace: Namespace) -> None:
        await namespace.create_queue(described("orders"))
        with pytest.raises(BusError, match="'ORDERS' already exists") as refused:
            await namespace.create_queue(described("ORDERS"))
        assert refused.value.fault is Fault.ENTITY_EXISTS

    async def test_of_two_at_once_one_wins(self, namespace: Namespace) -> None:
        results = await asyncio.gather(
            namespace.create_queue(described("orders")),
            namespace.create_queue(described("Orders")),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [Queue, BusError]
        assert len(namespace.queues()) == 1

    async def test_an_invalid_description_touches_nothing(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        with pytest.raises(BusError, match="MaxDeliveryCount"):
            await namespace.create_queue(described("orders", max_delivery_count=0))
        assert catalog.log == []
        assert [store.commands for store in stores] == [[]] * 4

    async def test_after_a_failure_of_the_store_the_name_is_free_and_the_number_is_not_used_again(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        stores[0].answers[Create] = BusError(Fault.STORE_UNAVAILABLE, "down")
        with pytest.raises(BusError, match="down"):
            await namespace.create_queue(described("orders"))
        assert namespace.find("orders") is None
        assert catalog.rows == {}
        del stores[0].answers[Create]
        assert (await namespace.create_queue(described("orders"))).id == 2

    async def test_after_a_failure_of_the_catalog_the_name_is_free(self, namespace: Namespace, catalog: Any) -> None:
        catalog.fails = True
        with pytest.raises(OSError, match="no space left"):
            await namespace.create_queue(described("orders"))
        assert namespace.find("orders") is None
        catalog.fails = False
        assert await namespace.create_queue(described("orders")) is namespace.find("orders")

    async def test_queues_are_spread_evenly_over_the_stores(self, namespace: Namespace, stores: list[Any]) -> None:
        for n in range(8):
            await namespace.create_queue(described(f"q{n}"))
        assert [queue.store_index for queue in namespace.queues()] == [0, 1, 2, 3, 0, 1, 2, 3]
        assert all(queue.store is stores[queue.store_index] for queue in namespace.queues())

    async def test_queues_created_at_the_same_time_are_spread_too(self, namespace: Namespace) -> None:
        await asyncio.gather(*(namespace.create_queue(described(f"q{n}")) for n in range(8)))
        assert sorted(queue.store_index for queue in namespace.queues()) == [0, 0, 1, 1, 2, 2, 3, 3]

    async def test_a_deleted_queue_makes_room_on_its_store(self, namespace: Namespace) -> None:
        for n in range(4):
            await namespace.create_queue(described(f"q{n}"))
        await namespace.delete_entity("q2")
        assert (await namespace.create_queue(described("again"))).store_index == 2

    async def test_a_namespace_is_full_at_its_limit(
        self, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "ENTITIES_MAX", 2)
        await namespace.create_queue(described("a"))
        await namespace.create_queue(described("b"))
        with pytest.raises(BusError, match="at most 2 entities") as refused:
            await namespace.create_queue(described("c"))
        assert refused.value.fault is Fault.QUOTA_EXCEEDED

    async def test_queues_are_listed_by_name(self, namespace: Namespace) -> None:
        for name in ("b", "C", "a"):
            await namespace.create_queue(described(name))
        assert [queue.name for queue in namespace.queues()] == ["a", "b", "C"]

    def test_an_unknown_name_is_said_in_the_words_that_clients_look_for(self, namespace: Namespace) -> None:
        with pytest.raises(BusError, match="The messaging entity 'ghost' could not be found") as refused:
            namespace.queue("ghost")
        assert refused.value.fault is Fault.ENTITY_NOT_FOUND


class TestUpdate:
    async def test_the_catalog_and_the_store_learn_the_new_description(
        self, namespace: Namespace, stores: list[Any], catalog: Any, clock: Any
    ) -> None:
        queue = await namespace.create_queue(described("Orders"))
        created = clock.now
        clock.now += 5_000
        told: list[Queue] = []
        namespace.on_changed.append(told.append)
        changed = await namespace.update_queue(described("orders", lock_duration_ms=60_000))
        assert changed is queue
        assert queue.description == described(
            "Orders", lock_duration_ms=60_000, created_at_ms=created, updated_at_ms=clock.now
        )
        asked = stores[0].take(Configure)
        assert (asked.queue, asked.settings.lock_duration_ms) == (queue.number(), 60_000)
        assert json.loads(catalog.rows[1].document)["lock_duration_ms"] == 60_000
        assert told == [queue]

    async def test_holders_of_links_are_told_that_policies_may_have_changed(self, namespace: Namespace) -> None:
        await namespace.create_queue(described("orders", authorization_rules=(READER,)))
        told: list[bool] = []
        namespace.on_rules_changed.append(lambda: told.append(True))
        await namespace.update_queue(described("orders"))
        assert told == [True]
        assert namespace.rules_for("orders") == []

    async def test_what_is_fixed_cannot_change_and_nothing_happens(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        queue = await namespace.create_queue(described("orders"))
        before, log = queue.description, list(catalog.log)
        with pytest.raises(BusError, match="RequiresSession is fixed"):
            await namespace.update_queue(described("orders", requires_session=True))
        assert queue.description is before
        assert catalog.log == log
        assert stores[0].all(Configure) == []

    async def test_a_queue_that_does_not_exist_cannot_be_updated(self, namespace: Namespace) -> None:
        with pytest.raises(BusError) as refused:
            await namespace.update_queue(described("ghost"))
        assert refused.value.fault is Fault.ENTITY_NOT_FOUND

    async def test_an_update_the_catalog_could_not_keep_has_not_happened(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        queue = await namespace.create_queue(described("orders"))
        before = queue.description
        catalog.fails = True
        with pytest.raises(OSError, match="no space left"):
            await namespace.update_queue(described("orders", max_delivery_count=3))
        assert queue.description == before
        assert stores[0].all(Configure) == []


class TestDelete:
    async def test_a_queue_is_invisible_first_then_forgotten_then_freed(
        self, namespace: Namespace, stores: list[Any], catalog: Any
    ) -> None:
        queue = await namespace.create_queue(described("orders"))
        told: list[Queue] = []
        namespace.on_deleted.append(told.append)
        catalog.open.clear()
        task = await started(namespace.delete_entity("ORDERS"))
        assert namespace.find("orders") is None
        assert told == [queue]
        assert stores[0].all(Drop) == []
        catalog.open.set()
        await task
        assert catalog.rows == {}
        assert stores[0].take(Drop).queue == queue.number()

    async def test_its_name_is_taken_until_it_is_gone_and_free_afterwards(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        first = await namespace.create_queue(described("orders"))
        stores[0].open.clear()
        task = await started(namespace.delete_entity("orders"))
        with pytest.raises(BusError) as refused:
            await namespace.create_queue(described("orders"))
        assert refused.value.fault is Fault.ENTITY_EXISTS
        stores[0].open.set()
        await task
        second = await namespace.create_queue(described("orders"))
        assert second.id == first.id + 1

    async def test_of_two_deletions_at_once_one_finds_nothing(self, namespace: Namespace) -> None:
        await namespace.create_queue(described("orders"))
        results = await asyncio.gather(
            namespace.delete_entity("orders"), namespace.delete_entity("orders"), return_exceptions=True
        )
        assert results[0] is None
        assert isinstance(results[1], BusError)
        assert results[1].fault is Fault.ENTITY_NOT_FOUND

    async def test_an_update_under_way_does_not_bring_a_deleted_queue_back(
        self, namespace: Namespace, catalog: Any
    ) -> None:
        await namespace.create_queue(described("orders"))
        catalog.open.clear()
        update = await started(namespace.update_queue(described("orders", max_delivery_count=3)))
        deletion = await started(namespace.delete_entity("orders"))
        catalog.open.set()
        await asyncio.gather(update, deletion, return_exceptions=True)
        assert namespace.find("orders") is None
        assert catalog.rows == {}


class TestRules:
    async def test_policies_of_the_namespace_and_of_the_entity_count(self, namespace: Namespace) -> None:
        await namespace.set_rules([WRITER])
        await namespace.create_queue(described("orders", authorization_rules=(READER,)))
        assert namespace.rules_for("Orders") == [WRITER, READER]
        assert namespace.rules_for("ghost") == [WRITER]

    async def test_they_are_kept_and_everyone_is_told(self, namespace: Namespace, catalog: Any) -> None:
        told: list[tuple[AuthorizationRule, ...]] = []
        namespace.on_rules_changed.append(lambda: told.append(namespace.rules))
        await namespace.set_rules([READER, WRITER])
        assert [rule["name"] for rule in json.loads(catalog.meta[RULES_KEY])] == ["reader", "writer"]
        assert told == [(READER, WRITER)]

    async def test_thirteen_are_too_many(self, namespace: Namespace, catalog: Any) -> None:
        rules = [replace(READER, name=f"rule-{n}") for n in range(13)]
        with pytest.raises(BusError, match="At most 12"):
            await namespace.set_rules(rules)
        assert namespace.rules == ()
        assert catalog.log == []


class TestLoad:
    async def test_a_restart_finds_everything_as_it_was(
        self, namespace: Namespace, clock: Any, stores: list[Any], catalog: Any
    ) -> None:
        await namespace.set_rules([READER])
        for name in ("a", "B", "c"):
            await namespace.create_queue(described(name, authorization_rules=(WRITER,)))
        await namespace.delete_entity("a")
        again = Namespace("test", clock, stores, catalog, view)
        again.load(catalog.meta, catalog.rows.values())
        assert [(q.id, q.store_index, q.description) for q in again.queues()] == [
            (q.id, q.store_index, q.description) for q in namespace.queues()
        ]
        assert again.rules == (READER,)
        assert (await again.create_queue(described("d"))).id == 4

    def test_an_empty_catalog_is_an_empty_namespace(self, namespace: Namespace) -> None:
        namespace.load({}, [])
        assert namespace.queues() == []
        assert namespace.rules == ()

    async def test_what_a_store_holds_and_the_catalog_does_not_is_set_aside(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        for n in range(5):
            await namespace.create_queue(described(f"q{n}"))
        for store in stores:
            store.commands.clear()
        for index, held in enumerate([[1, 5, 7], [2, 1], [3], [4]]):
            namespace.sort_out(index, [Held(number) for number in held])
        aside = [[number for command in store.commands for number in command.entities] for store in stores]
        assert aside == [[7], [1], [], []]
        assert all(type(command) is SetAside for store in stores for command in store.commands)


class TestHints:
    @pytest.fixture
    async def queue(self, namespace: Namespace, stores: list[Any]) -> Queue:
        queue = await namespace.create_queue(described("orders"))
        stores[0].commands.clear()
        return queue

    def waiting(self, feed: Feed, store: Any, receiver: Any) -> None:
        feed.pull(receiver)
        store.finish(store.take(Acquire), [])

    @pytest.mark.parametrize("sub_queue", [SubQueue.MAIN, SubQueue.DEAD_LETTER])
    async def test_a_hint_wakes_the_receivers_of_that_queue_only(
        self, namespace: Namespace, stores: list[Any], queue: Queue, receiver: Any, sub_queue: SubQueue
    ) -> None:
        for each in (SubQueue.MAIN, SubQueue.DEAD_LETTER):
            self.waiting(queue.mailbox(each).feed, stores[0], receiver(1))
        namespace.hinted(Hints(ready={queue.number(sub_queue)}))
        assert stores[0].take(Acquire).queue == queue.number(sub_queue)

    async def test_a_session_that_became_free_wakes_who_waits_for_one(
        self, namespace: Namespace, stores: list[Any], queue: Queue, receiver: Any
    ) -> None:
        link = receiver(1, session="s", holder=9)
        queue.mailbox().feed.seat(link)
        self.waiting(queue.mailbox().feed, stores[0], link)
        namespace.hinted(Hints(sessions={queue.number(): {"s"}}))
        assert stores[0].take(Acquire).session == "s"
        assert stores[0].all(AcceptSession) == []

    async def test_a_session_lock_that_ended_is_told_to_its_holder(
        self, namespace: Namespace, queue: Queue, receiver: Any
    ) -> None:
        link = receiver(1, session="s", holder=9)
        queue.mailbox().feed.seat(link)
        namespace.hinted(Hints(lost_sessions=[(queue.number(), "s", 9)]))
        assert [(e.fault, e.text) for e in link.errors] == [
            (Fault.SESSION_LOCK_LOST, "The lock of session 's' has ended.")
        ]

    async def test_hints_about_what_nobody_asked_for_or_is_gone_are_ignored(
        self, namespace: Namespace, stores: list[Any], queue: Queue
    ) -> None:
        number = queue.number()
        namespace.hinted(Hints({number, 4000}, {number: {"s"}, 4000: {"s"}}, [(4000, "s", 1)]))
        await namespace.delete_entity("orders")
        stores[0].commands.clear()
        namespace.hinted(Hints({number}, {number: {"s"}}, [(number, "s", 1)]))
        assert stores[0].commands == []


class TestNotes:
    async def test_they_are_kept_until_the_flush_and_go_to_the_store_of_their_queue(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        queues = [await namespace.create_queue(described(f"q{n}")) for n in range(2)]
        for store in stores:
            store.commands.clear()
        for queue in queues:
            namespace.note(queue.mailbox(), "peek", "ok", ORIGIN, count=3)
        namespace.note(queues[0].mailbox(), "send", "refused", ORIGIN, message_id="m", size=9, tracking_id="t")
        assert [store.commands for store in stores] == [[]] * 4
        namespace.flush_notes()
        assert stores[0].take(Record).notes == [
            Note("peek", queues[0].number(), "ok", count=3, connection="connection-1"),
            Note("send", queues[0].number(), "refused", "m", 9, 1, "connection-1", "t"),
        ]
        assert stores[1].take(Record).notes == [
            Note("peek", queues[1].number(), "ok", count=3, connection="connection-1")
        ]
        namespace.flush_notes()
        assert [store.commands for store in stores] == [[]] * 4

    async def test_what_concerns_no_entity_goes_to_the_first_store(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        namespace.note_connection("disconnect", "1500", ORIGIN)
        namespace.flush_notes()
        assert stores[0].take(Record).notes == [Note("disconnect", 0, "1500", connection="connection-1")]


class TestNames:
    """What the journal's readers call an entity is kept by the store that journals it."""

    async def test_an_entity_is_made_with_its_name(self, namespace: Namespace, stores: list[Any]) -> None:
        await namespace.create_queue(described("Orders"))
        assert stores[0].take(Create).name == EntityName("Orders", "queue")

    async def test_a_store_is_told_the_names_of_what_it_has(self, namespace: Namespace, stores: list[Any]) -> None:
        queue = await namespace.create_queue(described("orders"))
        for store in stores:
            store.told.clear()
        for index in range(4):
            namespace.introduce(index)
        (told,) = stores[0].told
        name = told.names[queue.id]
        assert name._replace(document=None) == EntityName("orders", "queue")
        assert from_document(json.loads(name.document)) == queue.description
        assert [store.told for store in stores[1:]] == [[]] * 3

    async def test_a_hybrid_connection_is_named_with_its_first_note_and_forgotten_with_it(
        self, namespace: Namespace, stores: list[Any]
    ) -> None:
        hybrid = await namespace.hybrids.create(HybridConnectionDescription(name="relayed"))
        store = stores[hybrid.store_index]
        for _ in range(2):
            namespace.note_relayed(hybrid, "relay_listen", "ok", ORIGIN, tracking_id="t")
        assert [command.names for command in store.all(Introduce)] == [{hybrid.id: EntityName("relayed", "hybrid")}]
        store.commands.clear()
        await namespace.hybrids.delete("relayed")
        assert store.take(Introduce).gone == [hybrid.id]


def test_a_connection_that_broke_off_loses_its_locks_in_every_store(namespace: Namespace, stores: list[Any]) -> None:
    namespace.drop_locks(7, ORIGIN)
    assert [store.take(DropLocks).owner for store in stores] == [7] * 4
