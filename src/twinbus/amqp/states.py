"""The state machines of connection, session and link as tables: (state, signal) -> state.

A pair that is missing from a table is a violation; what it costs the peer is left to `connection`.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from twinbus.amqp.conditions import ILLEGAL_STATE, ViolationError


class Phase(Enum):
    """Where a connection is in its life."""

    HEADER = "waiting for a protocol header"
    SASL = "exchanging SASL frames"
    SASL_DECISION = "the server decides about the client"
    SASL_DONE = "authenticated, waiting for the AMQP header"
    OPENING = "waiting for open"
    OPEN = "open"
    CLOSING = "close sent, waiting for close"
    CLOSED = "closed"
    FAILED = "given up; input is ignored"


class Signal(Enum):
    """What can happen to a connection, a session or a link."""

    SASL_HEADER = "SASL header received"
    AMQP_HEADER = "AMQP header received"
    SASL_MECHANISMS = "sasl-mechanisms received"
    SASL_INIT = "sasl-init received"
    SASL_OUTCOME = "sasl-outcome given"
    OPEN = "open received"
    CLOSE = "close received"
    SEND_CLOSE = "close sent"
    FAIL = "violation or time-out"
    BEGIN = "begin received"
    SEND_BEGIN = "begin sent"
    END = "end received"
    SEND_END = "end sent"
    ATTACH = "attach received"
    SEND_ATTACH = "attach sent"
    DETACH = "detach received"
    SEND_DETACH = "detach sent"


CONNECTION: dict[tuple[Phase, Signal], Phase] = {
    (Phase.HEADER, Signal.SASL_HEADER): Phase.SASL,
    (Phase.HEADER, Signal.AMQP_HEADER): Phase.OPENING,
    (Phase.SASL, Signal.SASL_MECHANISMS): Phase.SASL,
    (Phase.SASL, Signal.SASL_INIT): Phase.SASL_DECISION,
    (Phase.SASL, Signal.SASL_OUTCOME): Phase.SASL_DONE,
    (Phase.SASL_DECISION, Signal.SASL_OUTCOME): Phase.SASL_DONE,
    (Phase.SASL_DONE, Signal.AMQP_HEADER): Phase.OPENING,
    (Phase.OPENING, Signal.OPEN): Phase.OPEN,
    (Phase.OPENING, Signal.SEND_CLOSE): Phase.CLOSING,
    (Phase.OPEN, Signal.SEND_CLOSE): Phase.CLOSING,
    (Phase.OPEN, Signal.CLOSE): Phase.CLOSED,
    (Phase.CLOSING, Signal.OPEN): Phase.CLOSING,
    (Phase.CLOSING, Signal.CLOSE): Phase.CLOSED,
} | {(phase, Signal.FAIL): Phase.FAILED for phase in Phase}


class SessionState(Enum):
    """Where a session is in its life (2.5.5)."""

    UNMAPPED = "not begun, or ended on both sides"
    BEGIN_SENT = "begin sent"
    BEGIN_RECEIVED = "begin received"
    MAPPED = "begun on both sides"
    END_SENT = "end sent; input is ignored until the peer's end"


SESSION: dict[tuple[SessionState, Signal], SessionState] = {
    (SessionState.UNMAPPED, Signal.SEND_BEGIN): SessionState.BEGIN_SENT,
    (SessionState.UNMAPPED, Signal.BEGIN): SessionState.BEGIN_RECEIVED,
    (SessionState.BEGIN_SENT, Signal.BEGIN): SessionState.MAPPED,
    (SessionState.BEGIN_RECEIVED, Signal.SEND_BEGIN): SessionState.MAPPED,
    (SessionState.BEGIN_SENT, Signal.SEND_END): SessionState.END_SENT,
    (SessionState.MAPPED, Signal.SEND_END): SessionState.END_SENT,
    (SessionState.MAPPED, Signal.END): SessionState.UNMAPPED,
    (SessionState.END_SENT, Signal.BEGIN): SessionState.END_SENT,
    (SessionState.END_SENT, Signal.END): SessionState.UNMAPPED,
}


class LinkState(Enum):
    """Where a link is in its life (2.6.3)."""

    DETACHED = "not attached, or detached on both sides"
    ATTACH_SENT = "attach sent"
    ATTACH_RECEIVED = "attach received; it is for the caller to accept or refuse"
    ATTACHED = "attached on both sides"
    DETACH_SENT = "detach sent; input is ignored until the peer's detach"


LINK: dict[tuple[LinkState, Signal], LinkState] = {
    (LinkState.DETACHED, Signal.SEND_ATTACH): LinkState.ATTACH_SENT,
    (LinkState.DETACHED, Signal.ATTACH): LinkState.ATTACH_RECEIVED,
    (LinkState.ATTACH_SENT, Signal.ATTACH): LinkState.ATTACHED,
    (LinkState.ATTACH_RECEIVED, Signal.SEND_ATTACH): LinkState.ATTACHED,
    (LinkState.ATTACH_SENT, Signal.SEND_DETACH): LinkState.DETACH_SENT,
    (LinkState.ATTACHED, Signal.SEND_DETACH): LinkState.DETACH_SENT,
    (LinkState.ATTACHED, Signal.DETACH): LinkState.DETACHED,
    (LinkState.DETACH_SENT, Signal.ATTACH): LinkState.DETACH_SENT,
    (LinkState.DETACH_SENT, Signal.DETACH): LinkState.DETACHED,
}

S = TypeVar("S", bound=Enum)


def step(table: dict[tuple[S, Signal], S], state: S, signal: Signal) -> S:
    """The state that follows; a `ViolationError` when the signal is not allowed in this state."""
    following = table.get((state, signal))
    if following is None:
        raise ViolationError(ILLEGAL_STATE, f"{signal.value} while {state.value}")
    return following
