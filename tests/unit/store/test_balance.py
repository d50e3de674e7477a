"""The conservation line of a store: every way in which a copy comes and goes, by its name."""

from __future__ import annotations

from twinbus.model.message import Origin
from twinbus.store.balance import Scales
from twinbus.store.commands import Note, QueueSettings
from twinbus.store.journal import JournalPage
from twinbus.store.volatile import Entity, Memory

CLIENT, FORWARD, API, JOB = Origin("c1", "sdk"), Origin("", "forward"), Origin("http", "api"), Origin("http", "job")


def columns(count: int) -> tuple[list[str], list[int], list[int], list[int]]:
    return [f"m{at}" for at in range(count)], list(range(1, count + 1)), [0] * count, [1] * count


def test_each_way_has_its_name_and_what_makes_no_copy_has_none() -> None:
    memory = Memory(1024)
    entity = Entity(1, QueueSettings())
    memory.add(entity)
    entity.queues[0].active = 10
    scales = Scales(memory, 5)
    page = JournalPage()
    for origin in (CLIENT, FORWARD, API, JOB):
        page.add("send", 4, origin, columns(2))
    page.add("schedule", 4, CLIENT, columns(3))
    page.copies([8, 12], CLIENT, (16, 1), (["m"] * 3, [1, 1], [1, 1, 1]))
    page.topics.add(16)
    for queue, outcome in ((16, ""), (4, "duplicate"), (4, "ping")):
        page.add("send", queue, CLIENT, columns(5), outcome)
    page.note(Note("send", 4, outcome="refused"), CLIENT)
    for operation in ("receive", "deadletter", "activate", "abandon", "expire_lock", "drop"):
        page.add(operation, 4, CLIENT, columns(7))
    page.add("ttl_expire", 4, CLIENT, columns(1), "deadletter")
    scales.take(page)
    entity.queues[0].active += 17
    balance = scales.balance(memory)
    assert balance.created == {"fanned_out": 6, "redriven": 4, "scheduled": 3, "accepted": 2, "forwarded": 2}
    assert (balance.ended, balance.held_at_start, balance.since_ms, balance.delta) == ({}, 10, 5, 0)


def test_what_ended_is_told_and_what_is_missing_shows() -> None:
    memory = Memory(1024)
    entity = Entity(1, QueueSettings())
    memory.add(entity)
    entity.queues[0].active, entity.queues[1].active = 20, 3
    scales = Scales(memory, 0)
    page = JournalPage()
    page.add("complete", 4, CLIENT, columns(2))
    page.add("complete", 4, FORWARD, columns(1))
    page.add("complete", 4, CLIENT, columns(1), "published")
    page.add("forward", 4, FORWARD, columns(1), "8")
    page.add("forward", 5, API, columns(1), "4")
    page.add("ttl_expire", 4, CLIENT, columns(1), "removed")
    for operation in ("receive_delete", "delete", "cancel", "damaged"):
        page.add(operation, 4, CLIENT, columns(1))
    page.dropped = 4
    scales.take(page)
    entity.queues[0].active, entity.queues[1].active = 7, 1
    balance = scales.balance(memory)
    assert balance.ended == {
        "dropped": 4, "completed": 2, "forwarded": 2, "published": 1, "redriven": 1, "expired": 1,
        "received_deleted": 1, "purged": 1, "cancelled": 1, "damaged": 1,
    }  # fmt: skip
    assert balance.held == {"active": 7, "deferred": 0, "scheduled": 0, "dead": 1, "transfer_dead": 0}
    assert balance.delta == 0
    entity.queues[0].active -= 1
    assert scales.balance(memory).delta == -1
    entity.dropped = True
    assert sum(scales.balance(memory).held.values()) == 0
