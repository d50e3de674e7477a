"""What a failed send says about the health of its entity: the kinds of failure, and which of them count.

The documents, the client of 2013 and good sense disagree; each is a preset. Which exception is of which kind is known
to the adapters (`sdk`, and `kind_of` here for our own client).
"""

from __future__ import annotations

from enum import Enum

from twinbus.client.errors import ClientError, is_local


class Failure(Enum):
    """The kinds of failure that the health of an entity can depend on."""

    TIMEOUT = "no answer in time"
    TRANSIENT = "unreachable, or an error that may pass"
    BUSY = "server busy"
    UNAUTHORIZED = "not authorised"
    FULL = "quota exceeded"
    PERMANENT = "an error that will not pass"  # Not found, disabled, too large …


PRESETS: dict[str, frozenset[Failure]] = {
    # A dead or unreachable primary, and nothing that another namespace would not cure.
    "recommended": frozenset({Failure.TIMEOUT, Failure.TRANSIENT}),
    # What the documents say literally: time-outs, and messaging errors that are not transient.
    "docs": frozenset({Failure.TIMEOUT, Failure.PERMANENT, Failure.FULL}),
    # What the shipped client did: time-outs, and every messaging error that is transient, busy servers included.
    "client-2013": frozenset({Failure.TIMEOUT, Failure.TRANSIENT, Failure.BUSY}),
}

DISABLED = "com.microsoft:entity-disabled"
_BY_CONDITION = {
    "com.microsoft:server-busy": Failure.BUSY,
    "com.microsoft:timeout": Failure.TIMEOUT,
    "twinbus:timed-out": Failure.TIMEOUT,
    "amqp:unauthorized-access": Failure.UNAUTHORIZED,
    "com.microsoft:auth-failed": Failure.UNAUTHORIZED,
    "amqp:resource-limit-exceeded": Failure.FULL,
    DISABLED: Failure.PERMANENT,
}


def kind_of(error: ClientError) -> Failure:
    """The kind of failure that our own client reports."""
    known = _BY_CONDITION.get(error.condition)
    if known is not None:
        return known
    return Failure.TRANSIENT if error.transient else Failure.PERMANENT


def is_refusal(error: ClientError) -> bool:
    """Whether a message will never be taken where it is sent. A disabled entity takes it when somebody enables it."""
    return kind_of(error) is Failure.PERMANENT and error.condition != DISABLED and not is_local(error)
