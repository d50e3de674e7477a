"""What can go wrong, in one table that answers four questions about each fault.

Which condition goes on the wire is `wire.conditions`' business, which HTTP status `admin`'s; here stands whether a
retry may help, whether the operation definitely did not happen, and what an operator should do.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Fault(Enum):
    """The kinds of failure that a caller can tell apart."""

    ARGUMENT = "argument"
    AUTHENTICATION_FAILED = "authentication-failed"
    DECODE = "decode"
    ENTITY_DELETED = "entity-deleted"
    ENTITY_DISABLED = "entity-disabled"
    ENTITY_EXISTS = "entity-exists"
    ENTITY_NOT_FOUND = "entity-not-found"
    INTERNAL = "internal"
    LOCK_LOST = "lock-lost"
    MESSAGE_NOT_FOUND = "message-not-found"
    MESSAGE_TOO_LARGE = "message-too-large"
    NOT_ALLOWED = "not-allowed"
    NOT_IMPLEMENTED = "not-implemented"
    QUOTA_EXCEEDED = "quota-exceeded"
    SERVER_BUSY = "server-busy"
    SESSION_HELD = "session-held"
    SESSION_LOCK_LOST = "session-lock-lost"
    STORE_UNAVAILABLE = "store-unavailable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"


class FaultFacts(NamedTuple):
    """The answers for one kind of fault."""

    transient: bool
    definite: bool  # True: the operation certainly did not happen.
    advice: str


FACTS: dict[Fault, FaultFacts] = {
    Fault.ARGUMENT: FaultFacts(False, True, "Correct the request."),
    Fault.AUTHENTICATION_FAILED: FaultFacts(False, True, "Check the policy name, the key and the token's expiry."),
    Fault.DECODE: FaultFacts(False, True, "The client sent bytes that are not a valid message."),
    Fault.ENTITY_DELETED: FaultFacts(False, True, "The entity was deleted while in use; create it again."),
    Fault.ENTITY_DISABLED: FaultFacts(True, True, "Set the entity's status to Active."),
    Fault.ENTITY_EXISTS: FaultFacts(False, True, "Choose another name or update the entity."),
    Fault.ENTITY_NOT_FOUND: FaultFacts(False, True, "Create the entity or correct its name."),
    Fault.INTERNAL: FaultFacts(True, False, "Look for the tracking id in the broker's log."),
    Fault.LOCK_LOST: FaultFacts(False, True, "Receive the message again; consider renewing locks."),
    Fault.MESSAGE_NOT_FOUND: FaultFacts(False, True, "The message was settled, cancelled or never deferred."),
    Fault.MESSAGE_TOO_LARGE: FaultFacts(False, True, "Send a smaller message or keep the body elsewhere."),
    Fault.NOT_ALLOWED: FaultFacts(False, True, "The entity does not support this operation."),
    Fault.NOT_IMPLEMENTED: FaultFacts(False, True, "Twinbus does not offer this operation."),
    Fault.QUOTA_EXCEEDED: FaultFacts(False, True, "Receive messages, or raise the entity's size."),
    Fault.SERVER_BUSY: FaultFacts(True, True, "Send more slowly; retry after ten seconds."),
    Fault.SESSION_HELD: FaultFacts(True, True, "Another receiver holds the session."),
    Fault.SESSION_LOCK_LOST: FaultFacts(False, True, "Accept the session again."),
    Fault.STORE_UNAVAILABLE: FaultFacts(True, False, "The messaging store failed; look at the broker's log and disk."),
    Fault.TIMEOUT: FaultFacts(True, False, "Retry."),
    Fault.UNAUTHORIZED: FaultFacts(False, True, "Use a policy that has the right this needs."),
}


class BusError(Exception):
    """A fault with a sentence for the person who reads it."""

    def __init__(self, fault: Fault, text: str, *, definite: bool | None = None) -> None:
        """`definite`, if given, says of this one error what its kind leaves open."""
        super().__init__(text)
        self.fault = fault
        self.text = text
        self._definite = definite

    @property
    def facts(self) -> FaultFacts:
        """Whether a retry may help and whether nothing happened."""
        return FACTS[self.fault]

    @property
    def is_definite(self) -> bool:
        """Whether the operation certainly did not happen."""
        return self.facts.definite if self._definite is None else self._definite
