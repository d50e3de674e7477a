"""What becomes of commands around a transaction: refused, taken back for another try, and their hints put together.

The same for every store; what a command does is the operations' business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Command, Create, Hints, Publish, Send, SetSessionState

W = TypeVar("W")

GROWING = (Send, Publish, SetSessionState, Create)  # What a full store cannot take.


def full(growing: bool = True) -> BusError:
    """The refusal of a store whose disk is full."""
    text = "The messaging store's disk is full" + (": messages can be received, but not sent." if growing else ".")
    return BusError(Fault.STORE_UNAVAILABLE, text, definite=True)


def call(operation: Callable[[W, Any], None], work: W, command: Command) -> None:
    """A refusal is the command's own affair, as long as it is made before anything was changed."""
    try:
        operation(work, command)
    except BusError as error:
        command.error = error


def refuse(group: list[Command], failure: BusError) -> Hints:
    """Nothing of a group was done, or nobody knows."""
    for command in group:
        clear(command)
        command.error = failure
    return Hints()


def clear(command: Command) -> None:
    """Take back what a failed transaction left in a command."""
    command.error = None
    for field in dataclasses.fields(command):
        if field.name in ("result", "truncated"):
            value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            setattr(command, field.name, value)


def merge(hints: Hints, more: Hints) -> None:
    """Add hints to others."""
    hints.ready |= more.ready
    for queue, names in more.sessions.items():
        hints.sessions.setdefault(queue, set()).update(names)
    hints.lost_sessions.extend(more.lost_sessions)
