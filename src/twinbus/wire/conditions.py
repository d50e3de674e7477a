"""Our faults as AMQP conditions and management status codes, in one table.

What a fault means is `model.errors`' business; tracking ids and the time are handed in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from twinbus.amqp.performatives import Error
from twinbus.model.errors import BusError, Fault


class Condition(NamedTuple):
    """How a fault is told to a peer: the symbol in an AMQP error, and the status in a management response."""

    symbol: str
    status: int


CONDITIONS: dict[Fault, Condition] = {
    Fault.ARGUMENT: Condition("com.microsoft:argument-error", 400),
    # The clients retry `com.microsoft:auth-failed`, which cannot help here.
    Fault.AUTHENTICATION_FAILED: Condition("amqp:unauthorized-access", 401),
    Fault.DECODE: Condition("amqp:decode-error", 400),
    Fault.ENTITY_DELETED: Condition("amqp:resource-deleted", 410),
    Fault.ENTITY_DISABLED: Condition("com.microsoft:entity-disabled", 403),
    Fault.ENTITY_EXISTS: Condition("com.microsoft:entity-already-exists", 409),
    Fault.ENTITY_NOT_FOUND: Condition("amqp:not-found", 404),
    Fault.INTERNAL: Condition("amqp:internal-error", 500),
    Fault.LOCK_LOST: Condition("com.microsoft:message-lock-lost", 410),
    Fault.MESSAGE_NOT_FOUND: Condition("com.microsoft:message-not-found", 404),
    Fault.MESSAGE_TOO_LARGE: Condition("amqp:link:message-size-exceeded", 413),
    Fault.NOT_ALLOWED: Condition("amqp:not-allowed", 400),
    Fault.NOT_IMPLEMENTED: Condition("amqp:not-implemented", 501),
    Fault.QUOTA_EXCEEDED: Condition("amqp:resource-limit-exceeded", 403),
    Fault.SERVER_BUSY: Condition("com.microsoft:server-busy", 503),
    Fault.SESSION_HELD: Condition("com.microsoft:session-cannot-be-locked", 409),
    Fault.SESSION_LOCK_LOST: Condition("com.microsoft:session-lock-lost", 410),
    # Not server-busy: a sender that has a second namespace must not wait for a store that is gone.
    Fault.STORE_UNAVAILABLE: Condition("amqp:internal-error", 500),
    Fault.TIMEOUT: Condition("com.microsoft:timeout", 408),
    Fault.UNAUTHORIZED: Condition("amqp:unauthorized-access", 401),
}


def management_status(fault: Fault) -> int:
    """The statusCode of a management response that reports the fault."""
    return CONDITIONS[fault].status


def condition_of(fault: Fault) -> str:
    """The AMQP condition of the fault."""
    return CONDITIONS[fault].symbol


def describe(error: BusError, tracking_id: str, *, namespace: str, entity: str, now_ms: int) -> str:
    """The sentence that the client shows, with what an operator needs to find it in the log."""
    text = error.text
    if error.fault is Fault.ENTITY_NOT_FOUND and "could not be found" not in text:
        # The JavaScript client tells a missing entity from a broken connection by this phrase.
        text = f"The messaging entity 'sb://{namespace}/{entity}' could not be found."
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{tracking_id}, SystemTracker:{namespace}:{entity}, Timestamp:{moment}"


def to_error(error: BusError, tracking_id: str, *, namespace: str, entity: str, now_ms: int) -> Error:
    """The AMQP error for a rejected outcome, a detach or a close."""
    text = describe(error, tracking_id, namespace=namespace, entity=entity, now_ms=now_ms)
    return Error(CONDITIONS[error.fault].symbol, text)


def entity_not_found(namespace: str, entity: str) -> BusError:
    """The fault for an entity that does not exist, in the words that the clients recognise."""
    return BusError(Fault.ENTITY_NOT_FOUND, f"The messaging entity 'sb://{namespace}/{entity}' could not be found.")
