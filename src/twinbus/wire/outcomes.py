"""Delivery states of receivers as decisions about messages, and the states that confirm them.

Applying a decision is the entities' business; which deliveries a disposition covers, the gateway's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.amqp.performatives import ACCEPTED, RELEASED, Accepted, Modified, Received, Rejected, Released
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome
from twinbus.wire.properties import DESCRIPTION_KEY, REASON_KEY

MAX_REASON_CHARS = 4096
_DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"


class Decision(NamedTuple):
    """What a receiver decided, and the application properties it wants changed."""

    outcome: Outcome
    reason: str | None = None
    description: str | None = None
    changes: dict[str, Any] | None = None


_COMPLETE = Decision(Outcome.COMPLETE)
_RELEASE = Decision(Outcome.RELEASE)


def read(state: object) -> Decision | None:
    """The decision in a delivery state; None when the state decides nothing yet."""
    if isinstance(state, Accepted):
        return _COMPLETE
    if isinstance(state, Released):
        return _RELEASE
    if isinstance(state, Modified):
        # The clients differ in delivery-failed; undeliverable-here alone tells defer from abandon.
        outcome = Outcome.DEFER if state.undeliverable_here else Outcome.ABANDON
        return Decision(outcome, changes=_named(state.message_annotations))
    if isinstance(state, Rejected):
        return _dead_letter(state)
    if state is None or isinstance(state, Received):
        return None
    raise BusError(Fault.NOT_IMPLEMENTED, "Only the four standard outcomes settle a message.")


def _dead_letter(state: Rejected) -> Decision:
    error = state.error
    if error is None:
        return Decision(Outcome.DEAD_LETTER)
    changes = _named(error.info) or {}
    reason = changes.pop(REASON_KEY, None)
    description = changes.pop(DESCRIPTION_KEY, None)
    if reason is None and error.condition != _DEAD_LETTER_CONDITION:
        reason = str(error.condition)  # A client that knows nothing of Service Bus says why in its own condition.
    if description is None:
        description = error.description
    return dead_letter(reason, description, changes)


def dead_letter(reason: object, description: object, changes: dict[str, Any] | None) -> Decision:
    """The decision to dead-letter; a BusError of kind ARGUMENT when the texts are too long."""
    return Decision(Outcome.DEAD_LETTER, _text(reason, "reason"), _text(description, "description"), changes or None)


def _text(value: object, what: str) -> str | None:
    if value is None:
        return None
    # Not every store can keep a NUL in text, and a trace that holds one must not stop a dead-lettering.
    text = str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(text) > MAX_REASON_CHARS:
        raise BusError(Fault.ARGUMENT, f"The dead-letter {what} is longer than {MAX_REASON_CHARS} characters.")
    return text


def _named(values: dict[Any, Any] | None) -> dict[str, Any] | None:
    return {str(key): value for key, value in values.items()} if values else None


_ECHOES: dict[Outcome, Accepted | Rejected | Released | Modified] = {
    Outcome.COMPLETE: ACCEPTED,
    Outcome.ABANDON: Modified(delivery_failed=True, undeliverable_here=False),
    Outcome.DEFER: Modified(delivery_failed=True, undeliverable_here=True),
    # Without an error: an error inside means to the clients that settling failed.
    Outcome.DEAD_LETTER: Rejected(),
    Outcome.RELEASE: RELEASED,
}


def echo(outcome: Outcome) -> Accepted | Rejected | Released | Modified:
    """The state that confirms a decision: the same type of outcome."""
    return _ECHOES[outcome]
