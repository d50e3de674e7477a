"""A service's response on its way to a relay: what of its body is there at once, and the rest as it is made.

Which socket it leaves on is decided by `listening`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from twinbus.relay import commands
from twinbus.relay.messages import RelayedResponse

CONTROL_BODY_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 128 * 1024
PATIENCE_S = 0.05  # A response that takes longer to end is on a rendezvous, where its parts leave as they come.


class Outgoing:
    """One response; `close` it, whatever came of it."""

    def __init__(self, response: RelayedResponse) -> None:
        self._response = response
        self._held = response.body  # What is known of the body and has not left.
        self._parts = None if response.more is None else aiter(response.more)
        self._next: asyncio.Future[bytes | None] | None = None

    def head(self, number: str, *, has_body: bool) -> bytes:
        """The command that begins it."""
        told = self._response
        return commands.response(number, told.status, told.reason, told.headers, has_body)

    @property
    def may_have_body(self) -> bool:
        """Whether a body follows, even if nothing of it is there."""
        return bool(self._held) or self._parts is not None

    async def short_body(self) -> bytes | None:
        """All of the body, if it soon has ended and fits into the control channel."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while len(self._held) <= CONTROL_BODY_BYTES_MAX:
            if self._parts is None:
                return self._held
            coming = self._coming()
            await asyncio.wait({coming}, timeout=max(until - loop.time(), 0))
            if not coming.done():
                return None
            part = await self._take()
            if part is not None:
                self._held += part
        return None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body in parts of bounded size; at least one, so that an empty body is one too."""
        yield self._held[:CHUNK_BYTES]
        for start in range(CHUNK_BYTES, len(self._held), CHUNK_BYTES):
            yield self._held[start : start + CHUNK_BYTES]
        self._held = b""
        while self._parts is not None:
            part = await self._take() or b""
            for start in range(0, len(part), CHUNK_BYTES):
                yield part[start : start + CHUNK_BYTES]

    def _coming(self) -> asyncio.Future[bytes | None]:
        assert self._parts is not None
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._parts, None))
        return self._next

    async def _take(self) -> bytes | None:
        """The next part; None after the last."""
        try:
            part = await self._coming()
        finally:
            self._next = None
        if part is None:
            self._parts = None
        return part

    async def close(self) -> None:
        """Let go of whoever makes the body."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
        closes: Callable[[], Awaitable[Any]] | None = getattr(self._response.more, "aclose", None)
        if closes is not None:
            await closes()
