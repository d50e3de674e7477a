"""Dead letters sent back to their own queue: each leaves the dead-letter queue and arrives in one transaction.

A subscription's go back to that subscription alone. Those that a filter leaves out are locked while the work goes on,
so that they are met once, and then given back without a counted delivery.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from twinbus.entities.entity import AnyEntity
from twinbus.entities.namespace import Namespace
from twinbus.entities.ports import RecordReader, StorePort
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.model.address import SubQueue
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming, Origin, Outcome, ReceiveMode, Settlement
from twinbus.rules.description import RuleDescription, SqlFilter
from twinbus.rules.errors import RuleError
from twinbus.rules.matching import CompiledRule, compile_rule
from twinbus.rules.view import MessageView
from twinbus.store.commands import Acquire, Renew, Send, Settle, Transfer

CHUNK = 200
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"


class Redriven(NamedTuple):
    """How many messages went back, and how many were looked at and stayed."""

    moved: int
    kept: int


async def redrive(
    namespace: Namespace, entity: AnyEntity, sub_queue: SubQueue, wanted: str | None, limit: int | None, origin: Origin
) -> Redriven:
    """Send back the dead letters of now, or those that a condition in the rule language chooses."""
    if not isinstance(entity, Queue | Subscription):
        raise BusError(Fault.ARGUMENT, f"'{entity.path}' is a topic: dead letters are in its subscriptions.")
    if sub_queue is SubQueue.MAIN:
        raise BusError(Fault.ARGUMENT, "Only dead letters can be sent back; they are not in the main queue.")
    rule = None if wanted is None else compile_rule(RuleDescription("redrive", SqlFilter(wanted)))
    moved = kept = 0
    for store, source, destination in entity.lanes(sub_queue):
        left = None if limit is None else limit - moved
        if left == 0:
            break
        lane = _Lane(store, source, destination, entity, namespace.reader, namespace.clock, origin)
        done = await lane.run(rule, left)
        moved += done.moved
        kept += done.kept
    return Redriven(moved, kept)


class _Lane:
    """One dead-letter queue and the queue that its messages go back to, on one store."""

    def __init__(
        self,
        store: StorePort,
        source: int,
        destination: int,
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

    async def run(self, rule: CompiledRule | None, limit: int | None) -> Redriven:
        try:
            moved = await self._move(rule, limit)
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

    async def _move(self, rule: CompiledRule | None, limit: int | None) -> int:
        started_at_ms = self._renewed_at_ms = self._clock.now_ms()
        moved = 0
        while limit is None or moved < limit:
            await self._keep_locks()
            found = await self._acquire(CHUNK if limit is None or rule is not None else min(CHUNK, limit - moved))
            if not found:
                break
            room = len(found) if limit is None else limit - moved
            chosen: list[Delivered] = []
            for message in found:
                # What went back and died again was enqueued after the beginning.
                if message.enqueued_at_ms <= started_at_ms and len(chosen) < room and self._is_wanted(rule, message):
                    chosen.append(message)
                else:
                    self._held.append(message.token)
            moved += await self._send_back(chosen)
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

    def _is_wanted(self, rule: CompiledRule | None, message: Delivered) -> bool:
        """What a filter cannot judge stays."""
        if rule is None:
            return True
        try:
            return rule.matches(MessageView(partial(self._system, message), partial(self._user, message)))
        except RuleError:
            return False

    def _system(self, message: Delivered) -> dict[str, object]:
        found = dict(self._reader.system_properties(message.record))
        found["SequenceNumber"] = message.sequence_number
        found["DeliveryCount"] = message.delivery_count
        found["EnqueuedTimeUtc"] = message.enqueued_at_ms
        return found

    def _user(self, message: Delivered) -> dict[str, object]:
        found = dict(self._reader.user_properties(self._reader.with_overlay(message.record, message.overlay)))
        for name, value in ((REASON, message.reason), (DESCRIPTION, message.description)):
            if value is not None:
                found[name] = value
        return found

    async def _send_back(self, messages: list[Delivered]) -> int:
        """One transaction; what the queue refuses stays among the dead letters."""
        if not messages:
            return 0
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


def _no_ids() -> None:
    raise AssertionError("a condition makes no ids")
