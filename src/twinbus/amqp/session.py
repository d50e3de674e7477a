"""One session: begin and end, and the links with their handles (Part 2, section 2.5).

Windows, delivery ids and settlement are left to `traffic`; frames are written by the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.conditions import FRAMING_ERROR, HANDLE_IN_USE, RESOURCE_LIMIT_EXCEEDED, ViolationError
from twinbus.amqp.events import Event, LinkAttached, SessionEnded
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import MAX_UINT, Attach, Begin, Detach, End, Error
from twinbus.amqp.states import SESSION, LinkState, SessionState, Signal, step
from twinbus.amqp.traffic import Traffic
from twinbus.amqp.types import Raw

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection


class Session(Traffic):
    """One end of a session. `context` belongs to the caller."""

    __slots__ = (
        "_free_handles",
        "_next_handle",
        "context",
        "links",
        "remote",
        "remote_channel",
        "reported",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        super().__init__(connection, channel)
        self.context: Any = None
        self.remote: Begin | None = None
        self.remote_channel: int | None = None
        self.reported = False
        # Our links by our handle.
        self.links: dict[int, Link] = {}
        self._next_handle = 0
        self._free_handles: list[int] = []

    # --- begin and end ---

    def begin(self) -> None:
        """Sends begin, as the first or as the answer to the peer's."""
        settings = self.connection.settings
        self._move(Signal.SEND_BEGIN)
        self.connection.send(
            self.channel,
            Begin(
                remote_channel=self.remote_channel,
                next_outgoing_id=self.next_outgoing_id & MAX_UINT,
                incoming_window=settings.incoming_window,
                outgoing_window=MAX_UINT,
                handle_max=settings.handle_max,
            ),
        )

    def on_begin(self, begin: Begin, channel: int) -> None:
        """Takes over what the peer's begin says."""
        self._move(Signal.BEGIN)
        self.remote = begin
        self.remote_channel = channel
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window

    def end(self, error: Error | None = None) -> None:
        """Ends the session and with it all its links. The peer's answer comes as `SessionEnded`."""
        if self.state not in (SessionState.MAPPED, SessionState.BEGIN_SENT):
            return
        self.connection.send(self.channel, End(error))
        self._move(Signal.SEND_END)
        self.connection.channels.ending(self)
        self.stop()

    def fail(self, condition: str, description: str, events: list[Event]) -> None:
        """Ends the session because the peer broke one of its rules; the connection goes on."""
        if self.state is not SessionState.MAPPED:
            return
        error = Error(condition, description)
        self.end(error)
        self.reported = True
        events.append(SessionEnded(self, error))

    def on_end(self, end: End, events: list[Event]) -> None:
        """The peer ended the session, or answered our end."""
        if self.state is SessionState.MAPPED:
            self.connection.send(self.channel, End())
        self._move(Signal.END)
        self.stop()
        self.connection.channels.ended(self)
        if not self.reported:
            self.reported = True
            events.append(SessionEnded(self, end.error))

    def _move(self, signal: Signal) -> None:
        self.state = step(SESSION, self.state, signal)

    def stop(self) -> None:
        """Nothing moves any more, because the session or its connection is over."""
        self.waiting.clear()
        self.outgoing.clear()
        self.incoming.clear()
        for link in self.links.values():
            link.sending = link.receiving = False
            link.state = LinkState.DETACHED

    # --- links ---

    def attach(
        self,
        name: str,
        role: LinkRole,
        source: Any,
        target: Any,
        *,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
        desired_capabilities: list[Any] | None = None,
    ) -> Link:
        """Attaches a link from our side. The peer's answer comes as `LinkAttached`; look at `Link.refused`."""
        link = self._new_link(name, role)
        if max_message_size is not None:
            link.limit_message_size(max_message_size)
        link.move(Signal.SEND_ATTACH)
        self.connection.send(
            self.channel,
            Attach(
                name,
                link.handle,
                bool(role),
                snd_settle_mode,
                rcv_settle_mode,
                source,
                target,
                initial_delivery_count=None if role else 0,
                max_message_size=max_message_size,
                desired_capabilities=desired_capabilities,
                properties=properties,
            ),
        )
        return link

    def _new_link(self, name: str, role: LinkRole) -> Link:
        if self._free_handles:
            handle = self._free_handles.pop()
        else:
            handle = self._next_handle
            self._next_handle += 1
        link = self.links[handle] = Link(self, name, role, handle)
        return link

    def on_attach(self, attach: Attach, termini: tuple[bytes | None, bytes | None], events: list[Event]) -> None:
        """The peer attached a link or answered our attach; the termini are given as they came, too."""
        handle_max = self.connection.settings.handle_max
        if attach.handle > handle_max:
            raise ViolationError(FRAMING_ERROR, f"handle {attach.handle} is above the maximum {handle_max}")
        if attach.handle in self._links_by_remote:
            self.fail(HANDLE_IN_USE, f"handle {attach.handle} is in use", events)
            return
        role = LinkRole.SENDER if attach.role else LinkRole.RECEIVER
        link = self._awaiting_answer(attach.name, role)
        known = link is not None
        if link is None:
            link = self._new_link(attach.name, role)
        self._links_by_remote[attach.handle] = link
        link.remote_source, link.remote_target = (None if raw is None else Raw(raw) for raw in termini)
        link.on_attach(attach)
        if not known and len(self.links) > self.connection.settings.max_links:
            link.reported = True
            link.refuse(Error(RESOURCE_LIMIT_EXCEEDED, "the session has too many links"))
        elif link.state is not LinkState.DETACH_SENT:
            events.append(LinkAttached(link))

    def _awaiting_answer(self, name: str, role: LinkRole) -> Link | None:
        for link in self.links.values():
            if link.remote is None and link.name == name and link.role is role:
                return link
        return None

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """The peer detached a link. An unknown handle is forgiven: one client detaches what is gone already."""
        link = self._links_by_remote.get(detach.handle)
        if link is not None:
            link.on_detach(detach, events)

    def forget_link(self, link: Link) -> None:
        """Both ends are detached: the handles may be used again."""
        self.forget_deliveries(link)
        self.links.pop(link.handle, None)
        self._free_handles.append(link.handle)
        if link.remote_handle is not None:
            self._links_by_remote.pop(link.remote_handle, None)

    def forget_deliveries(self, link: Link) -> None:
        """The unsettled deliveries of a link end with it; there is no resumption."""
        for entries in (self.outgoing, self.incoming):
            for delivery_id in [key for key, entry in entries.items() if entry[0] is link]:
                del entries[delivery_id]
