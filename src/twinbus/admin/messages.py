"""The REST data plane: send, receive and settle messages with plain HTTP requests.

Reads requests and words answers; JSON is `messages_json`'s business, headers are `messages_headers`', waiting is
`messages_poll`'s, and what happens to a message the entities decide.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from twinbus.admin import messages_headers, messages_json, messages_paths
from twinbus.admin.faults import ANSWERS, Answer, HttpError
from twinbus.admin.messages_json import NewMessage
from twinbus.admin.messages_paths import MessageTarget, Place
from twinbus.admin.messages_poll import Poll
from twinbus.entities.entity import AnyEntity
from twinbus.entities.mailbox import Mailbox
from twinbus.entities.namespace import Namespace
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming, Origin, Outcome, ReceiveMode, Settlement
from twinbus.model.security import Rights
from twinbus.wire import address as wire_address
from twinbus.wire import brokered
from twinbus.wire import message as wire_message
from twinbus.wire.access import Grant

BATCH_BODY_BYTES_MAX = 1024 * 1024  # JSON may need several bytes for one of a message.
BODY_S = 30.0
WAIT_S_DEFAULT = 60
WAIT_S_MAX = 300
POLLS_MAX = 5_000  # The service's limit of receives at the same time.
BUSY_BYTES = 64 * 1024 * 1024  # More than this waits for the store's commit: senders are asked to come back.

# Where the documents of the service give another status to a fault than its administration has.
MESSAGE_ANSWERS: dict[Fault, Answer] = ANSWERS | {
    Fault.ENTITY_DELETED: Answer(410, 41000),
    Fault.ENTITY_NOT_FOUND: Answer(410, 41000),
    Fault.LOCK_LOST: Answer(404, 40400),
    Fault.MESSAGE_TOO_LARGE: Answer(403, 40300),
    Fault.NOT_ALLOWED: Answer(400, 40000),
    Fault.SESSION_LOCK_LOST: Answer(404, 40400),
}

Authorize = Callable[[web.Request, Rights], Grant]


class _Asked(NamedTuple):
    """A request, and whom it is about."""

    request: web.Request
    target: MessageTarget
    entity: AnyEntity
    sub_queue: SubQueue
    origin: Origin
    grant: Grant

    @property
    def mailbox(self) -> Mailbox:
        return self.entity.mailbox(self.sub_queue)


class Messages:
    """The messages of one namespace over HTTP. `counters` are those of its metrics."""

    def __init__(
        self, namespace: Namespace, authorize: Authorize, new_id: Callable[[], str], counters: Counter[str]
    ) -> None:
        self._namespace = namespace
        self._authorize = authorize
        self._new_id = new_id
        self._counters = counters
        self._polls: dict[Poll, _Asked] = {}
        namespace.on_deleted.append(self._entity_deleted)
        namespace.on_changed.append(self._entity_changed)
        namespace.on_rules_changed.append(self._rules_changed)

    def target(self, request: web.Request) -> MessageTarget | None:
        """What a request is about, if it is about messages."""
        return messages_paths.read(request.method, request.rel_url.raw_path, lambda path: self._named(path) is not None)

    def _named(self, path: str) -> AnyEntity | None:
        try:
            return self._namespace.find(wire_address.parse(path).entity_path)
        except BusError:
            return None

    async def answer(self, request: web.Request, target: MessageTarget) -> web.StreamResponse:
        """Do what a request asks."""
        self._namespace.suffering.check_not_throttled()
        operation = _OPERATIONS.get((target.place, request.method))
        right = Rights.LISTEN if operation is None else operation.right
        grant = self._authorize(request, right)
        if operation is None:
            raise messages_paths.unknown_method(request.method, target)
        address = target.address
        if address.management or address.cbs:
            raise BusError(Fault.ARGUMENT, "There are no messages at this address.")
        entity = self._namespace.entity(address.entity_path)
        entity.accessed_at_ms = self._namespace.clock.now_ms()
        if right is Rights.LISTEN:
            entity.check_may_take(address.subqueue)
        origin = Origin(f"http:{request.remote}", grant.policy)
        self._counters["rest_requests"] += 1
        return await operation.serve(self, _Asked(request, target, entity, address.subqueue, origin, grant))

    def refused(self, error: BusError) -> Answer:
        """Count a refusal; the status that it has here."""
        self._counters[f"refused_{error.fault.value}"] += 1
        return MESSAGE_ANSWERS[error.fault]

    # Sending

    async def send(self, asked: _Asked) -> web.Response:
        """One message, or a batch that is stored whole or not at all."""
        try:
            return await self._send(asked)
        except BusError:
            self._counters["messages_rejected"] += 1
            raise

    async def _send(self, asked: _Asked) -> web.Response:
        request, entity = asked.request, asked.entity
        if asked.sub_queue is not SubQueue.MAIN:
            raise BusError(Fault.NOT_ALLOWED, "Nobody can send to a dead-letter queue.")
        entity.check_may_send()
        if entity.pending_bytes > BUSY_BYTES:
            raise BusError(
                Fault.SERVER_BUSY, "The messaging store has more to write than it can take; retry in ten seconds."
            )
        unit: list[Incoming] = []
        total = 0
        for message in await _messages_in(request):
            payload = brokered.encode(message.body, message.system, message.user, self._namespace.clock.now_ms())
            total += len(payload)
            if len(payload) > limits.MESSAGE_BYTES_MAX or total > limits.BATCH_BYTES_MAX:
                raise _too_large(limits.MESSAGE_BYTES_MAX)
            unit += wire_message.read(payload, 0, ttl_ceiling_ms=entity.ttl_ceiling_ms, new_id=self._new_id)
        entity.check_messages(unit)
        await entity.take(unit, asked.origin)
        self._counters["messages_accepted"] += len(unit)
        content_type = request.headers.get("Content-Type")
        return web.Response(status=201, headers={"Content-Type": content_type} if content_type else None)

    # Receiving

    async def peek_lock(self, asked: _Asked) -> web.StreamResponse:
        """The next message, locked."""
        return await self._receive(asked, ReceiveMode.PEEK_LOCK)

    async def receive_delete(self, asked: _Asked) -> web.StreamResponse:
        """The next message, removed."""
        return await self._receive(asked, ReceiveMode.RECEIVE_AND_DELETE)

    async def _receive(self, asked: _Asked, mode: ReceiveMode) -> web.StreamResponse:
        request, entity, mailbox = asked.request, asked.entity, asked.mailbox
        timeout_s = _timeout_s(request)
        if entity.requires_session and asked.sub_queue is SubQueue.MAIN:
            raise BusError(
                Fault.NOT_ALLOWED,
                f"'{entity.path}' requires sessions, and REST has no way to accept one: receive with AMQP.",
            )
        if len(self._polls) >= POLLS_MAX:
            raise BusError(Fault.SERVER_BUSY, "Too many requests wait for messages.")
        poll = Poll(mailbox.feed, mode, asked.origin, lambda: _is_gone(request))
        self._polls[poll] = asked
        entity.links += 1
        try:
            message = await poll.wait(timeout_s)
        finally:
            entity.links -= 1
            del self._polls[poll]
        if message is None:
            self._namespace.note(mailbox, "receive", "empty", asked.origin)
            return web.Response(status=204)
        try:
            return await _handed_over(request, _answer_with(message, asked))
        except (ConnectionError, asyncio.CancelledError):
            poll.give_back(message)
            raise

    # Settling

    async def complete(self, asked: _Asked) -> web.Response:
        """The message was worked on: remove it."""
        await self._settle(asked, Outcome.COMPLETE)
        return web.Response()

    async def unlock(self, asked: _Asked) -> web.Response:
        """The message is given up: a delivery is counted, and others may have it."""
        await self._settle(asked, Outcome.ABANDON)
        return web.Response()

    async def _settle(self, asked: _Asked, outcome: Outcome) -> None:
        await self._check_lock(asked)
        await asked.mailbox.settle_all([Settlement(asked.target.token, outcome)], asked.origin)

    async def renew(self, asked: _Asked) -> web.Response:
        """The message takes longer: lock it anew."""
        await self._check_lock(asked)
        (until_ms,) = await asked.mailbox.renew([asked.target.token], asked.origin)
        self._namespace.note(asked.mailbox, "renew", "ok", asked.origin)
        lock = json.dumps(messages_json.lock_of(asked.target.token, until_ms))
        return web.Response(headers={"BrokerProperties": lock})

    async def _check_lock(self, asked: _Asked) -> None:
        """The address must name the message that the token locks, by its id or by its number."""
        (message,) = await asked.mailbox.inspect([asked.target.token], asked.origin)
        if message is None or asked.target.message not in (message.message_id, str(message.sequence_number)):
            raise BusError(Fault.LOCK_LOST, "There is no message with this id or number and this lock token.")

    # What ends waiting

    def _entity_deleted(self, entity: AnyEntity) -> None:
        self._end(entity, BusError(Fault.ENTITY_DELETED, f"The messaging entity '{entity.path}' was deleted."))

    def _entity_changed(self, entity: AnyEntity) -> None:
        for poll, asked in list(self._polls.items()):
            if asked.entity is entity:
                try:
                    entity.check_may_take(asked.sub_queue)
                except BusError as error:
                    poll.end(error)

    def _rules_changed(self) -> None:
        for poll, asked in list(self._polls.items()):
            try:
                self._authorize(asked.request, Rights.LISTEN)
            except BusError as error:
                poll.end(error)

    def _end(self, entity: AnyEntity | None, error: BusError) -> None:
        for poll, asked in list(self._polls.items()):
            if entity is None or asked.entity is entity:
                poll.end(error)

    async def stop(self, _: web.Application) -> None:
        """The process ends: who waits is told to come back."""
        self._end(None, BusError(Fault.SERVER_BUSY, "The broker is stopping."))


class _Operation(NamedTuple):
    serve: Callable[[Messages, _Asked], Awaitable[web.StreamResponse]]
    right: Rights


_OPERATIONS = {
    (Place.MESSAGES, "POST"): _Operation(Messages.send, Rights.SEND),
    (Place.HEAD, "POST"): _Operation(Messages.peek_lock, Rights.LISTEN),
    (Place.HEAD, "DELETE"): _Operation(Messages.receive_delete, Rights.LISTEN),
    (Place.LOCKED, "DELETE"): _Operation(Messages.complete, Rights.LISTEN),
    (Place.LOCKED, "PUT"): _Operation(Messages.unlock, Rights.LISTEN),
    (Place.LOCKED, "POST"): _Operation(Messages.renew, Rights.LISTEN),
}


async def _messages_in(request: web.Request) -> list[NewMessage]:
    """What a request sends: a batch by its content type, else one message."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpError(415, "A compressed body is not accepted.")
    if request.content_type.lower() == messages_json.BATCH_TYPE:
        return messages_json.batch_in(await _body(request, BATCH_BODY_BYTES_MAX))
    # Headers are looked at first: what they say wrong need not be read on for.
    system = messages_json.broker_properties_in(request.headers.get("BrokerProperties") or "{}")
    content_type = request.headers.get("Content-Type")
    if content_type:
        system["ContentType"] = content_type
    user = messages_headers.properties_in(request.headers.items())
    return [NewMessage(await _body(request, limits.MESSAGE_BYTES_MAX), system, user)]


