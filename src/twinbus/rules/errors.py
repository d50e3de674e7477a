"""What can be wrong with a rule: its text when it is made, or what it does with a message later.

A text that is wrong is refused as any other argument; what fails later is the reason a message is dead-lettered for.
"""

from __future__ import annotations

from typing import ClassVar

from twinbus.model.errors import BusError, Fault


class FilterSyntaxError(BusError):
    """The text of a filter or an action is not in the language; `position` counts characters from zero."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(Fault.ARGUMENT, f"{text} at position {position}.")
        self.position = position


class RuleError(Exception):
    """A rule cannot be evaluated for one message; `reason` is the dead-letter reason that goes with it."""

    reason: ClassVar[str] = "FilterException"


class FilterError(RuleError):
    """The filter of a rule has no answer for this message: neither true, false nor unknown."""


class ActionError(RuleError):
    """The action of a rule cannot be applied to this message."""

    reason: ClassVar[str] = "RuleActionException"
