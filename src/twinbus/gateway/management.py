"""The `$management` node of an entity: peeking, deferred messages, renewals, schedules, sessions and settling by token.

One table maps each operation to the right it needs and the method that serves it; bodies are read and written by
`wire.operations`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.amqp.link import Link
from twinbus.entities.entity import AnyEntity
from twinbus.entities.mailbox import lock_error
from twinbus.entities.subscription import Subscription
from twinbus.gateway import rules
from twinbus.gateway.requests import RequestNode
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import PING_NUMBER, Delivered, Incoming, Origin, Outcome, ReceiveMode, Settlement
from twinbus.model.security import Rights
from twinbus.wire import conditions, delay, operations, rule_list
from twinbus.wire import management as wire
from twinbus.wire import message as wire_message

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

Body = dict[str, Any] | None  # None: nothing to report (204).


class ManagementNode(RequestNode):
    """Serves the requests that one link brings for one entity."""

    def __init__(
        self, connection: ClientConnection, link: Link, entity: AnyEntity, sub_queue: SubQueue, path: str
    ) -> None:
        super().__init__(connection, link, path)
        self.entity = entity
        self.mailbox = entity.mailbox(sub_queue)
        self.origin = Origin(connection.label, link.name)
        self._is_main = sub_queue is SubQueue.MAIN
        self._has_sessions = entity.requires_session and self._is_main
        # The path without its last segment, which is the node itself: refusals name the entity.
        self._entity_path = path.rpartition("/")[0]

    def read(self, payload: bytes) -> wire.Request:
        """A management request."""
        return wire.read_request(payload)

    async def serve(self, request: wire.Request) -> bytes:
        """Carry out one operation and encode its answer."""
        context = self.connection.context
        self.entity.accessed_at_ms = context.clock.now_ms()
        try:
            operation = operations.read_operation(request)
            context.namespace.suffering.check_not_throttled()
            right, method, noted = _OPERATIONS[type(operation)]
            # A token for the entity covers its management node; some clients put one for the node alone.
            if not self.connection.allows(self.path, right):
                raise BusError(Fault.UNAUTHORIZED, f"No valid token gives the right {right.name} here.")
            if right is Rights.LISTEN:
                self.entity.check_may_receive()
            body = await method(self, operation)
        except BusError as error:
            return self._failure(request, lock_error(error, self._has_sessions))
        if noted:
            context.namespace.note(self.mailbox, noted, "empty" if body is None else "ok", self.origin)
        if body is None:
            return wire.response(request.message_id, wire.NO_CONTENT, "NoContent", {}, tracking_id=request.tracking_id)
        return wire.response(request.message_id, wire.OK, "OK", body, tracking_id=request.tracking_id)

    def _failure(self, request: wire.Request, error: BusError) -> bytes:
        context = self.connection.context
        refusal = context.refusal(error, self._entity_path, request.operation[:100])
        return wire.response(
            request.message_id,
            conditions.management_status(error.fault),
            refusal.description or error.text,
            {},
            condition=str(refusal.condition),
            tracking_id=request.tracking_id,
        )

    async def renew_locks(self, asked: operations.RenewLocks) -> Body:
        return operations.expirations(await self.mailbox.renew(asked.tokens, self.origin))

    async def peek(self, asked: operations.PeekMessages) -> Body:
        limit = min(asked.limit, limits.PEEK_COUNT_MAX)
        found = await self.mailbox.peek(asked.from_sequence_number, limit, asked.session_id, self.origin)
        if not found:
            return None
        told = self._told(found)
        return operations.peeked(wire_message.stamp(message, locked=False, peeked=True) for message in told)

    async def receive_deferred(self, asked: operations.ReceiveDeferred) -> Body:
        found = await self.mailbox.receive_deferred(
            asked.sequence_numbers, asked.mode, self.connection.number, asked.session_id, self.origin
        )
        locked, told = asked.mode is ReceiveMode.PEEK_LOCK, self._told(found)
        return operations.received((wire_message.stamp(message, locked=locked), message.token) for message in told)

    def _told(self, found: list[Delivered]) -> list[Delivered]:
        """Messages as a receiver gets them, too."""
        return wire_message.within_ttl(found, self.entity.told_ttl_ceiling_ms if self._is_main else None)

    async def update_disposition(self, asked: operations.UpdateDisposition) -> Body:
        decision = asked.decision
        abandons = decision.outcome is Outcome.ABANDON
        delay_ms = delay.take_ms(decision.changes) if abandons and decision.changes else 0
        settlement = Settlement(b"", decision.outcome, None, decision.reason, decision.description, delay_ms)
        settlements = [settlement._replace(token=token) for token in asked.tokens]
        if decision.changes or (abandons and not delay_ms):
            for index, message in enumerate(await self.mailbox.inspect(asked.tokens, self.origin)):
                if message is not None and decision.changes:
                    overlay = wire_message.merge_properties(message.record, message.overlay, decision.changes)
                    settlements[index] = settlements[index]._replace(overlay=overlay)
                    message = message._replace(overlay=overlay)
                if message is not None and abandons and not delay_ms:
                    settlements[index] = settlements[index]._replace(delay_ms=delay.own_ms(message))
        await self.mailbox.settle_all(settlements, self.origin)
        return {}

    async def schedule(self, asked: operations.ScheduleMessages) -> Body:
        self.entity.check_may_send()
        unit: list[Incoming] = []
        for payload in asked.messages:
            if len(payload) > limits.MESSAGE_BYTES_MAX:
                raise BusError(
                    Fault.MESSAGE_TOO_LARGE, f"A scheduled message has {len(payload)} bytes; that is too many."
                )
            unit += wire_message.read(
                payload, 0, ttl_ceiling_ms=self.entity.ttl_ceiling_ms, new_id=self.connection.context.new_id
            )
        if any(message.due_at_ms is None for message in unit):
            raise BusError(Fault.ARGUMENT, "A scheduled message needs x-opt-scheduled-enqueue-time.")
        self.entity.check_messages(unit)
        numbers = await self.entity.take(unit, self.origin, later=True)
        self.connection.context.counters["messages_accepted"] += len(unit)
        return operations.sequence_numbers(numbers)

    async def cancel_scheduled(self, asked: operations.CancelScheduled) -> Body:
        numbers = [number for number in asked.sequence_numbers if number != PING_NUMBER]
        if numbers:
            await self.mailbox.cancel_scheduled(numbers, self.origin)
        return {}

    async def renew_session(self, asked: operations.RenewSessionLock) -> Body:
        return operations.expiration(await self.mailbox.renew_session(asked.session_id, self.origin))

    async def get_session_state(self, asked: operations.GetSessionState) -> Body:
        return operations.session_state(await self.mailbox.get_session_state(asked.session_id, self.origin))

    async def set_session_state(self, asked: operations.SetSessionState) -> Body:
        if asked.state is not None and len(asked.state) > limits.SESSION_STATE_BYTES_MAX:
            raise BusError(
                Fault.MESSAGE_TOO_LARGE, f"Session state has at most {limits.SESSION_STATE_BYTES_MAX} bytes."
            )
        await self.mailbox.set_session_state(asked.session_id, asked.state, self.origin)
        return {}

    async def list_sessions(self, asked: operations.ListSessions) -> Body:
        found = await self.mailbox.list_sessions(asked.updated_after_ms, asked.skip, asked.limit, self.origin)
        return operations.session_ids(asked.skip + len(found), found) if found else None

    async def add_rule(self, asked: operations.AddRule) -> Body:
        await self.connection.context.namespace.put_rule(self._subscription(), rules.from_wire(asked))
        return {}

    async def remove_rule(self, asked: operations.RemoveRule) -> Body:
        await self.connection.context.namespace.remove_rule(self._subscription(), asked.name)
        return {}

    async def enumerate_rules(self, asked: operations.EnumerateRules) -> Body:
        subscription = self._subscription()
        if subscription.is_limited and not subscription.is_partitioned:
            # Rules are in the catalog; but a subscription without its store is away as a whole.
            raise BusError(Fault.STORE_UNAVAILABLE, f"The messaging store of '{self._entity_path}' is not available.")
        found = subscription.rules[asked.skip : asked.skip + asked.limit]
        return rule_list.rules(rules.to_wire(rule) for rule in found) if found else None

    def _subscription(self) -> Subscription:
        if not isinstance(self.entity, Subscription):
            raise BusError(Fault.NOT_ALLOWED, f"'{self._entity_path}' is not a subscription and has no rules.")
        return self.entity

    async def delete_batch(self, asked: operations.DeleteMessages) -> Body:
        limit = min(asked.limit, limits.DELETE_COUNT_MAX)
        return operations.deleted(await self.mailbox.delete_batch(limit, asked.before_ms, self.origin))


class _Entry(NamedTuple):
    right: Rights
    method: Callable[[ManagementNode, Any], Awaitable[Body]]
    noted: str  # Journaled under this name because the store writes nothing for it; "" where the store does.


_OPERATIONS: dict[type, _Entry] = {
    operations.RenewLocks: _Entry(Rights.LISTEN, ManagementNode.renew_locks, "renew"),
    operations.PeekMessages: _Entry(Rights.LISTEN, ManagementNode.peek, "peek"),
    operations.ReceiveDeferred: _Entry(Rights.LISTEN, ManagementNode.receive_deferred, ""),
    operations.UpdateDisposition: _Entry(Rights.LISTEN, ManagementNode.update_disposition, ""),
    operations.ScheduleMessages: _Entry(Rights.SEND, ManagementNode.schedule, ""),
    operations.CancelScheduled: _Entry(Rights.SEND, ManagementNode.cancel_scheduled, ""),
    operations.RenewSessionLock: _Entry(Rights.LISTEN, ManagementNode.renew_session, "renew_session"),
    operations.GetSessionState: _Entry(Rights.LISTEN, ManagementNode.get_session_state, "get_session_state"),
    operations.SetSessionState: _Entry(Rights.LISTEN, ManagementNode.set_session_state, "set_session_state"),
    operations.ListSessions: _Entry(Rights.LISTEN, ManagementNode.list_sessions, "list_sessions"),
    # The official client's rule manager promises that Listen is enough here; the administration API wants Manage.
    operations.AddRule: _Entry(Rights.LISTEN, ManagementNode.add_rule, "manage"),
    operations.RemoveRule: _Entry(Rights.LISTEN, ManagementNode.remove_rule, "manage"),
    operations.EnumerateRules: _Entry(Rights.LISTEN, ManagementNode.enumerate_rules, "manage"),
    operations.DeleteMessages: _Entry(Rights.LISTEN, ManagementNode.delete_batch, ""),
}