async def _body(request: web.Request, bytes_max: int) -> bytes:
    """The whole body; refused as soon as it is known, or seen, to be too large, and when it comes too slowly."""
    if (request.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > bytes_max:
                    raise _too_large(bytes_max)
    except TimeoutError:
        raise HttpError(408, f"The body did not arrive within {BODY_S:.0f} seconds.") from None
    except (ConnectionError, web.RequestPayloadError):
        raise HttpError(400, "The body is not what its headers say, or the client went away.") from None
    return bytes(body)


def _too_large(bytes_max: int) -> BusError:
    return BusError(Fault.MESSAGE_TOO_LARGE, f"The message is too large: at most {bytes_max} bytes are allowed.")


def _timeout_s(request: web.Request) -> int:
    text = request.query.get("timeout", str(WAIT_S_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BusError(Fault.ARGUMENT, "timeout must be a number of seconds.")
    return min(int(text), WAIT_S_MAX)


def _answer_with(message: Delivered, asked: _Asked) -> web.Response:
    """A message as an answer; a locked one has an address."""
    received = brokered.read(message)
    headers = CIMultiDict(messages_headers.headers_of(received.user))
    headers["BrokerProperties"] = messages_json.broker_properties_of(message, received)
    content_type = str(received.system.get("ContentType", ""))
    if content_type.isascii() and content_type.isprintable() and content_type:
        headers["Content-Type"] = content_type
    if not message.token:
        return web.Response(body=received.body, headers=headers)
    request = asked.request
    lock = messages_json.lock_of(message.token, 0)["LockToken"]
    # In lower case, as the service has it: clients look for "/subscriptions/" in it.
    path = quote(wire_address.format_address(asked.target.address).lower(), safe="/$")
    headers["Location"] = f"{request.scheme}://{request.host}/{path}/messages/{message.sequence_number}/{lock}"
    return web.Response(status=201, body=received.body, headers=headers)


async def _handed_over(request: web.Request, response: web.Response) -> web.Response:
    """Write an answer; ConnectionError when the client is no longer there to read it."""
    if _is_gone(request):
        raise ConnectionResetError("The client has hung up.")
    await response.prepare(request)
    await response.write_eof()
    return response


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
