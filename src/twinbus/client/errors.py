"""The one exception of the client, and what a condition says about trying again.

What each fault means is `model.errors`' business and how it looks on the wire `wire.conditions`'; this joins the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.amqp.performatives import Error
from twinbus.model.errors import FACTS
from twinbus.wire.conditions import CONDITIONS

# Conditions that no peer sends: they happened on this side of the connection.
UNREACHABLE = "twinbus:unreachable"
CONNECTION_LOST = "twinbus:connection-lost"
LINK_CLOSED = "twinbus:link-closed"
TIMED_OUT = "twinbus:timed-out"
NOT_TAKEN = "twinbus:not-taken"
NO_TOKEN = "twinbus:no-token"
NO_TLS = "twinbus:no-tls"
WRONG_DOOR = "twinbus:wrong-door"
ENDED = "twinbus:ended"

# (may a retry help, did it certainly not happen)
_FACTS: dict[str, tuple[bool, bool]] = {
    CONDITIONS[fault].symbol: (facts.transient, facts.definite) for fault, facts in FACTS.items()
} | {
    UNREACHABLE: (True, True),
    CONNECTION_LOST: (True, False),
    LINK_CLOSED: (False, True),
    TIMED_OUT: (True, False),
    NOT_TAKEN: (True, True),
    NO_TOKEN: (True, True),
    NO_TLS: (False, True),
    WRONG_DOOR: (False, True),
    ENDED: (False, True),
    "amqp:connection:framing-error": (False, False),
    "amqp:invalid-field": (False, True),
    "amqp:illegal-state": (False, True),
    "amqp:precondition-failed": (False, True),
    "amqp:link:stolen": (False, True),
}
# What we do not know may pass, and may have happened.
_UNKNOWN = (True, False)


class ClientError(Exception):
    """What went wrong: the condition, whether a retry may help, and whether it certainly did not happen.

    When several messages were sent or settled by one call, `failed` holds an error for each that failed, by its
    position in the call; the error itself is then the first of them, definite only if all are.
    """

    def __init__(
        self,
        condition: str,
        text: str,
        *,
        transient: bool | None = None,
        definite: bool | None = None,
        failed: Mapping[int, ClientError] | None = None,
    ) -> None:
        super().__init__(f"{condition}: {text}")
        known_transient, known_definite = _FACTS.get(condition, _UNKNOWN)
        self.condition = condition
        self.text = text
        self.transient = known_transient if transient is None else transient
        self.definite = known_definite if definite is None else definite
        self.failed: dict[int, ClientError] = dict(failed or {})

    def but(self, *, definite: bool) -> ClientError:
        """The same for an operation of which it is known whether it happened."""
        return ClientError(self.condition, self.text, transient=self.transient, definite=definite)


def is_local(error: ClientError) -> bool:
    """Whether it happened on this side: no peer answered, or what answered is no broker."""
    return error.condition.startswith("twinbus:") and error.condition != NOT_TAKEN


# An operator can change these without anybody sending the message again in another form.
_UNTIL_AN_OPERATOR_ACTS = frozenset(
    {
        "amqp:unauthorized-access",
        "com.microsoft:auth-failed",
        "amqp:resource-limit-exceeded",
        "com.microsoft:entity-disabled",
    }
)


def is_refusal(error: ClientError) -> bool:
    """Whether a peer will never take the message as it is, however long one waits."""
    return not error.transient and error.condition not in _UNTIL_AN_OPERATOR_ACTS and not is_local(error)


def from_peer(error: Error | None, condition: str, text: str) -> ClientError:
    """The peer's error, or when it gave none, the given words."""
    if error is None:
        return ClientError(condition, text)
    return ClientError(str(error.condition), error.description or text)


def of_each(error: ClientError, count: int) -> ClientError:
    """The same error for `count` messages that went in one transfer, where all have the same outcome."""
    each = error.failed.get(0, error)
    failed = dict.fromkeys(range(count), each)
    return ClientError(each.condition, each.text, transient=each.transient, definite=each.definite, failed=failed)


def of_several(failed: Mapping[int, ClientError], count: int) -> ClientError:
    """One error for those of `count` messages that failed."""
    ordered = dict(sorted(failed.items()))
    first = next(iter(ordered.values()))
    text = (
        first.text if len(ordered) == count == 1 else f"{len(ordered)} of {count} failed, the first with: {first.text}"
    )
    return ClientError(
        first.condition,
        text,
        transient=all(error.transient for error in ordered.values()),
        definite=all(error.definite for error in ordered.values()),
        failed=ordered,
    )
