"""One link: attaching, refusing, detaching, and credit (Part 2, section 2.6).

Its deliveries are left to `carrier`; whether a link or a message is welcome is left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.amqp.carrier import Carrier, LinkRole
from twinbus.amqp.events import Event, LinkDetached, LinkFlow
from twinbus.amqp.performatives import MAX_UINT, Attach, Detach, Error, Flow
from twinbus.amqp.states import LINK, LinkState, Signal, step
from twinbus.amqp.types import Raw

if TYPE_CHECKING:
    from twinbus.amqp.session import Session


class Link(Carrier):
    """One end of a link. `role` is our end's; `remote` is the peer's attach; `context` belongs to the caller."""

    __slots__ = (
        "available",
        "context",
        "drain",
        "max_message_size",
        "rcv_settle_mode",
        "remote",
        "remote_handle",
        "remote_source",
        "remote_target",
        "reported",
        "snd_settle_mode",
        "state",
    )

    def __init__(self, session: Session, name: str, role: LinkRole, handle: int) -> None:
        super().__init__(session, name, role, handle)
        self.context: Any = None
        self.state = LinkState.DETACHED
        # The peer's attach, its handle, and its termini as they came, to be echoed byte for byte.
        self.remote: Attach | None = None
        self.remote_handle: int | None = None
        self.remote_source: Raw | None = None
        self.remote_target: Raw | None = None
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        self.drain = False
        self.available: int | None = None
        self.max_message_size = session.connection.settings.max_message_size
        self.reported = False

    # --- what the caller reads ---

    @property
    def attached(self) -> bool:
        """True while both ends are attached."""
        return self.state is LinkState.ATTACHED

    @property
    def credit_left(self) -> int:
        """As a receiver: deliveries that the peer may still send; below zero when it sent more than that."""
        return self.credit

    @property
    def sendable(self) -> int:
        """As a sender: deliveries that credit and the limit of unsettled deliveries let us send now."""
        if not self.sending:
            return 0
        session = self.session
        return max(0, min(self.credit, session.connection.settings.max_unsettled - len(session.outgoing)))

    @property
    def refused(self) -> bool:
        """True when the peer answered our attach without the terminus that it would have to provide."""
        if self.remote is None:
            return False
        return (self.remote.target if self.role is LinkRole.SENDER else self.remote.source) is None

    # --- attaching and detaching ---

    def accept(
        self,
        source: Any = None,
        target: Any = None,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
        initial_delivery_count: int = 0,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
    ) -> None:
        """Answers the peer's attach. Termini and settle modes that are not given are echoed."""
        if self.state is not LinkState.ATTACH_RECEIVED:
            return
        if snd_settle_mode is not None:
            self.snd_settle_mode = snd_settle_mode
        if rcv_settle_mode is not None:
            self.rcv_settle_mode = rcv_settle_mode
        if self.role is LinkRole.SENDER:
            self.delivery_count = initial_delivery_count
        elif max_message_size is None:
            max_message_size = self.max_message_size
        else:
            self.limit_message_size(max_message_size)
        self.move(Signal.SEND_ATTACH)
        self.session.connection.send(
            self.session.channel,
            Attach(
                self.name,
                self.handle,
                bool(self.role),
                self.snd_settle_mode,
                self.rcv_settle_mode,
                source=self.remote_source if source is None else source,
                target=self.remote_target if target is None else target,
                initial_delivery_count=None if self.role else initial_delivery_count,
                max_message_size=max_message_size,
                properties=properties,
            ),
        )

    def refuse(self, error: Error) -> None:
        """Answers the peer's attach without the terminus that would be ours, and detaches for good (2.6.3)."""
        if self.state is not LinkState.ATTACH_RECEIVED:
            return
        self._answer_without_terminus()
        self.detach(error)

    def _answer_without_terminus(self) -> None:
        self.move(Signal.SEND_ATTACH)
        sender = self.role is LinkRole.SENDER
        self.session.connection.send(
            self.session.channel,
            Attach(
                self.name,
                self.handle,
                bool(self.role),
                self.snd_settle_mode,
                self.rcv_settle_mode,
                source=None if sender else self.remote_source,
                target=self.remote_target if sender else None,
                initial_delivery_count=0 if sender else None,
            ),
        )

    def detach(self, error: Error | None = None, closed: bool = True) -> None:
        """Detaches the link. The peer's answer comes as `LinkDetached`."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self._answer_without_terminus()
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        self.move(Signal.SEND_DETACH)
        self.session.forget_deliveries(self)
        self.session.send_behind_transfers(Detach(self.handle, closed, error))

    def fail(self, condition: str, description: str, events: list[Event]) -> None:
        """Detaches the link because the peer broke a rule on it; the rest of the session goes on."""
        error = Error(condition, description)
        self.detach(error)
        self.reported = True
        events.append(LinkDetached(self, True, error))

    def limit_message_size(self, size: int) -> None:
        """Sets the largest message that is taken; 0 means the connection's own limit."""
        settings = self.session.connection.settings
        self.max_message_size = size
        self.size_limit = (size or settings.max_message_size) + settings.message_size_slack

    def move(self, signal: Signal) -> None:
        self.state = state = step(LINK, self.state, signal)
        self.sending = state is LinkState.ATTACHED and self.role is LinkRole.SENDER
        taking = state is LinkState.ATTACHED or state is LinkState.ATTACH_RECEIVED
        self.receiving = taking and self.role is LinkRole.RECEIVER
        if not taking:
            self._partial = None

    def on_attach(self, attach: Attach) -> None:
        """Takes over what the peer's attach says."""
        self.move(Signal.ATTACH)
        self.remote = attach
        self.remote_handle = attach.handle
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        if self.role is LinkRole.RECEIVER:
            self.delivery_count = attach.initial_delivery_count or 0

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """The peer detached, or answered our detach."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self._answer_without_terminus()
        if self.state is LinkState.ATTACHED:
            self.session.send_behind_transfers(Detach(self.handle, detach.closed))
        self.move(Signal.DETACH)
        self.session.forget_link(self)
        if not self.reported:
            self.reported = True
            events.append(LinkDetached(self, detach.closed, detach.error))

    # --- credit ---

    def grant(self, credit: int, drain: bool = False) -> None:
        """As a receiver: lets the peer send `credit` deliveries from now on; with `drain`, now or never."""
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        self.credit = credit
        self.drain = drain
        self.session.send_flow(self)

    def drained(self) -> None:
        """As a sender: says that nothing more is there to send, and uses up the credit (2.6.7)."""
        if not self.sending:
            return
        if self.credit > 0:
            self.delivery_count += self.credit
        self.credit = 0
        self.drain = True
        self.session.send_flow(self, behind_transfers=True)
        self.drain = False

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Takes over the peer's view of the link (2.6.7)."""
        if self.role is LinkRole.SENDER:
            granted = flow.link_credit or 0
            if flow.delivery_count is not None:
                ahead = (flow.delivery_count - self.delivery_count) & MAX_UINT
                granted += ahead if ahead < 0x80000000 else ahead - 0x100000000
            self.credit = max(0, granted)
            self.drain = flow.drain
        else:
            self.available = flow.available
            if self.drain and flow.drain and not flow.link_credit:
                self.credit = 0
                self.drain = False
                if flow.delivery_count is not None:
                    self.delivery_count = flow.delivery_count
        events.append(LinkFlow(self))
        if flow.echo and not (self.drain and self.role is LinkRole.SENDER):
            self.session.send_flow(self)
