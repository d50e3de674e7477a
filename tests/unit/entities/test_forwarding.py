"""Forwarding: what is sent, completed and forgotten in which order, and what happens when something is in the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twinbus.entities.feed import ACQUIRE_MAX
from twinbus.entities.forwarding import FORWARD, RETRY_MS
from twinbus.entities.namespace import Namespace
from twinbus.entities.partitions import outer_number
from twinbus.entities.queue import settings_of
from twinbus.model import limits
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming, Outcome, Settlement
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.store.commands import (
    Acquire,
    Complete,
    Configure,
    Create,
    Drop,
    Forget,
    Hints,
    Publish,
    Send,
    Settle,
    Transfer,
)
from twinbus.store.quarantine import Held
from twinbus.wire import view
from twinbus.wire.message import read
from twinbus.wire.outgoing import build

UNAVAILABLE = BusError(Fault.STORE_UNAVAILABLE, "The store is down.")


def queue(name: str, **settings: Any) -> QueueDescription:
    return QueueDescription(name=name, **settings)


def record(message_id: str = "m", **fields: Any) -> bytes:
    (incoming,) = read(build(b"body", message_id=message_id, **fields), 0, ttl_ceiling_ms=None, new_id=str)
    return incoming.record


def message(number: int, made: bytes | None = None, **fields: Any) -> Delivered:
    """A locked message as a store hands it out; the token's ninth byte is zero."""
    token = b"epoch..." + number.to_bytes(8, "big")
    values = {"token": token, "locked_until_ms": 1_030_000, **fields}
    return Delivered(number, made or record(f"m{number}"), f"m{number}", 0, 0, **values)


class World:
    """A namespace on fake stores, and forwarding driven by hand."""

    def __init__(self, clock: Any, stores: list[Any], catalog: Any) -> None:
        self.clock = clock
        self.stores = stores
        self.catalog = catalog
        self.namespace = Namespace("test", clock, stores, catalog, view)

    async def queue(self, name: str, **settings: Any) -> Any:
        made = await self.namespace.create_queue(queue(name, **settings))
        for store in self.stores:
            store.commands = [command for command in store.commands if not isinstance(command, Create)]
        return made

    def deliver(self, entity: Any, *messages: Delivered) -> None:
        """Answer the acquire of an entity that forwards."""
        entity.store.finish(entity.store.take(Acquire), list(messages))


@pytest.fixture
def world(clock: Any, stores: list[Any], catalog: Any) -> World:
    return World(clock, stores[:2], catalog)


@pytest.fixture
def near(clock: Any, stores: list[Any], catalog: Any) -> World:
    """A world in which everything is on one store."""
    return World(clock, stores[:1], catalog)


class TestOnOneStore:
    async def test_messages_are_sent_with_their_locks_and_then_the_next_are_taken(self, near: World) -> None:
        end = await near.queue("end")
        source = await near.queue("source", forward_to="end")
        store = near.stores[0]
        asked = store.all(Acquire)[0]
        assert (asked.queue, asked.limit, asked.origin) == (source.number(), ACQUIRE_MAX, FORWARD)
        first, second = message(1), message(2)
        near.deliver(source, first, second)
        sent = store.take(Send)
        assert (sent.queue, sent.origin) == (end.number(), FORWARD)
        assert sent.transfers == [Transfer(source.number(), 1, first.token), Transfer(source.number(), 2, second.token)]
        assert [[each.message_id for each in unit] for unit in sent.units] == [["m1"], ["m2"]]
        assert store.all(Acquire) == []
        store.finish(sent, [[1], [2]])
        assert [type(command) for command in store.commands] == [Acquire]

    async def test_a_message_whose_lock_was_lost_comes_again_by_itself(self, near: World) -> None:
        await near.queue("end")
        source = await near.queue("source", forward_to="end")
        near.deliver(source, message(1))
        store = near.stores[0]
        store.finish(store.take(Send), [BusError(Fault.LOCK_LOST, "gone")])
        assert [type(command) for command in store.commands] == [Acquire]

    async def test_to_a_topic_it_is_published(self, near: World) -> None:
        topic = await near.namespace.create_topic(TopicDescription(name="t"))
        await near.namespace.create_subscription(SubscriptionDescription(topic="t", name="s"))
        source = await near.queue("source", forward_to="t")
        store = near.stores[0]
        asked = [command for command in store.all(Acquire) if command.queue == source.number()]
        store.finish(asked[0], [message(1)])
        published = store.take(Publish)
        assert published.queue == topic.number()
        assert published.transfers == [Transfer(source.number(), 1, message(1).token)]
        assert len(published.units[0][0].copies) == 1


