"""What the source of a receiving client's attach asks for, and the source as it is in force, which the reply tells.

A reply that repeats what is not done is a lie that the client acts on. So what would change which messages a client
gets, or what becomes of them, is done or refused; what is only a wish is left out of the reply.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from twinbus.amqp.performatives import Source
from twinbus.amqp.types import Described, Symbol
from twinbus.model.errors import BusError, Fault
from twinbus.wire import outcomes
from twinbus.wire.sessions import WantedSession, granted_filter, is_session_filter, read_session_filter

MOVE, COPY = "move", "copy"
_OUTCOMES = {f"amqp:{name}:list" for name in ("accepted", "rejected", "released", "modified")}
_CAPABILITIES = {"queue"}  # Each message goes to one receiver; of a subscription's copies, too.
_LINK_DETACH = Symbol("link-detach")


class Wanted(NamedTuple):
    """What a receiving client asks for."""

    session: WantedSession | None = None
    copies: bool = False  # It looks at messages that stay where they are.
    default: outcomes.Decision | None = None  # What a delivery that is settled without an outcome comes to.


def read(source: Source) -> Wanted:
    """What the source asks for; a BusError when that cannot be had."""
    if source.dynamic:
        raise BusError(Fault.NOT_IMPLEMENTED, "Dynamic nodes are not offered.")
    mode = source.distribution_mode
    if mode not in (None, MOVE, COPY):
        raise BusError(Fault.NOT_IMPLEMENTED, f"The distribution mode '{mode[:40]}' is not known: it is move or copy.")
    if mode == COPY and source.durable:
        raise BusError(
            Fault.NOT_IMPLEMENTED,
            "A durable source that copies is not offered: messages of a subscription are received from its own path"
            " without a distribution mode, and looked at with a source that is not durable.",
        )
    for name, value in (source.filter or {}).items():
        if not is_session_filter(name, value):
            raise BusError(Fault.NOT_IMPLEMENTED, f"The filter '{_told(name, value)}' is not offered.")
    return Wanted(read_session_filter(source.filter), mode == COPY, outcomes.read(source.default_outcome))


def _told(name: object, value: object) -> str:
    """A filter as its sender calls it: by its type, where it has one."""
    descriptor = value.descriptor if isinstance(value, Described) else None
    known = descriptor if isinstance(descriptor, str) else name
    return str(known)[:80]


def in_force(source: Source, session_id: str | None = None) -> Source | None:
    """The source to reply with, which names the session that is granted; None where it can be echoed as it came."""
    changed: dict[str, Any] = {}
    if source.durable or source.expiry_policy == "never":
        changed |= {"durable": 0, "expiry_policy": _LINK_DETACH, "timeout": 0}
    for name, known in (("outcomes", _OUTCOMES), ("capabilities", _CAPABILITIES)):
        asked = getattr(source, name) or []
        if not known.issuperset(asked):
            changed[name] = [each for each in asked if each in known] or None
    if session_id is not None:
        changed["filter"] = granted_filter(session_id, source.filter)
    return replace(source, **changed) if changed else None
