"""Requests over a pair of links: out on one, the answers in on the other, told apart by their correlation ids.

What is asked and what an answer is worth is left to `authorisation` and `management`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from twinbus.amqp import codec
from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.events import Delivery, Settlement
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Accepted, Source, Target
from twinbus.amqp.types import DecodeError
from twinbus.client.endpoint import Endpoint, within
from twinbus.client.errors import ClientError
from twinbus.client.lots import Lot, Pending
from twinbus.client.stream import Stream
from twinbus.wire.sections import APPLICATION_PROPERTIES, PROPERTIES, VALUE

_CREDIT = 100
_CORRELATION_ID = 5

# What a status means where the answer names no condition, in requests and over HTTP.
CONDITIONS = {
    400: "com.microsoft:argument-error",
    401: "amqp:unauthorized-access",
    403: "amqp:not-allowed",
    404: "amqp:not-found",
    408: "com.microsoft:timeout",
    409: "com.microsoft:entity-already-exists",
    410: "com.microsoft:message-lock-lost",
    413: "amqp:link:message-size-exceeded",
    429: "com.microsoft:server-busy",
    501: "amqp:not-implemented",
    503: "com.microsoft:server-busy",
    504: "com.microsoft:timeout",
}


class Answer(NamedTuple):
    """Application properties and body of an answer."""

    application: dict[str, Any]
    body: Any


class RequestLinks(Endpoint):
    """The pair of links to a node that answers requests."""

    def __init__(self, stream: Stream, path: str) -> None:
        super().__init__(stream, path)
        self._answers: dict[str, asyncio.Future[Answer]] = {}
        self._pending = Pending()
        self._credited = asyncio.Event()
        self._reply = self.attach(LinkRole.RECEIVER, Source(path), Target(path), 0, 0)
        self._link = self.attach(LinkRole.SENDER, Source(path), Target(path), 0, 0)

    async def ask(self, application: Mapping[str, Any], body: Any, what: str) -> Answer:
        """Sends a request and waits for its answer; `what` says what it is for, should it take too long."""
        await within(self.stream.timeout_s, self._credited.wait(), f"waiting for credit on '{self.path}'")
        self.check()
        message_id = uuid4().hex
        answer: asyncio.Future[Answer] = self.loop.create_future()
        self._answers[message_id] = answer
        lot = Lot(1, Accepted, self.loop)
        payload = _encoded(message_id, self.path, application, body)
        delivery_id = self._link.transfer(message_id[:8].encode(), payload, False)
        lot.ids.append(delivery_id)
        self._pending[delivery_id] = lot
        if not self._link.sendable:
            self._credited.clear()
        self.stream.mark_dirty()
        try:
            await within(self.stream.timeout_s, lot.done, what)
            return await within(self.stream.timeout_s, answer, what)
        except ClientError as error:
            # Its `failed` counts this one request. Somebody who opens a link in order to send a batch would read it as
            # the fate of the batch, and take all but the first message for sent.
            raise error.but(definite=error.definite) from error
        finally:
            self._answers.pop(message_id, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # Nobody waits for it when the request itself was not taken.

    # What the stream tells

    def attached(self, link: Link) -> None:
        """Ready when both are attached."""
        if link is self._reply and not link.refused:
            link.grant(_CREDIT)
        if self._reply.attached and self._link.attached:
            super().attached(link)

    def flowed(self, link: Link) -> None:
        """A request may be sent."""
        if self._link.sendable:
            self._credited.set()

    def settled(self, link: Link, items: list[Settlement]) -> None:
        """Requests were taken, or not."""
        self._pending.settled(items)

    def received(self, link: Link, items: list[Delivery]) -> None:
        """Answers came."""
        self.session.settle([item[0] for item in items], Accepted(), LinkRole.RECEIVER)
        if link.credit < _CREDIT // 2:
            link.grant(_CREDIT)
        for item in items:
            correlation_id, answer = _decoded(item[4])
            future = self._answers.get(str(correlation_id))
            if future is not None and not future.done():
                future.set_result(answer)

    def lost(self, error: ClientError) -> None:
        """No answer will come."""
        super().lost(error)
        self._credited.set()
        self._pending.fail(error)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)


def refusal(status: object, text: str, condition: object = None) -> ClientError:
    """The error for an answer whose status is not a success."""
    named = condition or CONDITIONS.get(status if isinstance(status, int) else 0, f"twinbus:status-{status}")
    return ClientError(str(named), text)


def _encoded(message_id: str, reply_to: str, application: Mapping[str, Any], body: Any) -> bytes:
    properties = [message_id, None, reply_to, None, reply_to]
    sections = ((PROPERTIES, properties), (APPLICATION_PROPERTIES, dict(application)), (VALUE, body))
    return b"".join(bytes((0x00, 0x53, code)) + codec.encode(value) for code, value in sections)


def _decoded(payload: bytes) -> tuple[object, Answer]:
    """Correlation id and content of an answer; nothing of what is not one."""
    found: dict[int, Any] = {}
    position = 0
    try:
        while position < len(payload):
            section, position = codec.decode(payload, position)
            found[int(section.descriptor)] = section.value
        properties = found.get(PROPERTIES) or []
        correlation_id = properties[_CORRELATION_ID] if len(properties) > _CORRELATION_ID else None
        application = found.get(APPLICATION_PROPERTIES) or {}
        return correlation_id, Answer({str(key): value for key, value in application.items()}, found.get(VALUE))
    except (DecodeError, AttributeError, TypeError, ValueError, struct.error):
        return None, Answer({}, None)
