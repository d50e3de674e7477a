"""Which messages somebody means: all of a queue, or those for which a condition in the rule language holds.

Beside what a rule sees, it sees why a message died, and what the broker itself knows of it.
"""

from __future__ import annotations

from functools import partial

from twinbus.entities.ports import RecordReader
from twinbus.model.message import Delivered
from twinbus.rules.description import RuleDescription, SqlFilter
from twinbus.rules.errors import RuleError
from twinbus.rules.matching import compile_rule
from twinbus.rules.view import MessageView

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"


class Wanted:
    """A condition, compiled; without one everything is wanted."""

    def __init__(self, condition: str | None, reader: RecordReader) -> None:
        """A BusError says what is wrong with the condition."""
        self._rule = None if not condition else compile_rule(RuleDescription("wanted", SqlFilter(condition)))
        self._reader = reader

    @property
    def takes_all(self) -> bool:
        """Whether there is no condition."""
        return self._rule is None

    def includes(self, message: Delivered) -> bool:
        """Whether the condition holds; what it cannot judge is not wanted."""
        if self._rule is None:
            return True
        try:
            return self._rule.matches(MessageView(partial(self._system, message), partial(self.user, message)))
        except RuleError:
            return False

    def _system(self, message: Delivered) -> dict[str, object]:
        found = dict(self._reader.system_properties(message.record))
        found["SequenceNumber"] = message.sequence_number
        found["DeliveryCount"] = message.delivery_count
        found["EnqueuedTimeUtc"] = message.enqueued_at_ms
        return found

    def user(self, message: Delivered) -> dict[str, object]:
        """Application properties with the changes that receivers made, and why the message died."""
        found = dict(self._reader.user_properties(self._reader.with_overlay(message.record, message.overlay)))
        for name, value in ((REASON, message.reason), (DESCRIPTION, message.description)):
            if value is not None:
                found[name] = value
        return found
