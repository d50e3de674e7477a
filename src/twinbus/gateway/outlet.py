"""How much may leave on a connection now: frames within the windows of its sessions, bytes within its output buffer.

Both are shared by several links. A message that is received and deleted is gone from the store before it is sent, so
that nothing is fetched for which there is no room; who found none is told when there is some.
"""

from __future__ import annotations

import asyncio

from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.entities.feed import ACQUIRE_MAX
from twinbus.gateway.node import Node

BUFFER_BYTES = 1024 * 1024  # With more than this unwritten, nothing new is fetched.


class Outlet:
    """The way out of one connection; `nodes` are those of its links."""

    def __init__(self, nodes: dict[Link, Node]) -> None:
        self._nodes = nodes
        self._transport: asyncio.Transport | None = None
        self.is_full = False  # The peer does not read as fast as it is written to.
        self.is_stopped = False  # Nothing is to be said.
        self.deleting_links = 0  # Links that receive and delete.

    def opened(self, transport: asyncio.Transport) -> None:
        """The connection can be written to."""
        self._transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def emptied(self) -> None:
        """The peer reads again."""
        self.is_full = False
        self.resume()

    def restarted(self) -> None:
        """Something may be said again."""
        self.is_stopped = False
        self.resume()

    @property
    def is_closed(self) -> bool:
        """Whether nothing may be fetched for any link."""
        return self.is_full or self.is_stopped

    def frames(self, node: Node, session: Session) -> int:
        """How many frames a node may fetch and send: what the window takes, without what others are fetching."""
        if self.is_closed:
            return 0
        free = session.sendable_frames
        if free < ACQUIRE_MAX * len(session.links):
            free -= sum(
                other.frames_under_way
                for link, other in self._nodes.items()
                if link.session is session and other is not node
            )
        if free > 0:
            return free
        session.wants_window = True
        return 0

    def bytes_for_each(self) -> int:
        """How many bytes each of the links that receive and delete may fetch, so that all fit into the buffer."""
        used = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return max(BUFFER_BYTES - used, 0) // max(self.deleting_links, 1)

    def fetched(self, node: Node, session: Session) -> None:
        """A node has what it fetched, or ends: what it did not need is for those who found no room before it."""
        if session.wants_window:
            session.wants_window = False
            self.resume(session, but=node)

    def resume(self, session: Session | None = None, but: Node | None = None) -> None:
        """Have the nodes of one session, or all, see whether there is room for them now."""
        for link, node in list(self._nodes.items()):
            if node is not but and (session is None or link.session is session):
                node.resume()
