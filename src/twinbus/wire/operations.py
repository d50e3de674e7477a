"""The operations of `$management`: request bodies read into values, success bodies made.

A missing or mistyped field is a BusError of kind ARGUMENT. Carrying the operations out is left to the gateway
and the entities; the envelope around the bodies to `management`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.amqp.types import Array, Int, Long, Timestamp
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.wire.fields import storable
from twinbus.wire.management import Request
from twinbus.wire.outcomes import Decision, dead_letter

Body = Mapping[str, Any]

MAX_ITEMS = 5000  # Tokens, numbers or messages in one request.
_ALL_SESSIONS_FROM_MS = 253_402_300_799_000  # The clients' way of saying "whatever the time of the last change".


class RenewLocks(NamedTuple):
    """renew-lock"""

    tokens: list[bytes]


class PeekMessages(NamedTuple):
    """peek-message"""

    from_sequence_number: int
    limit: int
    session_id: str | None


class ReceiveDeferred(NamedTuple):
    """receive-by-sequence-number"""

    sequence_numbers: list[int]
    mode: ReceiveMode
    session_id: str | None


class UpdateDisposition(NamedTuple):
    """update-disposition"""

    tokens: list[bytes]
    decision: Decision
    session_id: str | None


class ScheduleMessages(NamedTuple):
    """schedule-message: the encoded messages; each carries its own id, session and time"""

    messages: list[bytes]


class CancelScheduled(NamedTuple):
    """cancel-scheduled-message"""

    sequence_numbers: list[int]


class RenewSessionLock(NamedTuple):
    """renew-session-lock"""

    session_id: str


class GetSessionState(NamedTuple):
    """get-session-state"""

    session_id: str


class SetSessionState(NamedTuple):
    """set-session-state: None clears it"""

    session_id: str
    state: bytes | None


class ListSessions(NamedTuple):
    """get-message-sessions: with None those that have messages or state"""

    updated_after_ms: int | None
    skip: int
    limit: int


class AddRule(NamedTuple):
    """add-rule: one of the two filters is given, or neither for one that takes everything"""

    name: str
    sql_filter: str | None
    correlation_filter: dict[str, Any] | None  # By the wire's names of the conditions.
    sql_action: str | None


class RemoveRule(NamedTuple):
    """remove-rule"""

    name: str


class EnumerateRules(NamedTuple):
    """enumerate-rules"""

    skip: int
    limit: int


class DeleteMessages(NamedTuple):
    """batch-delete-messages"""

    limit: int
    before_ms: int


Operation = (
    RenewLocks
    | PeekMessages
    | ReceiveDeferred
    | UpdateDisposition
    | ScheduleMessages
    | CancelScheduled
    | RenewSessionLock
    | GetSessionState
    | SetSessionState
    | ListSessions
    | AddRule
    | RemoveRule
    | EnumerateRules
    | DeleteMessages
)


def read_operation(request: Request) -> Operation:
    """What a request asks for; NOT_IMPLEMENTED for an operation we do not offer."""
    reader = _READERS.get(request.operation)
    if reader is None:
        raise BusError(Fault.NOT_IMPLEMENTED, f"The operation '{request.operation[:100]}' is not offered.")
    return reader(request.body)


def _renew_locks(body: Body) -> RenewLocks:
    return RenewLocks(_tokens(body))


def _peek_messages(body: Body) -> PeekMessages:
    return PeekMessages(_integer(body, "from-sequence-number"), _positive(body, "message-count"), _session(body))


def _receive_deferred(body: Body) -> ReceiveDeferred:
    mode = _integer(body, "receiver-settle-mode")
    if mode not in (0, 1):
        raise _wrong("receiver-settle-mode", "0 or 1")
    return ReceiveDeferred(
        _numbers(body),
        ReceiveMode.PEEK_LOCK if mode == 1 else ReceiveMode.RECEIVE_AND_DELETE,
        _session(body),
    )


_DISPOSITIONS = {
    "completed": Outcome.COMPLETE,
    "abandoned": Outcome.ABANDON,
    "defered": Outcome.DEFER,  # The service's own spelling.
    "deferred": Outcome.DEFER,
    "suspended": Outcome.DEAD_LETTER,
}


def _update_disposition(body: Body) -> UpdateDisposition:
    status = body.get("disposition-status")
    outcome = _DISPOSITIONS.get(status) if isinstance(status, str) else None
    if outcome is None:
        raise _wrong("disposition-status", "completed, abandoned, defered or suspended")
    changes = body.get("properties-to-modify")
    if changes is not None and not isinstance(changes, dict):
        raise _wrong("properties-to-modify", "a map")
    named = {str(key): value for key, value in changes.items()} if changes else None
    if outcome is Outcome.DEAD_LETTER:
        decision = dead_letter(body.get("deadletter-reason"), body.get("deadletter-description"), named)
    else:
        decision = Decision(outcome, changes=named)
    return UpdateDisposition(_tokens(body), decision, _session(body))


def _schedule_messages(body: Body) -> ScheduleMessages:
    messages = []
    for entry in _several(body, "messages"):
        message = entry.get("message") if isinstance(entry, dict) else None
        if not isinstance(message, bytes):
            raise _wrong("messages", "a list of maps, each with an encoded message")
        messages.append(bytes(message))
    return ScheduleMessages(messages)


def _list_sessions(body: Body) -> ListSessions:
    updated = _integer(body, "last-updated-time", minimum=None)
    return ListSessions(
        None if updated >= _ALL_SESSIONS_FROM_MS else updated, _integer(body, "skip"), _positive(body, "top")
    )


def _set_session_state(body: Body) -> SetSessionState:
    state = body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise _wrong("session-state", "binary or null")
    return SetSessionState(_needed_session(body), None if state is None else bytes(state))


def _add_rule(body: Body) -> AddRule:
    description = body.get("rule-description")
    if not isinstance(description, dict):
        raise _wrong("rule-description", "a map")
    parts = {str(key): value for key, value in description.items() if value is not None}
    correlation = parts.get("correlation-filter")
    if correlation is not None and not isinstance(correlation, dict):
        raise _wrong("correlation-filter", "a map")
    return AddRule(
        _rule_name(body),
        _expression(parts, "sql-filter"),
        None if correlation is None else {str(key): value for key, value in correlation.items()},
        _expression(parts, "sql-rule-action"),
    )


def _expression(parts: Body, key: str) -> str | None:
    part = parts.get(key)
    if part is None:
        return None
    expression = (
        {str(name): value for name, value in part.items()}.get("expression") if isinstance(part, dict) else None
    )
    if expression is None and key == "sql-rule-action":
        return None
    if not isinstance(expression, str):
        raise _wrong(key, "a map with an expression")
    return str(expression)


def _rule_name(body: Body) -> str:
    name = body.get("rule-name")
    if not isinstance(name, str):
        raise _wrong("rule-name", "a string")
    return str(name)


_READERS: dict[str, Callable[[Body], Operation]] = {
    "com.microsoft:renew-lock": _renew_locks,
    "com.microsoft:peek-message": _peek_messages,
    "com.microsoft:receive-by-sequence-number": _receive_deferred,
    "com.microsoft:update-disposition": _update_disposition,
    "com.microsoft:schedule-message": _schedule_messages,
    "com.microsoft:cancel-scheduled-message": lambda body: CancelScheduled(_numbers(body)),
    "com.microsoft:renew-session-lock": lambda body: RenewSessionLock(_needed_session(body)),
    "com.microsoft:get-session-state": lambda body: GetSessionState(_needed_session(body)),
    "com.microsoft:set-session-state": _set_session_state,
    "com.microsoft:get-message-sessions": _list_sessions,
    "com.microsoft:add-rule": _add_rule,
    "com.microsoft:remove-rule": lambda body: RemoveRule(_rule_name(body)),
    "com.microsoft:enumerate-rules": lambda body: EnumerateRules(_integer(body, "skip"), _positive(body, "top")),
    "com.microsoft:batch-delete-messages": lambda body: DeleteMessages(
        _positive(body, "message-count"), _integer(body, "enqueued-time-utc", minimum=None)
    ),
}


def _wrong(key: str, expected: str) -> BusError:
    return BusError(Fault.ARGUMENT, f"The request needs '{key}': {expected}.")


def _several(body: Body, key: str) -> list[Any]:
    """A list or an array that is neither empty nor too long."""
    values = body.get(key)
    if not isinstance(values, list) or not 0 < len(values) <= MAX_ITEMS:
        raise _wrong(key, f"an array of 1 to {MAX_ITEMS} items")
    return values


def _tokens(body: Body) -> list[bytes]:
    """Lock tokens in the byte order of delivery tags."""
    values = _several(body, "lock-tokens")
    if not all(isinstance(value, UUID) for value in values):
        raise _wrong("lock-tokens", "an array of uuid")
    return [value.bytes_le for value in values]


def _numbers(body: Body) -> list[int]:
    values = _several(body, "sequence-numbers")
    if not all(_is_integer(value) for value in values):
        raise _wrong("sequence-numbers", "an array of long")
    return [int(value) for value in values]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _integer(body: Body, key: str, minimum: int | None = 0) -> int:
    value = body.get(key)
    if not _is_integer(value) or (minimum is not None and value < minimum):  # type: ignore[operator]
        raise _wrong(key, "a whole number" if minimum is None else f"a whole number from {minimum}")
    return int(value)  # type: ignore[arg-type]


def _positive(body: Body, key: str) -> int:
    return _integer(body, key, minimum=1)


def _session(body: Body) -> str | None:
    value = body.get("session-id")
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong("session-id", "a string")
    return storable(str(value), "session id")


def _needed_session(body: Body) -> str:
    session_id = _session(body)
    if session_id is None:
        raise _wrong("session-id", "a string")
    return session_id


# --- success bodies ---


def expirations(instants_ms: Iterable[int]) -> dict[str, Any]:
    """For renew-lock: the new end of each lock, in the order of the tokens."""
    return {"expirations": Array((Timestamp(instant) for instant in instants_ms), 0x83)}


def expiration(instant_ms: int) -> dict[str, Any]:
    """For renew-session-lock."""
    return {"expiration": Timestamp(instant_ms)}


def peeked(payloads: Iterable[bytes]) -> dict[str, Any]:
    """For peek-message: whole encoded messages."""
    return {"messages": [{"message": payload} for payload in payloads]}


def received(payloads: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """For receive-by-sequence-number: encoded messages and lock tokens, empty when nothing is locked."""
    return {
        "messages": [
            {"message": payload, "lock-token": UUID(bytes_le=token or bytes(16))} for payload, token in payloads
        ]
    }


def sequence_numbers(numbers: Iterable[int]) -> dict[str, Any]:
    """For schedule-message."""
    return {"sequence-numbers": Array((Long(number) for number in numbers), 0x81)}


def session_state(state: bytes | None) -> dict[str, Any]:
    """For get-session-state."""
    return {"session-state": state}


def session_ids(skip: int, ids: Iterable[str]) -> dict[str, Any]:
    """For get-message-sessions; the odd key is the service's."""
    return {"skip": Int(skip), "sessions-ids": list(ids)}


def deleted(count: int) -> dict[str, Any]:
    """For batch-delete-messages."""
    return {"message-count": Int(count)}
