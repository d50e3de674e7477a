"""Many messages through one sender: in lots, within bounds, and with the books of what was accepted and what was not.

Where messages come from and what people are told is `send`'s business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from twinbus.client import ClientError, Sender
from twinbus.client.endpoint import to_its_end
from twinbus.client.messages import BATCH_FORMAT, SINGLE_FORMAT, batch

LOT_MESSAGES, LOT_BYTES = 100, 1024 * 1024
UNDER_WAY_MESSAGES, UNDER_WAY_BYTES = 2_000, 8 * 1024 * 1024
# What a batch may hold, so that it is a message of the size that every tier takes.
BATCH_MESSAGES, BATCH_BYTES = 1_000, 240_000
BATCH_OVERHEAD_BYTES = 8  # A section around each message.


class Numbered(NamedTuple):
    """An encoded message and the number by which people know it: of its line, or of the message."""

    number: int
    payload: bytes


@dataclass(slots=True)
class Books:
    """What became of the messages."""

    accepted: int = 0
    refused: dict[int, ClientError] = field(default_factory=dict)
    unknown: dict[int, ClientError] = field(default_factory=dict)  # It is not known whether they arrived.


class _Lot(NamedTuple):
    numbers: list[list[int]]  # For each transfer, the messages in it.
    size: int
    messages: int
    done: asyncio.Future[None]


class Sending:
    """Sends messages as they are handed in. `batches` puts several into one transfer, accepted or refused as one."""

    def __init__(self, sender: Sender, *, batches: bool, progress: Callable[[int], None]) -> None:
        self.books = Books()
        self._sender = sender
        self._batches = batches
        self._progress = progress
        self._waiting: list[Numbered] = []
        self._size = 0
        self._under_way: deque[_Lot] = deque()

    @property
    def failed(self) -> bool:
        """Whether anything went wrong so far."""
        return bool(self.books.refused or self.books.unknown)

    @property
    def lost(self) -> ClientError | None:
        """Why nothing can be sent any more, if that is so."""
        return self._sender.error

    async def add(self, message: Numbered) -> None:
        """Hands a message in; waits while too much is under way."""
        messages, size = (BATCH_MESSAGES, BATCH_BYTES) if self._batches else (LOT_MESSAGES, LOT_BYTES)
        added = len(message.payload) + BATCH_OVERHEAD_BYTES
        if self._waiting and (len(self._waiting) >= messages or self._size + added > size):
            await self.flush()
        self._waiting.append(message)
        self._size += added

    async def flush(self) -> None:
        """Sends what was handed in, and waits while too much is under way."""
        if self._waiting:
            await self._send()

    async def stop(self) -> None:
        """Waits for the outcomes of what was sent."""
        await to_its_end(self._settled(0, 0))

    async def _send(self) -> None:
        waiting, size = self._waiting, self._size
        self._waiting, self._size = [], 0
        if self._batches:
            payloads, numbers = [batch(item.payload for item in waiting)], [[item.number for item in waiting]]
        else:
            payloads, numbers = [item.payload for item in waiting], [[item.number] for item in waiting]
        try:
            done = self._sender.send_nowait(payloads, BATCH_FORMAT if self._batches else SINGLE_FORMAT)
        except ClientError as error:
            self._enter(_Lot(numbers, size, len(waiting), asyncio.get_running_loop().create_future()), error)
            return
        self._under_way.append(_Lot(numbers, size, len(waiting), done))
        await self._settled(UNDER_WAY_MESSAGES, UNDER_WAY_BYTES)

    async def _settled(self, messages: int, size: int) -> None:
        """Waits until no more than so much is under way."""
        under_way = self._under_way
        while under_way and (
            sum(lot.messages for lot in under_way) > messages or sum(lot.size for lot in under_way) > size
        ):
            lot = under_way[0]
            error: ClientError | None = None
            try:
                # Whoever is told to stop must not take back what is on its way.
                await asyncio.shield(lot.done)
            except ClientError as problem:
                error = problem
            under_way.popleft()
            self._enter(lot, error)

    def _enter(self, lot: _Lot, error: ClientError | None) -> None:
        failed: dict[int, ClientError] = {}
        if error is not None:
            failed = error.failed or dict.fromkeys(range(len(lot.numbers)), error)
        for position, numbers in enumerate(lot.numbers):
            problem = failed.get(position)
            if problem is None:
                self.books.accepted += len(numbers)
            else:
                book = self.books.refused if problem.definite else self.books.unknown
                book.update(dict.fromkeys(numbers, problem))
        self._progress(lot.messages)


def ranges(numbers: Iterable[int], most: int = 20) -> str:
    """Numbers in few words: `3, 7-9`. No more than `most` pieces are spelt out."""
    pieces = []
    for _, neighbours in groupby(enumerate(sorted(set(numbers))), key=lambda item: item[1] - item[0]):
        run = [number for _, number in neighbours]
        pieces.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    more = len(pieces) - most
    return ", ".join(pieces[:most]) + (f" and {more} more" if more > 0 else "")
