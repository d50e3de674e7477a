"""The kinds of failure that say something about the health of an entity.

Which of them count is a preset's decision (`presets`). What a condition means is in the table here, for both adapters;
what the SDK's exceptions mean that have none is known to `sdk`.
"""

from __future__ import annotations

from enum import Enum

from twinbus.client.errors import ClientError


class Failure(Enum):
    """The kinds of failure that the health of an entity can depend on."""

    TIMEOUT = "no answer in time"
    TRANSIENT = "unreachable, or an error that may pass"
    BUSY = "server busy"
    UNAUTHORIZED = "not authorised"
    FULL = "quota exceeded"
    PERMANENT = "an error that will not pass"  # Not found, disabled …
    MISTAKE = "a mistake of the caller's"  # Too large, no session id: says nothing about the primary, counts nowhere.


_BY_CONDITION = {
    "com.microsoft:server-busy": Failure.BUSY,
    "com.microsoft:timeout": Failure.TIMEOUT,
    "twinbus:timed-out": Failure.TIMEOUT,
    "amqp:unauthorized-access": Failure.UNAUTHORIZED,
    "com.microsoft:auth-failed": Failure.UNAUTHORIZED,
    "amqp:resource-limit-exceeded": Failure.FULL,
    "com.microsoft:entity-disabled": Failure.PERMANENT,
    **dict.fromkeys(
        (
            "amqp:link:message-size-exceeded",
            "amqp:not-allowed",
            "amqp:decode-error",
            "amqp:invalid-field",
            "amqp:not-implemented",
            "amqp:precondition-failed",
            "com.microsoft:argument-error",
            "com.microsoft:argument-out-of-range",
            "com.microsoft:message-not-found",
        ),
        Failure.MISTAKE,
    ),
}


def kind_of_condition(condition: str) -> Failure | None:
    """What the condition that a broker names says by itself, whichever client heard it."""
    return _BY_CONDITION.get(condition)


def kind_of(error: ClientError) -> Failure:
    """The kind of failure that our own client reports."""
    known = kind_of_condition(error.condition)
    if known is not None:
        return known
    return Failure.TRANSIENT if error.transient else Failure.PERMANENT
