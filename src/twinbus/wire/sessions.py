"""Message sessions in attach frames: the filter that asks for one, the reply that grants it.

Who holds which session is decided by the entities; when the attach is answered, by the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from twinbus.amqp.types import Described, Long, Symbol
from twinbus.model.errors import BusError, Fault
from twinbus.wire.fields import storable

SESSION_FILTER = Symbol("com.microsoft:session-filter")
SESSION_FILTER_CODE = 0x137000000C
LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")
TIMEOUT = Symbol("com.microsoft:timeout")

_TICKS_AT_EPOCH = 621_355_968_000_000_000
_TICKS_IN_MS = 10_000


class WantedSession(NamedTuple):
    """What a receiver asks for: the session of that id, or with None the next one that is free."""

    session_id: str | None


def is_session_filter(key: object, value: object) -> bool:
    """Whether an entry of a source's filter is the one that asks for a session."""
    described = isinstance(value, Described) and value.descriptor in (SESSION_FILTER, SESSION_FILTER_CODE)
    return key == SESSION_FILTER or described


def read_session_filter(source_filter: Mapping[Any, Any] | None) -> WantedSession | None:
    """The session that a source's filter asks for; None when it asks for no session at all.

    The clients send the id plain; others send it described by the filter's name or code.
    """
    for key, value in (source_filter or {}).items():
        if not is_session_filter(key, value):
            continue
        wanted = value.value if isinstance(value, Described) else value
        if wanted is not None and not isinstance(wanted, str):
            raise BusError(Fault.ARGUMENT, "The session filter is neither a session id nor null.")
        return WantedSession(None if wanted is None else storable(str(wanted), "session id"))
    return None


def granted_filter(session_id: str, asked: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """The filter of the source in the attach that grants a session, in the form in which it was asked for.

    The Go client asks by a described value, and ends its connection when the answer is a plain one.
    """
    for key, value in (asked or {}).items():
        if is_session_filter(key, value):
            return {key: Described(value.descriptor, session_id) if isinstance(value, Described) else session_id}
    return {SESSION_FILTER: session_id}


def granted_properties(locked_until_ms: int) -> dict[Symbol, Long]:
    """The link properties of that attach."""
    return {LOCKED_UNTIL: Long(to_ticks(locked_until_ms))}


def read_timeout_ms(link_properties: Mapping[Any, Any] | None) -> int | None:
    """How long the receiver will wait for a session, if it says so."""
    value = (link_properties or {}).get(TIMEOUT)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**32:
        return int(value)
    return None


def to_ticks(instant_ms: int) -> int:
    """An instant in .NET ticks: 100 ns since the year 1."""
    return _TICKS_AT_EPOCH + instant_ms * _TICKS_IN_MS


def from_ticks(ticks: int) -> int:
    """Milliseconds since the Unix epoch."""
    return (ticks - _TICKS_AT_EPOCH) // _TICKS_IN_MS
