"""The bytes between a socket and the core: what comes in becomes events for the endpoints, what they queue goes out.

One write for each turn of the loop. Who may connect is left to `authorisation`, what to say to the endpoints.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

from twinbus.amqp import events
from twinbus.amqp.conditions import FRAME_SIZE_TOO_SMALL, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS
from twinbus.amqp.connection import Connection as Core
from twinbus.amqp.performatives import Error
from twinbus.client.doors import namespace_in
from twinbus.client.endpoint import Endpoint
from twinbus.client.errors import CONNECTION_LOST, ClientError, from_peer
from twinbus.client.hearing import Heard, Listener, What
from twinbus.model.clock import Clock

WRITE_BUFFER_BYTES = 1024 * 1024
MESSAGE_TOO_LARGE = "amqp:link:message-size-exceeded"
# Why our own core gives up a peer that did not break the protocol: it let us not in, was silent, or takes small frames.
_NO_BREACH = (UNAUTHORIZED_ACCESS, RESOURCE_LIMIT_EXCEEDED, FRAME_SIZE_TOO_SMALL)


class Stream(asyncio.Protocol):
    """One connection to a peer, from the socket's side."""

    def __init__(self, core: Core, clock: Clock, timeout_s: float, listener: Listener | None = None) -> None:
        self.core = core
        self.clock = clock
        self.timeout_s = timeout_s
        self.endpoints: set[Endpoint] = set()
        self.error: ClientError | None = None
        self.is_paused = False
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._flush_scheduled = False
        self._listener = listener
        self._sign_of_life: asyncio.Event | None = None
        self.heard_at = self._loop.time()  # When the peer last said something.

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there: say hello."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Bytes came: handle everything in them, then write once."""
        self.heard_at = self._loop.time()
        if self._sign_of_life is not None:
            self._sign_of_life.set()
        self._handle(self.core.receive(data, self.clock.now_ms()))
        self.flush()

    def connection_lost(self, problem: Exception | None) -> None:
        """The socket is gone."""
        self._transport = None
        self.lost(ClientError(CONNECTION_LOST, f"the connection was lost: {problem or 'the peer hung up'}"))
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.is_paused = False
        for endpoint in list(self.endpoints):
            endpoint.resumed()

    def mark_dirty(self) -> None:
        """Something was queued: write it at the end of this turn."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is queued, in one piece."""
        self._flush_scheduled = False
        if self._transport is None:
            return
        data = self.core.take()
        if data:
            self._transport.write(data)
        if self.core.closed:
            self._transport.close()

    def tick(self) -> None:
        """Let time pass: heartbeats go out, a silent peer is given up."""
        self._handle(self.core.tick(self.clock.now_ms()))
        self.flush()

    async def hears_something(self, timeout_s: float) -> bool:
        """Whether the peer says anything within the time, or the connection is lost."""
        sign = self._sign_of_life = self._sign_of_life or asyncio.Event()
        sign.clear()
        is_heard = False  # Others ask, too, and clear it again.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                is_heard = await sign.wait()
        return is_heard

    async def close(self) -> None:
        """Say goodbye and wait for the peer's, but not for ever."""
        if self._transport is None:
            return
        self.core.close()
        self.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timeout_s):
                await asyncio.shield(self.closed)

    def abort(self) -> None:
        """Cut the socket."""
        if self._transport is not None:
            self._transport.abort()

    # Events

    def _handle(self, happened: list[events.Event]) -> None:
        for event in happened:
            kind = type(event)
            if kind is events.Settlements or kind is events.Deliveries:
                self._deliveries(event)
            else:
                self._other(event)

    def _deliveries(self, event: events.Event) -> None:
        if isinstance(event, events.Settlements):
            event.link.context.settled(event.link, event.items)
        elif isinstance(event, events.Deliveries):
            event.link.context.received(event.link, event.items)

    def _other(self, event: events.Event) -> None:
        match event:
            case events.Opened():
                if not self.opened.done():
                    self.opened.set_result(None)
            case events.LinkAttached(link):
                if link.context is None:
                    link.refuse(Error(NOT_ALLOWED, "this client takes no links"))
                else:
                    link.context.attached(link)
            case events.LinkFlow(link):
                link.context.flowed(link)
            case events.LinkDetached(link, _, error):
                if link.context is not None:
                    if error is not None and error.condition == UNAUTHORIZED_ACCESS:
                        self.hear(What.RIGHT_REFUSED, link.context.path)
                    text = f"the peer detached the link to '{link.context.path}'"
                    link.context.lost(from_peer(error, CONNECTION_LOST, text))
            case events.Oversized(link, _, _, _, size):
                link.detach(Error(MESSAGE_TOO_LARGE, f"a message of {size} bytes is more than this client takes"))
            case events.SessionEnded(session, error):
                if session.context is not None:
                    text = f"the peer ended the session of '{session.context.path}'"
                    session.context.lost(from_peer(error, CONNECTION_LOST, text))
                    session.context.ended()
            case events.ConnectionClosed(error):
                self.lost(from_peer(error, CONNECTION_LOST, "the peer closed the connection"))
            case events.ConnectionFailed(error):
                # Our own core gave up. Its words for that are meant for the peer, except when we were not let in.
                refused = error.condition == UNAUTHORIZED_ACCESS
                if self.core.remote is not None and error.condition not in _NO_BREACH:
                    self.hear(What.PROTOCOL_BROKEN)
                self.lost(ClientError(UNAUTHORIZED_ACCESS if refused else CONNECTION_LOST, str(error.description)))

    def hear(self, what: What, path: str = "") -> None:
        """Hand on what says something of the peer, to the one who listens."""
        if self._listener is not None:
            remote = self.core.remote
            said = dict(remote.properties or {}) if remote is not None else {}
            self._listener(Heard(what, path, namespace_in(said)[1]))

    def lost(self, error: ClientError) -> None:
        """Nothing goes over this connection any more: everyone who waits learns why."""
        if self.error is None:
            self.error = error
        if self._sign_of_life is not None:
            self._sign_of_life.set()
        if not self.opened.done():
            self.opened.set_exception(error.but(definite=True))
            self.opened.exception()  # Nobody may be waiting for it.
        for endpoint in list(self.endpoints):
            endpoint.lost(error)
            endpoint.ended()
