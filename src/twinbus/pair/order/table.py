"""Order through an outage: where the earlier messages of a session are, as far as a client can know.

A pure table. While messages of a session may be in the backlog, later ones go there too, even to a healthy primary's
cost (`route.router`); the session returns when the backlog, asked for it, has none. Asking and sending is left to
`ordered_backlog`.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256

from twinbus.model.address import ORDERED_BACKLOG_PART
from twinbus.model.entity import QueueDescription
from twinbus.pair.backlog.queues import DOCUMENTED

TRANSFER_ORDERED = ORDERED_BACKLOG_PART.strip("/")
# One that is as a backlog queue is, and in which a session stays in order.
ORDERED_SETTINGS = {**DOCUMENTED, "requires_session": True}


class Place(Enum):
    """Where the earlier messages of a session are, as far as this client knows."""

    UNKNOWN = "unknown"  # Nothing was sent since the client began: the backlog must be asked.
    HOME = "home"  # All at the primary.
    BEHIND = "behind"  # Some may be in the backlog.


class Sign(Enum):
    """What is learnt of a session."""

    NONE_THERE = "the backlog has none of it"
    SOME_THERE = "the backlog has some of it"
    DIVERTING = "one is about to go to the backlog"


PLACES: dict[tuple[Place, Sign], Place] = {
    **{(place, Sign.NONE_THERE): Place.HOME for place in Place},
    **{(place, Sign.SOME_THERE): Place.BEHIND for place in Place},
    # Learnt before the send, because a send whose answer is lost may have arrived.
    **{(place, Sign.DIVERTING): Place.BEHIND for place in Place},
}


def path(primary: str, index: int) -> str:
    """An ordered backlog queue's path in the secondary."""
    return f"{primary}/{TRANSFER_ORDERED}/{index}"


def description(primary: str, index: int) -> QueueDescription:
    """An ordered backlog queue as it is created."""
    return QueueDescription(name=path(primary, index), **ORDERED_SETTINGS)  # type: ignore[arg-type]


def session_of(entity: str, key: str) -> str:
    """The session in the backlog that stands for a session or key of an entity; for ever the same."""
    return sha256(f"{entity.lower()}\n{key}".encode()).hexdigest()


def index_of(session: str, count: int) -> int:
    """Which of the ordered backlog queues a session of the backlog is in; for ever the same."""
    return int(session[:16], 16) % count
