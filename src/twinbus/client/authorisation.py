"""How the client proves who it is: the SASL choice, and tokens put on `$cbs` for each entity, renewed in time.

Signing is left to `wire.sas`; what a token allows is for the broker to say.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import uuid4

from twinbus.amqp import codec
from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.events import Delivery, Settlement
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Accepted, Source, Target
from twinbus.amqp.types import DecodeError, Timestamp
from twinbus.client.connection_string import ConnectionString
from twinbus.client.endpoint import Endpoint, within
from twinbus.client.errors import ClientError
from twinbus.client.lots import Lot, Pending
from twinbus.client.stream import Stream
from twinbus.wire import sas
from twinbus.wire.sections import APPLICATION_PROPERTIES, PROPERTIES, VALUE

log = logging.getLogger(__name__)

CBS = "$cbs"
TOKEN_TYPE = "servicebus.windows.net:sastoken"
TOKEN_LIFETIME_MS = 3_600_000
# A token is renewed when less than this part of its life is left, and again so soon when that failed.
RENEW_PART = 10
RETRY_MS = 10_000
_CREDIT = 100
_CORRELATION_ID = 5
_CONDITIONS = {400: "com.microsoft:argument-error", 401: "amqp:unauthorized-access", 404: "amqp:not-found"}


class Authentication(Enum):
    """CBS works everywhere that is a Service Bus; the others serve brokers that know nothing of `$cbs`."""

    CBS = "anonymous, then a token for each entity"
    PLAIN = "policy and key"
    ANONYMOUS = "nothing"


def sasl_choice(authentication: Authentication, target: ConnectionString) -> tuple[str, bytes]:
    """The SASL mechanism and the initial response."""
    if authentication is not Authentication.PLAIN:
        return "ANONYMOUS", b""
    if target.policy is None or target.key is None:
        raise ValueError("SASL PLAIN needs a policy and its key")
    return "PLAIN", b"\0%b\0%b" % (target.policy.encode(), target.key.encode())


@dataclass(slots=True)
class _Token:
    """A token that the peer took, and when to put the next one."""

    renew_at_ms: int


class TokenLinks(Endpoint):
    """The pair of links to `$cbs`: requests go out on one, answers come in on the other."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, CBS)
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._pending = Pending()
        self._credited = asyncio.Event()
        self._reply = self.attach(LinkRole.RECEIVER, Source(CBS), Target(CBS), 0, 0)
        self._link = self.attach(LinkRole.SENDER, Source(CBS), Target(CBS), 0, 0)

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

    async def put(self, audience: str, token: str, expires_at_ms: int | None) -> None:
        """Puts a token and waits for the verdict."""
        await within(self.stream.timeout_s, self._credited.wait(), "waiting for credit on $cbs")
        self.check()
        message_id = uuid4().hex
        answer: asyncio.Future[dict[str, Any]] = self.loop.create_future()
        self._answers[message_id] = answer
        lot = Lot(1, Accepted, self.loop)
        delivery_id = self._link.transfer(
            message_id[:8].encode(), _request(message_id, audience, token, expires_at_ms), False
        )
        lot.ids.append(delivery_id)
        self._pending[delivery_id] = lot
        if not self._link.sendable:
            self._credited.clear()
        self.stream.mark_dirty()
        try:
            await within(self.stream.timeout_s, lot.done, f"putting a token for '{audience}'")
            status = await within(self.stream.timeout_s, answer, f"putting a token for '{audience}'")
        finally:
            self._answers.pop(message_id, None)
        code = status.get("status-code")
        if not isinstance(code, int) or not 200 <= code < 300:
            text = str(status.get("status-description") or f"the token was refused with status {code}")
            condition = status.get("error-condition") or _CONDITIONS.get(code or 0, f"twinbus:status-{code}")
            raise ClientError(str(condition), text, definite=True)

    def settled(self, link: Link, items: list[Settlement]) -> None:
        """Requests were taken, or not."""
        self._pending.settled(items)

    def received(self, link: Link, items: list[Delivery]) -> None:
        """Answers came."""
        self.session.settle([item[0] for item in items], Accepted(), LinkRole.RECEIVER)
        if link.credit < _CREDIT // 2:
            link.grant(_CREDIT)
        for item in items:
            correlation_id, status = _answer(item[4])
            future = self._answers.get(str(correlation_id))
            if future is not None and not future.done():
                future.set_result(status)

    def lost(self, error: ClientError) -> None:
        """No verdict will come."""
        super().lost(error)
        self._credited.set()
        self._pending.fail(error)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)


