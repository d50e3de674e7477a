"""Accepting a session: the attach is held back until the session is granted, refused, or its time is over.

The grant itself is the store's; holding, renewing and losing it concern the `Egress` that follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.amqp.link import Link
from twinbus.amqp.types import ULong
from twinbus.entities.feed import SessionRequest
from twinbus.gateway.egress import Egress
from twinbus.gateway.node import Node
from twinbus.model import limits
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import SessionGrant
from twinbus.model.security import Rights
from twinbus.wire import sessions as wire
from twinbus.wire import source as wire_source

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection


class SessionAttach(Node):
    """An attach that waits for its session; in the connection's list of links it stands for the link until then."""

    right = Rights.LISTEN

    def __init__(self, connection: ClientConnection, link: Link, egress: Egress, session: str | None) -> None:
        self.connection = connection
        self.link = link
        self.path = egress.path
        self._egress = egress
        self._request = SessionRequest(session, egress.owner, egress.holder, egress.origin, self._answered)
        self._timer: asyncio.TimerHandle | None = None
        assert link.remote is not None
        self._remote = link.remote

    def begin(self) -> None:
        """Ask for the session; a wish for any free one waits as long as the client said."""
        wait_ms = wire.read_timeout_ms(self._remote.properties) or limits.SESSION_WAIT_MS_DEFAULT
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._timed_out)
        self.connection.enter(self.link, self)
        self._egress.feed.request_session(self._request)

    def _answered(self, grant: SessionGrant | None, error: BusError | None) -> None:
        if grant is None:
            self._refuse(error or BusError(Fault.SESSION_HELD, "The session is held by another receiver."))
            return
        self._stop_timer()
        egress, link = self._egress, self.link
        egress.session = grant.session_id
        link.accept(
            source=wire_source.in_force(self._remote.source, grant.session_id),
            max_message_size=ULong(limits.MESSAGE_BYTES_MAX),
            properties=wire.granted_properties(grant.locked_until_ms),
        )
        self.connection.nodes[link] = egress
        egress.feed.seat(egress)
        egress.flow()
        self.connection.mark_dirty()

    def _timed_out(self) -> None:
        self._refuse(BusError(Fault.TIMEOUT, f"No session of '{self.path}' became available in time."))

    def _refuse(self, error: BusError) -> None:
        self.closed()
        self.connection.nodes.pop(self.link, None)
        self.link.refuse(self.connection.context.refusal(error, self.path, "accept session"))
        self.connection.mark_dirty()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def closed(self) -> None:
        """The client gave up, or was refused."""
        self._stop_timer()
        self._egress.feed.withdraw(self._request)
        self._egress.closed()
