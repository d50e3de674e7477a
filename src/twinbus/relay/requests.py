"""One HTTP request on its way to a listener, and the response on its way back, both as they come.

Who may send, and which listener it is, was decided before; what goes wrong here is told as a status of the relay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiohttp import hdrs, web

from twinbus.relay import commands, headers
from twinbus.relay.channel import Channel
from twinbus.relay.commands import Response
from twinbus.relay.exchange import Exchange, ListenerLostError
from twinbus.relay.framing import Opcode, Piece
from twinbus.relay.limits import Limits
from twinbus.relay.rights import RefusedError, Target, strips_authorization

_BODILESS = (204, 304)


class Carrier:
    """Carries one exchange between a sender's request and a listener's channel."""

    def __init__(
        self, request: web.Request, target: Target, channel: Channel, exchange: Exchange, limits: Limits
    ) -> None:
        self._request = request
        self._channel = channel
        self._limits = limits
        self.exchange = exchange
        self._look: asyncio.TimerHandle
        self._via = headers.via_of(request.host)
        self._address = headers.address_of(channel.base, target.hybrid.path, "request", exchange.number)
        self.request_bytes = headers.size_of(request.headers.items())
        self.response_bytes = 0
        if self.request_bytes > limits.header_bytes_max:
            raise RefusedError(431, f"The headers have more than {limits.header_bytes_max} bytes.")
        self._headers = headers.of_request(
            request.headers.items(), self._via, strips_authorization=strips_authorization(request, target.hybrid)
        )

    async def carry(self) -> web.StreamResponse:
        """Hand the request over, and answer the sender; a RefusedError if there is no answer."""
        self._channel.expect(self.exchange)
        self._look = asyncio.get_running_loop().call_later(self._limits.look_s, self._look_for_sender)
        sending = asyncio.ensure_future(self._send())
        try:
            head = await self._head(sending)
            return await self._respond(head)
        finally:
            self._look.cancel()
            sending.cancel()
            self._channel.forget(self.exchange)

    @property
    def _has_sender(self) -> bool:
        return self._request.transport is not None and not self._request.transport.is_closing()

    def _look_for_sender(self) -> None:
        """aiohttp does not tell a handler that its client is gone, so it is looked for now and then."""
        if self._has_sender:
            self._look = asyncio.get_running_loop().call_later(self._limits.look_s, self._look_for_sender)
        else:
            self.exchange.lost()  # A listener at a rendezvous is told so when that is closed.

    async def _send(self) -> None:
        request = self._request
        length = request.content_length
        if not request.body_exists:
            await self._channel.tell(self._command(has_body=False))
        elif length is not None and length <= self._limits.control_body_bytes_max:
            body = await self._whole_body()
            self.request_bytes += len(body)
            await self._channel.tell(self._command(has_body=True), body)
        else:
            await self._send_by_rendezvous()

    async def _whole_body(self) -> bytes:
        try:
            return await self._request.content.read()
        except (web.RequestPayloadError, ConnectionError):
            raise RefusedError(400, "The body is not what its headers say.") from None

    async def _send_by_rendezvous(self) -> None:
        await self._channel.tell(commands.request_elsewhere(self._address))
        try:
            async with asyncio.timeout(self._limits.accept_s):
                socket = await asyncio.shield(self.exchange.rendezvous)
        except TimeoutError:
            raise RefusedError(504, f"The listener did not come within {self._limits.accept_s:g} seconds.") from None
        socket.send(Piece(Opcode.TEXT, self._command(has_body=True)))
        # One message, however long: a published client takes the first for all of the body.
        begins = True
        try:
            async for chunk in self._request.content.iter_any():
                self.request_bytes += len(chunk)
                await socket.drained()
                socket.send(Piece(Opcode.BINARY, chunk, begins, ends=False))
                begins = False
        except (web.RequestPayloadError, ConnectionError):
            socket.abort()  # The listener must not take a part for the whole.
            raise RefusedError(400, "The body is not what its headers say.") from None
        socket.send(Piece(Opcode.BINARY, b"", begins, ends=True))

    def _command(self, *, has_body: bool) -> bytes:
        request = self._request
        target = headers.target_of(request.rel_url.raw_path, request.rel_url.raw_query_string)
        return commands.request(self._address, self.exchange.number, target, request.method, self._headers, has_body)

    async def _head(self, sending: asyncio.Future[None]) -> Response:
        """The listener's answer, which may come before all of the request was sent."""
        head: Awaitable[Response] = asyncio.shield(self.exchange.head)
        try:
            either: set[asyncio.Future[Any]] = {sending, self.exchange.head}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self.exchange.head.done():
                await sending  # It has ended; if it failed, this tells why.
            async with asyncio.timeout(self._limits.response_s):
                return await head
        except TimeoutError:
            raise RefusedError(504, f"No answer came within {self._limits.response_s:g} seconds.") from None
        except ListenerLostError as lost:
            if not self._has_sender:
                raise ConnectionResetError("the sender is gone") from None
            # Not 502, which says that nobody had the request.
            raise RefusedError(504, str(lost)) from None

    async def _respond(self, head: Response) -> web.StreamResponse:
        try:
            passed = headers.of_response(head.headers, self._via)
        except ValueError as problem:
            raise RefusedError(500, f"The listener's answer cannot be passed on: {problem}.") from None
        reason = head.reason if head.reason.isprintable() and head.reason.isascii() else ""
        response = web.StreamResponse(status=head.status, reason=reason or None)
        for name, value in passed:
            response.headers.add(name, value)
        self.response_bytes = headers.size_of(passed)
        if self._request.method == hdrs.METH_HEAD or head.status in _BODILESS:
            await response.prepare(self._request)
            await response.write_eof()
            return response
        if not head.has_body:
            response.content_length = 0
        started = False
        try:
            if head.has_body and not self.exchange.is_at_rendezvous:
                body = b"".join([part async for part in self.exchange.parts(self._limits.idle_s)])
                response.content_length = len(body)
                self.response_bytes += len(body)
                await response.prepare(self._request)
                await response.write(body)
            else:
                await response.prepare(self._request)
                started = True
                async for part in self.exchange.parts(self._limits.idle_s):
                    self.response_bytes += len(part)
                    await response.write(part)
            await response.write_eof()
        except (TimeoutError, ListenerLostError) as problem:
            if not self._has_sender:
                raise ConnectionResetError("the sender is gone") from None
            if not started:
                raise RefusedError(504, "The listener did not finish its answer.") from problem
            # The status has left already: only a broken connection tells the sender that the body is not whole.
            if self._request.transport is not None:
                self._request.transport.abort()
        return response