class TestBetweenStores:
    async def test_send_then_complete_then_forget_then_the_next(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        assert end.store is not source.store
        world.deliver(source, message(1), message(2))
        sent = end.store.take(Send)
        assert sent.transfers == [Transfer(source.number(), 1), Transfer(source.number(), 2)]
        assert source.store.commands == []
        end.store.finish(sent, [[1], [0]])  # The second had arrived before.
        completed = source.store.take(Complete)
        assert (completed.queue, completed.tokens) == (source.number(), [message(1).token, message(2).token])
        assert end.store.commands == []
        source.store.finish(completed, [None, None])
        forgotten = end.store.take(Forget)
        assert (forgotten.queue, forgotten.sequence_numbers) == (source.number(), [1, 2])
        assert [type(command) for command in source.store.commands] == [Acquire]

    async def test_what_could_not_be_completed_is_still_remembered(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1), message(2))
        end.store.finish(end.store.take(Send), [[1], [2]])
        source.store.finish(source.store.take(Complete), [BusError(Fault.LOCK_LOST, "gone"), None])
        assert end.store.take(Forget).sequence_numbers == [2]
        assert len(source.store.all(Acquire)) == 1

    async def test_a_message_whose_lock_is_over_is_not_sent(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1, locked_until_ms=world.clock.now))
        assert end.store.commands == []
        assert len(source.store.all(Acquire)) == 1