class Authorisation:
    """The tokens of one connection."""

    def __init__(self, stream: Stream, target: ConnectionString, lifetime_ms: int = TOKEN_LIFETIME_MS) -> None:
        self._stream = stream
        self._target = target
        self._lifetime_ms = lifetime_ms
        self._links: TokenLinks | None = None
        self._tokens: dict[str, _Token] = {}
        self._one_by_one = asyncio.Lock()
        self.renewal: asyncio.Task[None] | None = None

    async def authorise(self, path: str) -> None:
        """Makes sure that a token for the entity is there."""
        async with self._one_by_one:
            if path not in self._tokens:
                await self._put(path)

    async def _put(self, path: str) -> None:
        if self._links is None or self._links.error is not None:
            self._links = TokenLinks(self._stream)
            await self._links.ready(self._stream.timeout_s)
        target, now_ms = self._target, self._stream.clock.now_ms()
        audience = target.audience(path)
        if target.signature is not None:
            await self._links.put(audience, target.signature, None)
            self._tokens[path] = _Token(1 << 62)  # A ready-made token cannot be renewed.
            return
        expires_at_ms = now_ms + self._lifetime_ms
        # Seconds count in a token: rounded up, so that it does not end before we think.
        expires_at_s = -(-expires_at_ms // 1000)
        token = sas.make_token(audience, target.policy or "", target.key or "", expires_at_s)
        await self._links.put(audience, token, expires_at_ms)
        self._tokens[path] = _Token(expires_at_ms - self._lifetime_ms // RENEW_PART)

    def tick(self) -> None:
        """Begins to renew what is about to expire."""
        now_ms = self._stream.clock.now_ms()
        due = [path for path, token in self._tokens.items() if token.renew_at_ms <= now_ms]
        if due and (self.renewal is None or self.renewal.done()):
            self.renewal = asyncio.get_running_loop().create_task(self._renew(due))

    async def _renew(self, paths: list[str]) -> None:
        async with self._one_by_one:
            for path in paths:
                try:
                    await self._put(path)
                except ClientError as error:
                    # The peer will detach the links when the token lapses, and says why; until then there is time.
                    log.warning("the token for '%s' could not be renewed: %s", path, error)
                    self._tokens[path].renew_at_ms = self._stream.clock.now_ms() + RETRY_MS


def _request(message_id: str, audience: str, token: str, expires_at_ms: int | None) -> bytes:
    application: dict[str, Any] = {"operation": "put-token", "type": TOKEN_TYPE, "name": audience}
    if expires_at_ms is not None:
        application["expiration"] = Timestamp(expires_at_ms)
    properties = [message_id, None, CBS, None, CBS]
    sections = ((PROPERTIES, properties), (APPLICATION_PROPERTIES, application), (VALUE, token))
    return b"".join(bytes((0x00, 0x53, code)) + codec.encode(value) for code, value in sections)


def _answer(payload: bytes) -> tuple[object, dict[str, Any]]:
    """Correlation id and application properties of an answer; nothing of what is not one."""
    found: dict[int, Any] = {}
    position = 0
    try:
        while position < len(payload):
            section, position = codec.decode(payload, position)
            found[int(section.descriptor)] = section.value
        properties = found.get(PROPERTIES) or []
        correlation_id = properties[_CORRELATION_ID] if len(properties) > _CORRELATION_ID else None
        application = found.get(APPLICATION_PROPERTIES) or {}
        return correlation_id, {str(key): value for key, value in application.items()}
    except (DecodeError, AttributeError, TypeError, ValueError, struct.error):
        return None, {}
