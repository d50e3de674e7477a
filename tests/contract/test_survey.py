"""A survey: all entities at one moment, and the sums of what was committed."""

from __future__ import annotations

from contract.conftest import QUEUE, Bus
from twinbus.model.message import Outcome
from twinbus.store.commands import Drop, Send
from twinbus.store.surveying import Stand, Survey

OTHER = 2 * QUEUE


def surveyed(bus: Bus) -> dict[int, Stand]:
    asked = Survey(queue=0)
    bus.commit(asked)
    return asked.result


def test_each_entity_tells_its_counts_its_locks_and_its_oldest_message(bus: Bus) -> None:
    bus.create(OTHER)
    began = bus.now
    bus.send("a", "b", "c", "d")
    bus.pass_ms(1_000)
    bus.send("e")
    first, second, third = bus.receive(3)
    bus.complete(first)
    bus.settle(Outcome.DEAD_LETTER, second)
    bus.settle(Outcome.DEFER, third)
    bus.receive(1)

    stand, empty = surveyed(bus)[QUEUE >> 2], surveyed(bus)[OTHER >> 2]
    assert (stand.counts.active, stand.counts.deferred, stand.counts.dead_letter) == (2, 1, 1)
    assert (stand.locked, stand.oldest_ms) == (1, began)
    assert (sum(empty.counts), empty.locked, empty.oldest_ms) == (0, 0, None)


def test_the_oldest_is_the_oldest_that_can_be_received(bus: Bus) -> None:
    bus.send("a")
    bus.pass_ms(1_000)
    bus.send("b")
    bus.complete(*bus.receive(1))
    assert surveyed(bus)[QUEUE >> 2].oldest_ms == bus.now


def test_what_is_sent_in_the_same_commit_is_seen_and_what_is_dropped_is_not(bus: Bus) -> None:
    bus.create(OTHER)
    bus.do(Drop(queue=OTHER))
    sent = Send(queue=QUEUE, units=[])
    asked = Survey(queue=0)
    bus.send("a")
    bus.commit(sent, asked)
    assert asked.result.keys() == {QUEUE >> 2}
    assert asked.result[QUEUE >> 2].counts.active == 1


def test_sums_count_what_is_committed(bus: Bus) -> None:
    before = bus.store.sums.events.copy()
    bus.send("a", "b")
    bus.complete(*bus.receive(1))
    assert bus.store.sums.events - before == {"stored": 2, "delivered": 1, "completed": 1}