class TestWaiting:
    async def test_while_the_destination_is_down_messages_are_given_back_and_tried_later(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        for wait_ms in (RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS):
            world.deliver(source, message(1))
            end.store.finish(end.store.take(Send), error=UNAVAILABLE)
            settled = source.store.take(Settle)
            assert settled.settlements == [Settlement(message(1).token, Outcome.RELEASE)]
            source.store.finish(settled, [None])
            world.namespace.hinted(Hints(ready={source.number()}))
            world.clock.now += wait_ms - 1
            world.namespace.forwarding.retry()
            assert source.store.commands == []
            world.clock.now += 1
            world.namespace.forwarding.retry()
        assert len(source.store.all(Acquire)) == 1

    async def test_when_a_store_returns_it_goes_on_at_once(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1))
        end.store.finish(end.store.take(Send), error=UNAVAILABLE)
        source.store.finish(source.store.take(Settle), [None])
        world.namespace.store_returned(end.store_index, [Held(end.id)])
        assert len(source.store.all(Acquire)) == 1

    async def test_a_success_makes_the_next_wait_short_again(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        for works in (False, False, True, False):
            world.deliver(source, message(1))
            if works:
                end.store.finish(end.store.take(Send), [[1]])
                source.store.finish(source.store.take(Complete), [None])
                end.store.take(Forget)
            else:
                end.store.finish(end.store.take(Send), error=UNAVAILABLE)
                source.store.finish(source.store.take(Settle), [None])
            world.clock.now += RETRY_MS
            world.namespace.forwarding.retry()
            if not works and not source.store.all(Acquire):
                world.clock.now += RETRY_MS
                world.namespace.forwarding.retry()
        assert len(source.store.all(Acquire)) == 1

    async def test_while_the_source_is_down_it_waits(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end")
        source.store.finish(source.store.take(Acquire), error=UNAVAILABLE)
        assert source.store.commands == []
        world.clock.now += RETRY_MS
        world.namespace.forwarding.retry()
        assert len(source.store.all(Acquire)) == 1

    async def test_a_hint_wakes_it_when_there_was_nothing(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source)
        assert source.store.commands == []
        world.namespace.hinted(Hints(ready={source.number()}))
        assert len(source.store.all(Acquire)) == 1


class TestRefusals:
    async def refused(self, world: World, source: Any) -> Settlement:
        settled = source.store.take(Settle)
        source.store.finish(settled, [None])
        assert len(source.store.all(Acquire)) == 1
        [settlement] = settled.settlements
        return settlement

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (Fault.QUOTA_EXCEEDED, "QuotaExceededException"),
            (Fault.MESSAGE_TOO_LARGE, "MessageSizeExceededException"),
            (Fault.NOT_ALLOWED, "InvalidOperationException"),
        ],
    )
    async def test_what_the_destination_refuses_is_set_aside(self, world: World, fault: Fault, reason: str) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1), message(2))
        end.store.finish(end.store.take(Send), [BusError(fault, "why"), [1]])
        settled = source.store.take(Settle)
        assert settled.settlements == [
            Settlement(message(1).token, Outcome.TRANSFER_DEAD_LETTER, reason=reason, description="why")
        ]
        assert source.store.take(Complete).tokens == [message(2).token]

    async def test_a_destination_that_is_gone(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end")
        await world.namespace.delete_entity("end")
        world.deliver(source, message(1))
        settlement = await self.refused(world, source)
        assert settlement.outcome is Outcome.TRANSFER_DEAD_LETTER
        assert settlement.reason == "MessagingEntityNotFoundException"
        assert "'end'" in (settlement.description or "")

    async def test_a_destination_that_goes_while_a_message_is_on_its_way(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1))
        end.store.finish(end.store.take(Send), error=BusError(Fault.ENTITY_DELETED, "The entity was deleted."))
        assert (await self.refused(world, source)).outcome is Outcome.TRANSFER_DEAD_LETTER

    async def test_a_destination_that_is_disabled(self, world: World) -> None:
        await world.queue("end", status=EntityStatus.SEND_DISABLED)
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1))
        assert (await self.refused(world, source)).reason == "MessagingEntityDisabledException"

    async def test_a_message_without_session_to_a_session_queue(self, world: World) -> None:
        end = await world.queue("end", requires_session=True)
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1), message(2, session_id="s"))
        end.store.finish(end.store.take(Send), [[1]])
        settled = source.store.take(Settle)
        assert [each.reason for each in settled.settlements] == ["Session id is null."]

    async def test_after_four_hops_it_is_dead_lettered(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end")
        made = record()
        for _ in range(4):
            made = view.forwarded(message(1, made))
        world.deliver(source, message(1, made))
        settlement = await self.refused(world, source)
        assert (settlement.outcome, settlement.reason) == (Outcome.DEAD_LETTER, "MaxTransferHopCountExceeded")


class TestMessages:
    async def sent(self, world: World, source: Any, end: Any, *messages: Delivered) -> list[Incoming]:
        world.deliver(source, *messages)
        sent = end.store.take(Send)
        return [each for unit in sent.units for each in unit]

    async def test_their_time_to_live_begins_anew_within_the_destinations(self, world: World) -> None:
        end = await world.queue("end", default_ttl_ms=60_000)
        source = await world.queue("source", forward_to="end")
        short, long, none = (record(ttl_ms=ttl) for ttl in (5_000, 90_000, None))
        messages = [message(number, made) for number, made in enumerate((short, long, none), 1)]
        assert [each.ttl_ms for each in await self.sent(world, source, end, *messages)] == [5_000, 60_000, 60_000]

    async def test_session_and_id_stay_and_the_record_has_one_hop_more(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        [incoming] = await self.sent(world, source, end, message(7, session_id="s"))
        assert (incoming.message_id, incoming.session_id, incoming.due_at_ms) == ("m7", "s", None)
        assert incoming.record == view.forwarded(message(7))

    async def test_dead_letters_say_where_they_come_from(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_dead_letters_to="end")
        asked = source.store.take(Acquire)
        assert asked.queue == source.number(1)
        dead = message(1, reason="r", description="d")
        source.store.finish(asked, [dead])
        sent = end.store.take(Send)
        assert sent.transfers == [Transfer(source.number(1), 1)]
        assert sent.units[0][0].record == view.forwarded_dead_letter(dead, "source")

    async def test_using_a_destination_keeps_it_from_being_idle(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.clock.now += 5
        world.deliver(source, message(1, locked_until_ms=2_000_000))
        assert end.accessed_at_ms == world.clock.now


class TestPartitions:
    async def test_a_message_without_a_key_stays_on_its_store(self, world: World) -> None:
        end = await world.queue("end", partitioned=True)
        source = await world.queue("source", forward_to="end")
        world.deliver(source, message(1), message(2))
        sends = source.store.all(Send)
        assert len({send.queue for send in sends}) == 2
        assert all(transfer.token for send in sends for transfer in send.transfers)
        assert {send.queue >> 2 for send in sends} <= {
            each.entity for each in end.fragments if each.store_index == source.store_index
        }

    async def test_a_message_with_a_key_goes_to_its_fragment(self, world: World) -> None:
        end = await world.queue("end", partitioned=True)
        source = await world.queue("source", forward_to="end")
        found = set()
        for number in range(1, 3):
            world.deliver(source, message(number, session_id="session"))
            [(store, send)] = [(store, send) for store in world.stores for send in store.all(Send)]
            found.add((send.queue, store is source.store))
            store.finish(send, [[1]])
            for completed in source.store.all(Complete):
                source.store.finish(completed, [None])
        assert len(found) == 1
        assert found.pop()[0] >> 2 in {each.entity for each in end.fragments}

    async def test_out_of_a_partitioned_queue_numbers_and_tokens_are_those_of_the_fragment(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source", forward_to="end", partitioned=True)
        [far] = [store for store in world.stores if store is not end.store]
        fragment = next(each for each in source.fragments if each.store is far)
        [asked] = [each for each in far.all(Acquire) if each.queue == fragment.number(0)]
        far.finish(asked, [message(5)])
        sent = end.store.take(Send)
        assert sent.transfers == [Transfer(fragment.number(0), 5)]
        told = view.forwarded(message(5)._replace(sequence_number=outer_number(fragment.index, 5)))
        assert sent.units[0][0].record == told
        end.store.finish(sent, [[1]])
        completed = far.take(Complete)
        assert (completed.queue, completed.tokens) == (fragment.number(0), [message(5).token])
        far.finish(completed, [None])
        forgotten = end.store.take(Forget)
        assert (forgotten.queue, forgotten.sequence_numbers) == (fragment.number(0), [5])


class TestLife:
    async def test_what_the_store_dead_letters_by_count_is_not_what_is_being_forwarded(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end", max_delivery_count=3)
        assert settings_of(source.description).max_delivery_count == limits.DELIVERY_COUNT_MAX
        assert source.description.max_delivery_count == 3

    async def test_it_ends_when_forwarding_is_taken_away(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end")
        await world.namespace.update_queue(replace(source.description, forward_to=None))
        source.store.take(Configure)
        world.deliver(source, message(1))
        assert source.store.take(Settle).settlements == [Settlement(message(1).token, Outcome.RELEASE)]
        assert source.store.commands == []

    async def test_it_begins_when_forwarding_is_set(self, world: World) -> None:
        end = await world.queue("end")
        source = await world.queue("source")
        assert source.store.commands == []
        await world.namespace.update_queue(replace(source.description, forward_to="END"))
        assert source.description.forward_to == "end"
        source.store.take(Configure)
        world.deliver(source, message(1))
        assert end.store.take(Send).transfers == [Transfer(source.number(), 1)]

    async def test_it_rests_while_its_entity_is_disabled(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end", status=EntityStatus.DISABLED)
        assert source.store.commands == []
        await world.namespace.update_queue(replace(source.description, status=EntityStatus.ACTIVE))
        assert len(source.store.all(Acquire)) == 1

    async def test_it_ends_with_its_entity(self, world: World) -> None:
        await world.queue("end")
        source = await world.queue("source", forward_to="end")
        world.deliver(source)
        await world.namespace.delete_entity("source")
        source.store.take(Drop)
        world.namespace.forwarding.retry_all()
        assert source.store.commands == []

    async def test_after_a_start_it_begins_when_all_destinations_are_known(
        self, world: World, clock: Any, catalog: Any
    ) -> None:
        await world.queue("source")
        await world.queue("end")
        await world.namespace.update_queue(
            replace(world.namespace.queue("source").description, forward_to="end"),
        )
        for store in world.stores:
            store.commands.clear()
        again = Namespace("test", clock, world.stores, catalog, view)
        again.load({}, catalog.rows.values())
        source, end = again.queue("source"), again.queue("end")
        world.deliver(source, message(1))
        assert len(end.store.all(Send)) == 1
        assert source.store.all(Settle) == []
