"""Our end of a link on a session of its own: attaching, losing and closing it.

What goes over the link is left to `sender`, `receiver` and `authorisation`; bytes and events to `stream`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.events import Delivery, Settlement
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Source, Target
from twinbus.amqp.types import Symbol
from twinbus.client.errors import LINK_CLOSED, TIMED_OUT, ClientError

if TYPE_CHECKING:
    from twinbus.client.stream import Stream

T = TypeVar("T")


class Endpoint:
    """Our end of one link, or of two that belong together. A session of its own keeps it apart from the others."""

    def __init__(self, stream: Stream, path: str) -> None:
        self.stream = stream
        self.path = path
        self.error: ClientError | None = stream.error
        self.loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self.check()
        self.session = stream.core.begin()
        self.session.context = self
        stream.endpoints.add(self)

    def attach(
        self,
        role: LinkRole,
        source: Source,
        target: Target,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        properties: dict[Symbol, object] | None = None,
    ) -> Link:
        """Queues the attach; `ready` waits for its answer."""
        name = f"{self.path}-{uuid4().hex}"
        link = self.session.attach(
            name,
            role,
            source,
            target,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            properties=properties,
        )
        link.context = self
        self.stream.mark_dirty()
        return link

    async def ready(self, timeout_s: float) -> None:
        """Waits until the peer has attached; raises why it did not."""
        try:
            await within(timeout_s, self._ready, f"attaching to '{self.path}'")
        except BaseException:
            self.lost(ClientError(LINK_CLOSED, f"the link to '{self.path}' was given up"))
            raise

    def check(self) -> None:
        """Raises why the link is gone, if it is; what was to be done now has certainly not happened."""
        if self.error is not None:
            raise self.error.but(definite=True)

    # What the stream tells

    def attached(self, link: Link) -> None:
        """The peer answered the attach. When it refuses, a detach with the reason follows."""
        if not link.refused and not self._ready.done():
            self._ready.set_result(None)

    def flowed(self, link: Link) -> None:
        """Credit changed."""

    def received(self, link: Link, items: list[Delivery]) -> None:
        """Deliveries came."""

    def settled(self, link: Link, items: list[Settlement]) -> None:
        """Outcomes came."""

    def resumed(self) -> None:
        """The connection can be written to again."""

    def ended(self) -> None:
        """The session is over on both sides."""
        if not self._gone.done():
            self._gone.set_result(None)

    def lost(self, error: ClientError) -> None:
        """The link is gone; from now on every use raises the error."""
        if self.error is not None:
            return
        self.error = error
        self.session.end()
        self.stream.mark_dirty()
        self.stream.endpoints.discard(self)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # Nobody may be waiting for it.

    async def close(self) -> None:
        """Detaches, and waits until the peer knows."""
        if self.error is None:
            for link in list(self.session.links.values()):
                link.detach()
            self.lost(ClientError(LINK_CLOSED, f"the link to '{self.path}' was closed"))
            # A connection that is lost meanwhile knows nothing more of this link, and has no answer to it.
            over = asyncio.wait({self._gone, self.stream.closed}, return_when=asyncio.FIRST_COMPLETED)
            await within(self.stream.timeout_s, over, f"closing the link to '{self.path}'")


async def within(timeout_s: float, work: Awaitable[T], what: str) -> T:
    """The work's result, or a ClientError that names what took too long."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise ClientError(TIMED_OUT, f"{what} took longer than {timeout_s:g} s") from None


async def to_its_end(work: Awaitable[T]) -> T:
    """Does something that must not stop half-way, even when the caller is told to stop."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
