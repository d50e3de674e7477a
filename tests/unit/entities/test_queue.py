"""A queue: what its description decides, how sends are answered, and how the store numbers it."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.entities.queue import Queue, settings_of
from twinbus.model.address import SubQueue
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts, Incoming, Origin
from twinbus.store.commands import Count, QueueSettings, Send

ORIGIN = Origin("connection-1")
PLAIN = Incoming(b"record", "m1")
IN_SESSION = Incoming(b"record", "m2", session_id="s")
BUSY = BusError(Fault.SERVER_BUSY, "busy")


def queue(store: Any, **settings: Any) -> Queue:
    return Queue(5, QueueDescription(name="orders", **settings), 2, store)


class TestSettings:
    def test_the_store_is_told_what_it_enforces(self) -> None:
        description = QueueDescription(
            name="orders",
            lock_duration_ms=7_000,
            max_delivery_count=3,
            dead_letter_on_expiration=True,
            requires_duplicate_detection=True,
            duplicate_window_ms=20_000,
            requires_session=True,
            max_size_mb=2048,
        )
        assert settings_of(description) == QueueSettings(
            lock_duration_ms=7_000,
            max_delivery_count=3,
            dead_letter_on_expiry=True,
            duplicate_window_ms=20_000,
            requires_session=True,
            max_size_bytes=2048 * 1024 * 1024,
        )

    def test_a_window_without_duplicate_detection_is_no_window(self) -> None:
        description = QueueDescription(name="orders", duplicate_window_ms=20_000)
        assert settings_of(description).duplicate_window_ms == 0

    def test_an_unlimited_life_is_no_ceiling(self, store: Any) -> None:
        assert queue(store).ttl_ceiling_ms is None
        assert queue(store, default_ttl_ms=5_000).ttl_ceiling_ms == 5_000


class TestMailboxes:
    def test_each_queue_of_an_entity_has_its_number(self, store: Any) -> None:
        entity = queue(store)
        assert entity.number() == 20
        assert [entity.mailbox(each).number for each in SubQueue] == [20, 21, 22]

    def test_a_mailbox_is_made_once(self, store: Any) -> None:
        entity = queue(store)
        assert entity.mailboxes == {}
        assert entity.mailbox(SubQueue.DEAD_LETTER) is entity.mailbox(SubQueue.DEAD_LETTER)
        assert entity.mailbox().store_index == 2


class TestSend:
    def test_each_unit_gets_its_answer_when_the_commit_is_durable(self, store: Any) -> None:
        answers: list[Any] = []
        units = [[PLAIN], [PLAIN, IN_SESSION], [PLAIN]]
        queue(store).send(units, ORIGIN, answers.append)
        sent = store.take(Send)
        assert (sent.queue, sent.origin, sent.units) == (20, ORIGIN, units)
        assert answers == []
        store.finish(sent, [[1], [2, 3], BUSY])
        assert answers == [[[1], [2, 3], BUSY]]

    def test_a_failure_of_the_whole_is_the_answer_to_each_unit(self, store: Any) -> None:
        answers: list[Any] = []
        queue(store).send([[PLAIN], [PLAIN]], ORIGIN, answers.append)
        store.finish(store.take(Send), error=BUSY)
        assert answers == [[BUSY, BUSY]]

    async def test_one_unit_returns_its_numbers(self, store: Any) -> None:
        store.answers[Send] = [[4, 5]]
        assert await queue(store).send_unit([PLAIN, PLAIN], ORIGIN) == [4, 5]

    async def test_a_refused_unit_raises_its_reason(self, store: Any) -> None:
        store.answers[Send] = [BUSY]
        with pytest.raises(BusError) as refused:
            await queue(store).send_unit([PLAIN], ORIGIN)
        assert refused.value is BUSY

    def test_what_waits_for_a_commit_is_told(self, store: Any) -> None:
        store.pending_bytes = 1234
        assert queue(store).pending_bytes == 1234


class TestChecks:
    @pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
    def test_a_queue_disabled_for_senders_refuses_them(self, store: Any, status: EntityStatus) -> None:
        with pytest.raises(BusError, match=f"'orders' is {status.value}") as refused:
            queue(store, status=status).check_may_send()
        assert refused.value.fault is Fault.ENTITY_DISABLED

    @pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
    def test_a_queue_disabled_for_receivers_refuses_them(self, store: Any, status: EntityStatus) -> None:
        with pytest.raises(BusError, match=f"'orders' is {status.value}") as refused:
            queue(store, status=status).check_may_receive()
        assert refused.value.fault is Fault.ENTITY_DISABLED

    def test_an_open_door_lets_pass(self, store: Any) -> None:
        queue(store, status=EntityStatus.RECEIVE_DISABLED).check_may_send()
        queue(store, status=EntityStatus.SEND_DISABLED).check_may_receive()

    def test_a_queue_with_sessions_refuses_a_batch_in_which_one_message_has_none(self, store: Any) -> None:
        entity = queue(store, requires_session=True)
        entity.check_messages([IN_SESSION, IN_SESSION])
        with pytest.raises(BusError, match="requires sessions") as refused:
            entity.check_messages([IN_SESSION, PLAIN])
        assert refused.value.fault is Fault.NOT_ALLOWED

    def test_a_queue_without_sessions_takes_both(self, store: Any) -> None:
        queue(store).check_messages([IN_SESSION, PLAIN])


class TestCounts:
    async def test_they_are_asked_of_the_store(self, store: Any) -> None:
        store.answers[Count] = Counts(active=3, dead_letter=1)
        assert await queue(store).counts() == Counts(active=3, dead_letter=1)
        assert store.take(Count).queue == 20
