"""Sending to a partitioned entity: each unit goes to the fragment of its key, or without one to the next in turn.

What a fragment's store is asked to do with units, queue and topic say; here is only decided where they go, and what
happens when a fragment is full or its store is not there: a unit with a key is refused, one without goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from twinbus.entities.entity import SendResult, Sent
from twinbus.entities.fragments import Fragment
from twinbus.entities.partitions import fragment_of, key_of, key_of_unit, outer_number
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Origin
from twinbus.store.commands import Publish, Send

# Bytes that wait for one store's commit: above the first, units without a key go elsewhere; above the second, the
# others are refused.
CROWDED_BYTES = 32 * 1024 * 1024
BUSY_BYTES = 64 * 1024 * 1024

Units = list[list[Incoming]]


class _Lot:
    """Units of one send that are on their way to one fragment."""

    __slots__ = ("free", "positions", "tried", "units")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.units: Units = []
        self.free: list[bool] = []  # Whether each may go elsewhere.
        self.tried: set[int] = set()

    def add(self, position: int, unit: list[Incoming], free: bool) -> None:
        self.positions.append(position)
        self.units.append(unit)
        self.free.append(free)


class Spreader:
    """Sends to the fragments of one entity."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        by_id: Callable[[], bool],
        command: Callable[[Fragment, Units, Origin], Send | Publish],
    ) -> None:
        """`by_id`: whether a message's id is its key; `command`: what a fragment's store is asked to do."""
        self._fragments = fragments
        self._by_id = by_id
        self._command = command
        self._turn = 0

    @property
    def pending_bytes(self) -> int:
        """What waits where the least waits: while that is little, senders need not be held up."""
        return min((f.store.pending_bytes for f in self._fragments if f.store.is_available), default=0)

    def send(self, units: Units, origin: Origin, done: Sent) -> None:
        """Send units; `done` is told of each fragment's as soon as they are durable."""
        by_id = self._by_id()
        open_fragments = self._open_fragments()
        lots: dict[int, _Lot] = {}
        refused: list[tuple[int, BusError]] = []
        for position, unit in enumerate(units):
            try:
                key = key_of_unit(unit, by_id)
                index = self._next_of(open_fragments) if key is None else self._pinned(key)
            except BusError as error:
                refused.append((position, error))
                continue
            lots.setdefault(index, _Lot()).add(position, unit, key is None)
        if refused:
            done([error for _, error in refused], [position for position, _ in refused])
        for index, lot in lots.items():
            self._submit(index, lot, origin, done)

    def fragment_for(self, message: Incoming, near: int, number: int) -> Fragment:
        """The fragment of a message's key; without one, a fragment on the store that it comes from, if there is one.

        A message that is transferred once more must meet the store that remembers it, so turns do not count here.
        """
        key = key_of(message, self._by_id())
        if key is not None:
            return self._fragments[fragment_of(key)]
        there = [fragment for fragment in self._fragments if fragment.store_index == near] or self._fragments
        return there[number % len(there)]

    def _open_fragments(self, but: Collection[int] = ()) -> list[int]:
        """The fragments that units without a key may go to."""
        there = [f for f in self._fragments if f.store.is_available and f.index not in but]
        return [f.index for f in there if f.store.pending_bytes <= CROWDED_BYTES] or [f.index for f in there]

    def _next_of(self, fragments: list[int]) -> int:
        if not fragments:
            raise _unavailable("None of the entity's messaging stores is available.")
        self._turn += 1
        return fragments[self._turn % len(fragments)]

    def _pinned(self, key: str) -> int:
        index = fragment_of(key)
        store = self._fragments[index].store
        if not store.is_available:
            raise _unavailable(f"The messaging store of fragment {index}, to which the message's key leads, is down.")
        if store.pending_bytes > BUSY_BYTES:
            raise BusError(
                Fault.SERVER_BUSY, "The messaging store has more to write than it can take; retry in ten seconds."
            )
        return index

    def _submit(self, index: int, lot: _Lot, origin: Origin, done: Sent) -> None:
        fragment = self._fragments[index]
        command = self._command(fragment, lot.units, origin)
        command.done = partial(self._stored, index, lot, origin, done)
        fragment.store.submit(command)

    def _stored(self, index: int, lot: _Lot, origin: Origin, done: Sent, command: Send | Publish) -> None:
        results: list[SendResult] = command.result if command.error is None else [command.error] * len(lot.units)
        lot.tried.add(index)
        elsewhere = self._open_fragments(lot.tried) if any(map(_may_go_elsewhere, results)) else []
        moving = _Lot()
        moving.tried = lot.tried
        told: list[SendResult] = []
        positions: list[int] = []
        for position, unit, free, result in zip(lot.positions, lot.units, lot.free, results, strict=True):
            if free and elsewhere and _may_go_elsewhere(result):
                moving.add(position, unit, True)
            else:
                told.append(_outer(index, result))
                positions.append(position)
        if told:
            done(told, positions)
        if moving.positions:
            self._submit(self._next_of(elsewhere), moving, origin, done)

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Send one unit and wait."""
        return await self._send_one(messages, key_of_unit(messages, self._by_id()), origin)

    async def _send_one(self, messages: list[Incoming], key: str | None, origin: Origin) -> list[int]:
        tried: set[int] = set()
        while True:
            index = self._next_of(self._open_fragments(tried)) if key is None else self._pinned(key)
            fragment = self._fragments[index]
            result: SendResult
            try:
                command = await fragment.store.call(self._command(fragment, [messages], origin))
                result = _outer(index, command.result[0])
            except BusError as error:
                result = error
            if not isinstance(result, BusError):
                return result
            tried.add(index)
            if key is not None or not _may_go_elsewhere(result) or not self._open_fragments(tried):
                raise result

    async def schedule(
        self, messages: list[Incoming], origin: Origin, cancel: Callable[[list[int]], Awaitable[None]]
    ) -> list[int]:
        """Send messages of any keys, those of one key as one unit; numbers in their order.

        When a later unit is refused, the earlier ones are cancelled.
        """
        by_id = self._by_id()
        by_key: dict[str | None, list[int]] = {}
        for position, message in enumerate(messages):
            by_key.setdefault(key_of(message, by_id), []).append(position)
        numbers = [0] * len(messages)
        try:
            for key, positions in by_key.items():
                taken = await self._send_one([messages[each] for each in positions], key, origin)
                for position, number in zip(positions, taken, strict=True):
                    numbers[position] = number
        except BusError:
            if made := [number for number in numbers if number]:
                with suppress(BusError):
                    await cancel(made)
            raise
        return numbers


def _outer(index: int, result: SendResult) -> SendResult:
    return result if isinstance(result, BusError) else [outer_number(index, number) for number in result]


def _may_go_elsewhere(result: SendResult) -> bool:
    """Whether a unit without a key may be sent to another fragment: this one is full, or certainly did nothing."""
    if not isinstance(result, BusError):
        return False
    return result.fault is Fault.QUOTA_EXCEEDED or (result.fault is Fault.STORE_UNAVAILABLE and result.is_definite)


def _unavailable(text: str) -> BusError:
    return BusError(Fault.STORE_UNAVAILABLE, text, definite=True)
