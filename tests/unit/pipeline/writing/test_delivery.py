"""Messages are sent until they are taken, set aside or given up; nothing is counted that was not acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from twinbus.client.errors import ClientError, of_several
from twinbus.client.messages import build, read
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.writing.delivery import Delivery, NotReadyError, Sent
from twinbus.pipeline.writing.outgoing import Outgoing, Round
from twinbus.pipeline.writing.sink_options import DEAD_LETTER, SinkOptions

TAKEN = None
LATER = ClientError("com.microsoft:server-busy", "busy")
REFUSED = ClientError("amqp:not-found", "no such queue")


class FakeRoute:
    """Takes everything, unless it is told what to answer; `answers` are used up one for each message."""

    def __init__(self, answers: Sequence[ClientError | None] = (), largest: int | None = None) -> None:
        self.answers = list(answers)
        self.largest = largest
        self.closed_for: int = 0
        self.taken: list[tuple[str, str]] = []
        self.kept: dict[str, list[bytes]] = {}
        self.answer: Callable[[str], ClientError | None] = lambda path: None

    async def ready(self, path: str) -> int | None:
        if self.closed_for:
            self.closed_for -= 1
            raise NotReadyError("not there")
        return self.largest

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        failed = {}
        for at, payload in enumerate(payloads):
            error = self.answer(path) or (self.answers.pop(0) if self.answers else TAKEN)
            if error is None:
                self.taken.append((path, read(payload).message_id or ""))
                self.kept.setdefault(path, []).append(payload)
            else:
                failed[at] = error
        if failed:
            raise of_several(failed, len(payloads))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def messages(count: int, path: str = "orders") -> Round:
    return {path: [Outgoing(n, path, f"m{n}", build(b"x", message_id=f"m{n}")) for n in range(count)]}


def deliver(route: FakeRoute, some: Round, **options: object) -> Sent:
    clock = Clock()
    settings = SinkOptions(send_timeout_s=10.0, **options)  # type: ignore[arg-type]
    return asyncio.run(_deliver(Delivery(route, settings, lambda: clock.now, clock.sleep), some))


async def _deliver(delivery: Delivery, some: Round) -> Sent:
    try:
        return await delivery.send(some)
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


def test_what_is_acknowledged_is_counted_by_destination() -> None:
    sent = deliver(FakeRoute(), messages(3) | messages(2, "invoices"))
    assert sent.messages == {"orders": 3, "invoices": 2}
    assert sent.bytes == sum(
        len(each.payload) for some in (messages(3), messages(2)) for each in next(iter(some.values()))
    )


def test_only_what_was_not_taken_is_sent_again() -> None:
    route = FakeRoute([TAKEN, LATER, TAKEN])
    assert deliver(route, messages(3)).messages == {"orders": 3}
    assert [message_id for _, message_id in route.taken] == ["m0", "m2", "m1"]


def test_a_destination_that_cannot_be_reached_yet_is_waited_for() -> None:
    route = FakeRoute()
    route.closed_for = 3
    assert deliver(route, messages(1)).messages == {"orders": 1}


def test_the_task_fails_when_the_time_is_over() -> None:
    route = FakeRoute()
    route.answer = lambda path: LATER
    with pytest.raises(PipelineError, match=r"'orders' did not take 2 of 2 messages within 10 s \(sendTimeout\): busy"):
        deliver(route, messages(2))


def test_what_is_refused_for_good_fails_the_task_and_names_the_row() -> None:
    with pytest.raises(
        PipelineError, match=r"'orders' refuses row 1 \(message 'm1'\) for good: amqp:not-found: no such queue"
    ):
        deliver(FakeRoute([TAKEN, REFUSED]), messages(2))


def test_what_is_refused_for_good_is_set_aside_with_its_destination_and_reason() -> None:
    route = FakeRoute()
    route.answer = lambda path: REFUSED if path == "orders" else None
    sent = deliver(route, messages(2), on_unroutable=DEAD_LETTER, dead_letter_queue="aside")
    assert (sent.messages, sent.set_aside) == ({}, 2)
    aside = read(route.kept["aside"][0])
    assert aside.message_id == "m0"
    assert aside.properties == {
        "x-ms-path": "orders",
        "DeadLetterReason": "RefusedByDestination",
        "DeadLetterErrorDescription": "amqp:not-found: no such queue",
    }


def test_when_the_queue_for_the_refused_refuses_the_task_fails() -> None:
    route = FakeRoute()
    route.answer = lambda path: REFUSED
    with pytest.raises(PipelineError, match="'aside' refuses row 0"):
        deliver(route, messages(1), on_unroutable=DEAD_LETTER, dead_letter_queue="aside")


def test_what_is_too_large_is_named_with_its_size_and_nothing_of_its_lot_is_sent() -> None:
    route = FakeRoute(largest=100)
    some = messages(1)
    some["orders"].append(Outgoing(7, "orders", "big", build(b"x" * 200, message_id="big")))
    with pytest.raises(PipelineError, match=r"Row 7 \(message 'big'\) is too large for 'orders': encoded it has 2\d\d"):
        deliver(route, some)
    assert route.taken == []


def test_one_destination_that_fails_ends_the_others() -> None:
    route = FakeRoute()
    route.answer = lambda path: LATER if path == "slow" else REFUSED
    with pytest.raises(PipelineError, match="refuses row 0"):
        deliver(route, messages(1, "slow") | messages(1, "gone"))
