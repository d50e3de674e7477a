"""Many messages through one sender: lots, bounds and books."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from twinbus.cli import sending as module
from twinbus.cli.sending import Numbered, Sending, ranges
from twinbus.client import ClientError
from twinbus.client.errors import of_several
from twinbus.client.messages import BATCH_FORMAT, build

FULL = ClientError("amqp:resource-limit-exceeded", "full")
GONE = ClientError("twinbus:connection-lost", "gone")


class Sender:
    """Takes lots and settles them when it is told to, or at once."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.lots: list[tuple[Sequence[bytes], int]] = []
        self.futures: list[asyncio.Future[None]] = []
        self.at_once = at_once
        self.error: ClientError | None = None
        self.refuses: dict[int, ClientError] = {}  # By the number of the transfer, from 0.

    def send_nowait(self, payloads: Sequence[bytes], message_format: int = 0) -> asyncio.Future[None]:
        if self.error is not None:
            raise self.error
        before = sum(len(lot) for lot, _ in self.lots)
        self.lots.append((payloads, message_format))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        failed = {at: self.refuses[before + at] for at in range(len(payloads)) if before + at in self.refuses}
        if failed:
            future.set_exception(of_several(failed, len(payloads)))
        elif self.at_once:
            future.set_result(None)
        return future


def sending(sender: Sender, batches: bool = False, progress: Any = lambda count: None) -> Sending:
    return Sending(sender, batches=batches, progress=progress)  # type: ignore[arg-type]


async def add(work: Sending, count: int, size: int = 10) -> None:
    for number in range(1, count + 1):
        await work.add(Numbered(number, build(b"x" * size)))
    await work.flush()


async def test_messages_go_in_lots_and_in_order() -> None:
    sender, done = Sender(), []
    work = sending(sender, progress=done.append)
    await add(work, 250)
    await work.stop()
    assert [len(lot) for lot, _ in sender.lots] == [100, 100, 50]
    assert work.books.accepted == 250
    assert sum(done) == 250
    assert not work.failed


async def test_a_lot_has_a_bound_of_bytes() -> None:
    sender = Sender()
    await add(sending(sender), 10, size=300_000)
    assert [len(lot) for lot, _ in sender.lots] == [3, 3, 3, 1]


async def test_no_more_than_the_bound_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNDER_WAY_MESSAGES", 250)
    sender = Sender(at_once=False)
    work = sending(sender)
    adding = asyncio.create_task(add(work, 1000))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(sender.lots) == 3
    sender.futures[0].set_result(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(sender.lots) == 4
    sender.at_once = True
    for future in sender.futures[1:]:
        future.set_result(None)
    await adding
    await work.stop()
    assert work.books.accepted == 1000


async def test_refused_messages_are_known_by_their_numbers() -> None:
    sender = Sender()
    sender.refuses = {1: FULL, 150: FULL, 199: GONE}
    work = sending(sender)
    await add(work, 300)
    await work.stop()
    assert work.books.accepted == 297
    assert list(work.books.refused) == [2, 151]
    assert list(work.books.unknown) == [200]
    assert work.failed


async def test_a_batch_is_accepted_or_refused_as_one() -> None:
    sender = Sender()
    sender.refuses = {1: FULL}
    work = sending(sender, batches=True)
    await add(work, 10, size=60_000)
    await work.stop()
    assert [(len(lot), message_format) for lot, message_format in sender.lots] == [(1, BATCH_FORMAT)] * 4
    assert all(len(lot[0]) <= 262_144 for lot, _ in sender.lots)
    assert list(work.books.refused) == [4, 5, 6]
    assert work.books.accepted == 7


async def test_what_cannot_be_handed_in_any_more_was_certainly_not_sent() -> None:
    sender = Sender()
    sender.error = GONE.but(definite=True)
    work = sending(sender)
    await add(work, 3)
    await work.stop()
    assert work.lost is not None
    assert list(work.books.refused) == [1, 2, 3]


async def test_stopping_waits_for_what_is_under_way_even_when_cancelled() -> None:
    sender = Sender(at_once=False)
    work = sending(sender)
    await add(work, 3)
    stopping = asyncio.create_task(work.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.sleep(0)
    assert not sender.futures[0].cancelled()
    sender.futures[0].set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert work.books.accepted == 3


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "3"), ([9, 7, 8, 3], "3, 7-9"), ([1, 2], "1-2"), (range(0, 50, 2), "0, 2, 4 and 22 more"), ([], "")],
)
def test_numbers_in_few_words(numbers: list[int], text: str) -> None:
    assert ranges(numbers, most=3) == text
