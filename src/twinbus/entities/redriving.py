"""Dead letters sent back to their own queue: each leaves the dead-letter queue and arrives in one transaction.

A subscription's go back to that subscription alone. Those that a filter leaves out are locked while the work goes on,
so that they are met once, and then given back without a counted delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twinbus.entities.entity import AnyEntity
from twinbus.entities.namespace import Namespace
from twinbus.entities.ports import RecordReader, StorePort
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.wanted import DESCRIPTION, REASON, Wanted
from twinbus.model.address import SubQueue
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming, Origin, Outcome, ReceiveMode, Settlement
from twinbus.store.commands import Acquire, Complete, Renew, Send, Settle, Transfer

CHUNK = 200


class Redriven(NamedTuple):
    """How many messages went back, and how many were looked at and stayed."""

    moved: int
    kept: int


Told = Callable[[int, int], None]


def _nobody(moved: int, kept: int) -> None:
    """Nobody wants to know how far it is."""


def _further(told: Told, moved: int, kept: int) -> Told:
    """Tell what comes on top of what there was before."""
    return lambda more, held: told(moved + more, kept + held)


async def redrive(
    namespace: Namespace,
    entity: AnyEntity,
    sub_queue: SubQueue,
    wanted: str | None,
    limit: int | None,
    origin: Origin,
    *,
    told: Told = _nobody,
    removes: bool = False,
) -> Redriven:
    """Send back the dead letters of now, or those that a condition in the rule language chooses.

    With `removes` they are removed instead. `told` hears now and then how many of them moved, and how many stay.
    """
    if not isinstance(entity, Queue | Subscription):
        raise BusError(Fault.ARGUMENT, f"'{entity.path}' is a topic: dead letters are in its subscriptions.")
    if sub_queue is SubQueue.MAIN:
        raise BusError(Fault.ARGUMENT, "Only dead letters can be sent back; they are not in the main queue.")
    choice = Wanted(wanted, namespace.reader)
    moved = kept = 0
    for store, source, destination in entity.lanes(sub_queue):
        left = None if limit is None else limit - moved
        if left == 0:
            break
        lane = _Lane(store, source, None if removes else destination, entity, namespace.reader, namespace.clock, origin)
        done = await lane.run(choice, left, _further(told, moved, kept))
        moved += done.moved
        kept += done.kept
    return Redriven(moved, kept)


class _Lane:
    """One dead-letter queue and the queue that its messages go back to, on one store."""

    def __init__(
        self,
        store: StorePort,
        source: int,
        destination: int | None,
        entity: AnyEntity,
        reader: RecordReader,
        clock: Clock,
        origin: Origin,
    ) -> None:
        self._store = store
        self._source = source
        self._destination = destination
        self._ttl_ceiling_ms = entity.ttl_ceiling_ms
        self._renew_ms = entity.description.lock_duration_ms // 3
        self._reader = reader
        self._clock = clock
        self._origin = origin
        self._held: list[bytes] = []  # Locks of what stays.
        self._renewed_at_ms = 0

    async def run(self, choice: Wanted, limit: int | None, told: Told) -> Redriven:
        try:
            moved = await self._move(choice, limit, told)
        except BaseException:
            for settle in self._giving_back():
                self._store.submit(settle)
            raise
        for settle in self._giving_back():
            await self._store.call(settle)
        return Redriven(moved, len(self._held))

    def _giving_back(self) -> list[Settle]:
        settlements = [Settlement(token, Outcome.RELEASE) for token in self._held]
        return [
            Settle(queue=self._source, origin=self._origin, settlements=settlements[at : at + CHUNK])
            for at in range(0, len(settlements), CHUNK)
        ]

    async def _move(self, choice: Wanted, limit: int | None, told: Told) -> int:
        started_at_ms = self._renewed_at_ms = self._clock.now_ms()
        moved = 0
        while limit is None or moved < limit:
            await self._keep_locks()
            found = await self._acquire(CHUNK if limit is None or not choice.takes_all else min(CHUNK, limit - moved))
            if not found:
                break
            room = len(found) if limit is None else limit - moved
            chosen: list[Delivered] = []
            for message in found:
                # What went back and died again was enqueued after the beginning.
                if message.enqueued_at_ms <= started_at_ms and len(chosen) < room and choice.includes(message):
                    chosen.append(message)
                else:
                    self._held.append(message.token)
            moved += await (self._remove(chosen) if self._destination is None else self._send_back(chosen))
            told(moved, len(self._held))
            if found[-1].enqueued_at_ms > started_at_ms:
                break
        return moved

    async def _acquire(self, limit: int) -> list[Delivered]:
        command = Acquire(queue=self._source, origin=self._origin, limit=limit, mode=ReceiveMode.PEEK_LOCK, owner=0)
        return (await self._store.call(command)).result

    async def _keep_locks(self) -> None:
        now_ms = self._clock.now_ms()
        if self._held and now_ms - self._renewed_at_ms >= self._renew_ms:
            self._renewed_at_ms = now_ms
            await self._store.call(Renew(queue=self._source, origin=self._origin, tokens=self._held))

    async def _remove(self, messages: list[Delivered]) -> int:
        tokens = [message.token for message in messages]
        command = await self._store.call(Complete(queue=self._source, origin=self._origin, tokens=tokens))
        return command.result.count(None)

    async def _send_back(self, messages: list[Delivered]) -> int:
        """One transaction; what the queue refuses stays among the dead letters."""
        if not messages:
            return 0
        assert self._destination is not None
        command = Send(
            queue=self._destination,
            origin=self._origin,
            units=[[self._as_new(message)] for message in messages],
            transfers=[Transfer(self._source, message.sequence_number, message.token) for message in messages],
        )
        await self._store.call(command)
        moved = 0
        for message, result in zip(messages, command.result, strict=True):
            if isinstance(result, BusError):
                self._held.append(message.token)
            else:
                moved += 1
        return moved

    def _as_new(self, message: Delivered) -> Incoming:
        record = self._reader.with_overlay(message.record, message.overlay, (REASON, DESCRIPTION))
        ttl_ms = self._reader.ttl_ms(record)
        ceiling_ms = self._ttl_ceiling_ms
        if ttl_ms is None or (ceiling_ms is not None and ceiling_ms < ttl_ms):
            ttl_ms = ceiling_ms
        return Incoming(record, message.message_id, message.session_id, ttl_ms)
