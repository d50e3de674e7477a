"""Bringing dead letters back: the order of the steps, what is left, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from twinbus.client import ClientError, ReceivedMessage
from twinbus.client import redrive as module
from twinbus.client.errors import of_several
from twinbus.client.messages import Message, build, read
from twinbus.client.redrive import DUPLICATE, LOT, OTHER_REASON, Redrive, leaving
from twinbus.model.message import Delivered, Outcome
from twinbus.wire import message as wire

NOW_MS = 1_700_000_000_000


def dead(number: int, reason: str = "broken") -> ReceivedMessage:
    (incoming,) = wire.read(build(b"x", message_id=f"id-{number}"), 0, ttl_ceiling_ms=None, new_id=str)
    told = Delivered(number, incoming.record, f"id-{number}", 1, NOW_MS, reason=reason)
    return ReceivedMessage(number, bytes(16), wire.stamp(told, locked=False))


class Letters:
    """A dead-letter queue and its queue. What is given back comes again, at the head, to whoever asks next."""

    def __init__(self, *letters: ReceivedMessage) -> None:
        self.waiting = list(letters)
        self.held: list[ReceivedMessage] = []
        self.sent: list[Message] = []
        self.log: list[str] = []
        self.links = 0
        self.held_max = 5000
        self.refuses: dict[str, ClientError] = {}
        self.keeps: set[int] = set()

    async def open(self) -> Letters:
        self.links += 1
        return self

    async def receive(self, max_count: int, timeout_s: float | None = None) -> list[ReceivedMessage]:
        room = self.held_max * self.links - len(self.held)
        lot, self.waiting = self.waiting[: min(max_count, room)], self.waiting[min(max_count, room) :]
        self.held += lot
        return lot

    async def settle(self, messages: Sequence[ReceivedMessage], outcome: Outcome = Outcome.COMPLETE) -> None:
        numbers = [message.delivery_id for message in messages]
        self.log.append(f"{outcome.value} {numbers}")
        failed = {
            at: ClientError("com.microsoft:message-lock-lost", "late")
            for at, n in enumerate(numbers)
            if n in self.keeps
        }
        gone = [number for number in numbers if number not in self.keeps]
        self.held = [message for message in self.held if message.delivery_id not in gone]
        if failed:
            raise of_several(failed, len(messages))

    async def send(self, payloads: Sequence[bytes]) -> None:
        found = [read(payload) for payload in payloads]
        self.log.append(f"send {[message.message_id for message in found]}")
        failed = {at: self.refuses[m.message_id or ""] for at, m in enumerate(found) if m.message_id in self.refuses}
        self.sent += [message for at, message in enumerate(found) if at not in failed]
        if failed:
            raise of_several(failed, len(payloads))

    def redrive(self, until: int = 10**6, reason: str | None = None, **options: Any) -> Redrive:
        return Redrive(self.open, self, until=until, leave=leaving(reason, None, NOW_MS), **options)


async def test_a_letter_is_sent_acknowledged_and_only_then_completed() -> None:
    letters = Letters(dead(1), dead(2))
    result = await letters.redrive().run()
    assert letters.log[:2] == ["send ['id-1', 'id-2']", "complete [1, 2]"]
    assert result.moved == 2
    assert letters.held == []
    assert [(message.message_id, message.dead_letter_reason) for message in letters.sent] == [
        ("id-1", None),
        ("id-2", None),
    ]


async def test_what_came_after_the_beginning_is_left_for_the_next_run() -> None:
    letters = Letters(dead(1), dead(2), dead(3))
    result = await letters.redrive(until=2).run()
    assert (result.moved, result.left) == (2, {})
    assert letters.log[-1] == "release [3]"


async def test_letters_with_another_reason_are_held_to_the_end_and_given_back() -> None:
    letters = Letters(dead(1, "other"), dead(2), dead(3, "other"))
    result = await letters.redrive(reason="BROKEN").run()
    assert (result.moved, result.left) == (1, {OTHER_REASON: 2})
    assert letters.log == ["send ['id-2']", "complete [2]", "release [1, 3]"]


async def test_more_may_be_left_than_one_link_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_MAX", LOT)
    letters = Letters(*[dead(number, "other") for number in range(1, 4 * LOT)], dead(4 * LOT))
    letters.held_max = 2 * LOT
    result = await letters.redrive(reason="broken").run()
    assert (result.moved, result.left[OTHER_REASON]) == (1, 4 * LOT - 1)
    assert letters.links > 2
    assert letters.held == []


async def test_a_letter_that_comes_again_ends_the_run_instead_of_going_round() -> None:
    letters = Letters(dead(1, "other"))
    original = letters.receive

    async def again(max_count: int, timeout_s: float | None = None) -> list[ReceivedMessage]:
        return await original(max_count) or [dead(1, "other")]

    letters.receive = again  # type: ignore[method-assign]
    result = await letters.redrive(until=5, reason="broken").run()
    assert (result.left[OTHER_REASON], result.seen_to) == (1, 1)


async def test_no_more_than_the_limit() -> None:
    letters = Letters(*[dead(number) for number in range(1, 300)])
    result = await letters.redrive().run(limit=150)
    assert result.moved == 150
    assert len(letters.waiting) == 149


async def test_what_the_queue_refuses_stays_dead_and_ends_the_run() -> None:
    letters = Letters(*[dead(number) for number in range(1, 2 * LOT)])
    letters.refuses["id-2"] = ClientError("amqp:resource-limit-exceeded", "full")
    result = await letters.redrive().run()
    assert (result.moved, result.refused, result.doubled) == (LOT - 1, [2], [])
    assert result.error is not None
    assert result.error.text == "full"
    assert "release [2]" in letters.log


async def test_what_may_have_arrived_is_told_apart_from_what_has_not() -> None:
    letters = Letters(dead(1), dead(2), dead(3))
    letters.refuses["id-1"] = ClientError("twinbus:connection-lost", "gone")
    letters.keeps = {3}
    result = await letters.redrive().run()
    assert (result.moved, result.refused, sorted(result.doubled)) == (1, [], [1, 3])


async def test_a_link_that_is_gone_before_the_send_has_refused_everything() -> None:
    letters = Letters(dead(1), dead(2))

    async def refuse(payloads: Sequence[bytes]) -> None:
        raise ClientError("twinbus:link-closed", "gone", definite=True)

    letters.send = refuse  # type: ignore[method-assign]
    result = await letters.redrive().run()
    assert (result.moved, result.refused) == (0, [1, 2])
    assert not any(entry.startswith("complete") for entry in letters.log)


async def test_whoever_is_told_to_stop_finishes_the_lot_and_gives_the_rest_back() -> None:
    letters = Letters(dead(1, "other"), dead(2))
    sending, go_on = asyncio.Event(), asyncio.Event()
    original = letters.send

    async def slowly(payloads: Sequence[bytes]) -> None:
        sending.set()
        await go_on.wait()
        await original(payloads)

    letters.send = slowly  # type: ignore[method-assign]
    redrive = letters.redrive(reason="broken")
    task = asyncio.create_task(redrive.run())
    await sending.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert letters.log == ["send ['id-2']", "complete [2]", "release [1]"]
    assert redrive.result.moved == 1


async def test_new_ids_are_given_when_asked_for() -> None:
    letters = Letters(dead(1))
    await letters.redrive(new_id=lambda: "fresh").run()
    assert [message.message_id for message in letters.sent] == ["fresh"]


async def test_progress_is_told() -> None:
    done: list[int] = []
    await Letters(*[dead(number) for number in range(1, 151)]).redrive(progress=done.append).run()
    assert done == [100, 50]


@pytest.mark.parametrize(
    ("age_ms", "window_ms", "why"),
    [
        (60_000, None, None),
        (60_000, 600_000, DUPLICATE),
        (602_000, 600_000, DUPLICATE),  # The clocks may differ.
        (606_000, 600_000, None),
    ],
)
def test_what_the_queue_would_take_for_a_duplicate_is_left(age_ms: int, window_ms: int | None, why: str | None) -> None:
    message = Message(message_id="id", enqueued_at_ms=NOW_MS - age_ms)
    assert leaving(None, window_ms, NOW_MS)(message) == why


def test_a_letter_without_a_reason_has_another_one() -> None:
    assert leaving("broken", None, NOW_MS)(Message()) == OTHER_REASON
