"""What a connection tells its caller: values that `receive`, `tick` and `sasl_outcome` return.

Nothing here acts; the answers are methods of `Connection`, `Session` and `Link`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.amqp.link import Link
    from twinbus.amqp.performatives import Error, Open
    from twinbus.amqp.session import Session

# (delivery id, delivery tag, message format, settled by the sender, payload)
Delivery = tuple[int, bytes, int, bool, bytes]
# (delivery id, delivery tag, delivery state or None, settled by the peer)
Settlement = tuple[int, bytes, Any, bool]


@dataclass(slots=True)
class SaslInit:
    """Server role: the client chose a mechanism; answer with `Connection.sasl_outcome`."""

    mechanism: str
    response: bytes | None
    hostname: str | None


@dataclass(slots=True)
class Opened:
    """The peer's open arrived; ours has been queued."""

    performative: Open


@dataclass(slots=True)
class SessionBegun:
    """The peer began a session, or answered our begin."""

    session: Session


@dataclass(slots=True)
class SessionEnded:
    """The session and all its links are gone, by the peer's end or by a violation of its own."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class LinkAttached:
    """The peer attached a link: answer with `Link.accept` or `Link.refuse`. Or it answered our attach."""

    link: Link


@dataclass(slots=True)
class LinkDetached:
    """The link is gone. Comes once for each link, unless its session or connection goes first."""

    link: Link
    closed: bool
    error: Error | None


@dataclass(slots=True)
class LinkFlow:
    """The peer's flow for a link: `credit`, `drain` and `available` of the link are up to date."""

    link: Link


@dataclass(slots=True)
class WindowOpened:
    """The peer takes transfers on a session again, for somebody who set `wants_window`."""

    session: Session


@dataclass(slots=True)
class Deliveries:
    """Whole deliveries that arrived on one link, in order."""

    link: Link
    items: list[Delivery]


@dataclass(slots=True)
class Oversized:
    """A delivery larger than the link takes: its bytes were dropped, its outcome is for the caller to give."""

    link: Link
    delivery_id: int
    tag: bytes
    settled: bool
    size: int


@dataclass(slots=True)
class Settlements:
    """What the peer said of deliveries on one link: ours as a sender, or its own as a receiver's answer."""

    link: Link
    items: list[Settlement]


@dataclass(slots=True)
class ConnectionClosed:
    """The peer closed the connection, or answered our close."""

    error: Error | None


@dataclass(slots=True)
class ConnectionFailed:
    """The connection was given up for a violation, a time-out or failed authentication."""

    error: Error


Event = (
    SaslInit
    | Opened
    | SessionBegun
    | SessionEnded
    | LinkAttached
    | LinkDetached
    | LinkFlow
    | WindowOpened
    | Deliveries
    | Oversized
    | Settlements
    | ConnectionClosed
    | ConnectionFailed
)
