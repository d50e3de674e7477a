"""Sending to fragments: by key or in turn, answered by each store for itself, and round a store that is down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from twinbus.entities.fragments import Fragment, fragments_of
from twinbus.entities.partitioned import PartitionedQueue
from twinbus.entities.partitions import FRAGMENTS, fragment_of
from twinbus.entities.spreading import BUSY_BYTES, CROWDED_BYTES
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Origin
from twinbus.store.commands import CancelScheduled, Send

ORIGIN = Origin("connection-1")
BASE = 32
NOTHING_DONE = BusError(Fault.STORE_UNAVAILABLE, "down", definite=True)
FULL = BusError(Fault.QUOTA_EXCEEDED, "full")
PERHAPS_DONE = BusError(Fault.STORE_UNAVAILABLE, "the disk failed")


def queue(stores: list[Any], **settings: Any) -> PartitionedQueue:
    fragments: tuple[Fragment, ...] = fragments_of(BASE, [n % len(stores) for n in range(FRAGMENTS)], stores)
    return PartitionedQueue(BASE, QueueDescription(name="q", partitioned=True, **settings), fragments)


def plain(count: int) -> list[list[Incoming]]:
    return [[Incoming(b"", f"m{n}")] for n in range(count)]


def keyed(key: str) -> list[Incoming]:
    return [Incoming(b"", f"id of {key}", partition_key=key)]


def sent(stores: list[Any]) -> list[tuple[Any, Send]]:
    return [(store, command) for store in stores for command in store.all(Send)]


def fragment(command: Send) -> int:
    return command.queue // 4 - BASE


class Answers:
    """What came of each unit, in the order in which it became known."""

    def __init__(self) -> None:
        self.results: dict[int, Any] = {}

    def __call__(self, results: list[Any], which: Sequence[int] | None = None, /) -> None:
        for position, result in zip(range(len(results)) if which is None else which, results, strict=True):
            assert position not in self.results
            self.results[position] = result


class TestChoice:
    def test_units_without_a_key_go_round_all_fragments(self, stores: list[Any]) -> None:
        queue(stores).send(plain(32), ORIGIN, Answers())
        assert Counter(fragment(command) for _, command in sent(stores)) == dict.fromkeys(range(FRAGMENTS), 1)
        assert {len(command.units) for _, command in sent(stores)} == {2}

    def test_a_key_leads_to_its_fragment(self, stores: list[Any]) -> None:
        queue(stores).send([keyed(key) for key in "abcdef"], ORIGIN, Answers())
        found = {unit[0].partition_key: fragment(command) for _, command in sent(stores) for unit in command.units}
        assert found == {key: fragment_of(key) for key in "abcdef"}

    def test_a_fragment_is_asked_on_its_store(self, stores: list[Any]) -> None:
        queue(stores).send(plain(16), ORIGIN, Answers())
        assert all(fragment(command) % 4 == stores.index(store) for store, command in sent(stores))

    def test_under_duplicate_detection_the_id_is_the_key(self, stores: list[Any]) -> None:
        queue(stores, requires_duplicate_detection=True).send([[Incoming(b"", "id")]], ORIGIN, Answers())
        ((_, command),) = sent(stores)
        assert fragment(command) == fragment_of("id")

    def test_units_that_cannot_be_placed_are_refused_alone(self, stores: list[Any]) -> None:
        answers = Answers()
        mixed = [Incoming(b"", "1", partition_key="a"), Incoming(b"", "2", partition_key="b")]
        queue(stores).send([keyed("a"), mixed], ORIGIN, answers)
        assert list(answers.results) == [1]
        assert answers.results[1].fault is Fault.NOT_ALLOWED
        assert len(sent(stores)) == 1


class TestAnswers:
    def test_each_store_answers_for_itself_with_numbers_that_name_the_fragment(self, stores: list[Any]) -> None:
        answers = Answers()
        queue(stores).send([keyed("a"), keyed("b"), keyed("a")], ORIGIN, answers)
        of_b, of_a = sorted(sent(stores), key=lambda each: len(each[1].units))
        of_a[0].finish(of_a[1], [[7], [8]])
        assert answers.results == {0: [fragment_of("a") << 48 | 7], 2: [fragment_of("a") << 48 | 8]}
        of_b[0].finish(of_b[1], [FULL])
        assert answers.results[1] is FULL

    def test_what_does_not_fit_into_a_full_fragment_goes_to_another_unless_it_is_pinned(
        self, stores: list[Any]
    ) -> None:
        answers = Answers()
        entity = queue(stores)
        entity.send(plain(1), ORIGIN, answers)
        ((store, command),) = sent(stores)
        store.finish(command, [FULL])
        assert answers.results == {}
        ((other, moved),) = sent(stores)
        assert (moved.units, fragment(moved) != fragment(command)) == (command.units, True)
        other.finish(moved, [[3]])
        assert answers.results == {0: [fragment(moved) << 48 | 3]}


class TestStoresThatAreNotThere:
    def test_units_without_a_key_go_to_the_others(self, stores: list[Any]) -> None:
        stores[1].is_available = False
        queue(stores).send(plain(24), ORIGIN, Answers())
        assert stores[1].commands == []
        found = Counter(fragment(command) for _, command in sent(stores) for _ in command.units)
        assert found == {index: 2 for index in range(FRAGMENTS) if index % 4 != 1}

    def test_a_pinned_unit_is_refused_and_nothing_was_done(self, stores: list[Any]) -> None:
        answers = Answers()
        stores[fragment_of("a") % 4].is_available = False
        queue(stores).send([keyed("a")], ORIGIN, answers)
        assert sent(stores) == []
        assert (answers.results[0].fault, answers.results[0].is_definite) == (Fault.STORE_UNAVAILABLE, True)

    def test_what_a_store_refuses_without_doing_anything_goes_elsewhere_unless_it_is_pinned(
        self, stores: list[Any]
    ) -> None:
        answers = Answers()
        entity = queue(stores)
        entity.send([keyed("a"), *plain(16)], ORIGIN, answers)
        store = stores[fragment_of("a") % 4]
        (command,) = [each for each in store.all(Send) if fragment(each) == fragment_of("a")]
        assert len(command.units) == 2
        before = len(sent(stores))
        store.finish(command, error=NOTHING_DONE)
        assert answers.results == {0: NOTHING_DONE}
        assert len(sent(stores)) == before
        (moved,) = [each for _, each in sent(stores) if each.units == [command.units[1]]]
        assert fragment(moved) != fragment_of("a")

    def test_what_may_have_been_stored_is_not_sent_again(self, stores: list[Any]) -> None:
        answers = Answers()
        queue(stores).send(plain(1), ORIGIN, answers)
        ((store, command),) = sent(stores)
        store.finish(command, error=PERHAPS_DONE)
        assert answers.results == {0: PERHAPS_DONE}
        assert sent(stores) == []

    def test_when_every_fragment_refuses_so_does_the_entity(self, stores: list[Any]) -> None:
        answers = Answers()
        queue(stores).send(plain(1), ORIGIN, answers)
        tried = set()
        while pending := sent(stores):
            ((store, command),) = pending
            tried.add(fragment(command))
            store.finish(command, error=NOTHING_DONE)
        assert answers.results == {0: NOTHING_DONE}
        assert tried == set(range(FRAGMENTS))

    def test_without_any_store_everything_is_refused(self, stores: list[Any]) -> None:
        for store in stores:
            store.is_available = False
        answers = Answers()
        queue(stores).send(plain(2), ORIGIN, answers)
        assert [error.fault for error in answers.results.values()] == [Fault.STORE_UNAVAILABLE] * 2


class TestSlowStores:
    def test_a_crowded_store_gets_nothing_without_a_key_and_does_not_hold_up_senders(self, stores: list[Any]) -> None:
        stores[2].pending_bytes = CROWDED_BYTES + 1
        entity = queue(stores)
        assert entity.pending_bytes == 0
        entity.send(plain(16), ORIGIN, Answers())
        assert stores[2].commands == []

    def test_a_pinned_unit_is_refused_when_its_store_has_too_much_to_write(self, stores: list[Any]) -> None:
        stores[fragment_of("a") % 4].pending_bytes = BUSY_BYTES + 1
        answers = Answers()
        queue(stores).send([keyed("a")], ORIGIN, answers)
        assert answers.results[0].fault is Fault.SERVER_BUSY


class TestWaiting:
    async def test_one_unit_returns_its_numbers(self, stores: list[Any]) -> None:
        for store in stores:
            store.answers[Send] = [[5, 6]]
        unit = [*keyed("a"), *keyed("a")]
        assert await queue(stores).send_unit(unit, ORIGIN) == [fragment_of("a") << 48 | n for n in (5, 6)]

    async def test_one_unit_goes_round_a_store_that_refuses(self, stores: list[Any]) -> None:
        for store in stores:
            store.answers[Send] = NOTHING_DONE
        stores[3].answers[Send] = [[1]]
        (number,) = await queue(stores).send_unit([Incoming(b"", "m")], ORIGIN)
        assert (number >> 48) % 4 == 3

    async def test_one_unit_goes_round_a_fragment_that_is_full(self, stores: list[Any]) -> None:
        for store in stores:
            store.answers[Send] = [FULL]
        stores[1].answers[Send] = [[1]]
        (number,) = await queue(stores).send_unit([Incoming(b"", "m")], ORIGIN)
        assert (number >> 48) % 4 == 1

    async def test_one_unit_with_a_key_does_not(self, stores: list[Any]) -> None:
        stores[fragment_of("a") % 4].answers[Send] = NOTHING_DONE
        with pytest.raises(BusError, match="down"):
            await queue(stores).send_unit(keyed("a"), ORIGIN)
        assert len(sent(stores)) == 1

    async def test_scheduled_messages_of_several_keys_go_each_to_its_own_fragment(self, stores: list[Any]) -> None:
        for store in stores:
            store.answers[Send] = [[9]]
        messages = [keyed(key)[0] for key in "abc"]
        numbers = await queue(stores).schedule(messages, ORIGIN)
        assert numbers == [fragment_of(key) << 48 | 9 for key in "abc"]

    async def test_when_one_cannot_be_scheduled_the_others_are_cancelled(self, stores: list[Any]) -> None:
        first, second = "a", next(key for key in "bcdefgh" if fragment_of(key) % 4 != fragment_of("a") % 4)
        stores[fragment_of(first) % 4].answers[Send] = [[9]]
        stores[fragment_of(second) % 4].answers[Send] = NOTHING_DONE
        with pytest.raises(BusError, match="down"):
            await queue(stores).schedule([*keyed(first), *keyed(second)], ORIGIN)
        cancelled = stores[fragment_of(first) % 4].take(CancelScheduled)
        assert (cancelled.queue // 4 - BASE, cancelled.sequence_numbers) == (fragment_of(first), [9])
