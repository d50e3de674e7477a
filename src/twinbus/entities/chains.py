"""Which entity may forward to which: the destination exists, and no chain leads back to where it began.

Looks at descriptions only; messages are moved by `forwarding`, and rights are the door's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from twinbus.entities.entity import AnyEntity
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.entity import QueueDescription, target_path
from twinbus.model.errors import BusError, Fault
from twinbus.model.topic import SubscriptionDescription

D = TypeVar("D", QueueDescription, SubscriptionDescription)
Find = Callable[[str], AnyEntity | None]


def with_destinations(description: D, find: Find, old: D | None = None) -> D:
    """A description with destinations as they are spelt, and what forwarding implies; refused if it cannot be.

    A destination that is not changed may have been deleted meanwhile.
    """
    start = description.topic if isinstance(description, SubscriptionDescription) else description.name
    forward_to = _destination(description.forward_to, "ForwardTo", start, find, None if old is None else old.forward_to)
    dead_letters_to = _destination(
        description.forward_dead_letters_to,
        "ForwardDeadLetteredMessagesTo",
        start,
        find,
        None if old is None else old.forward_dead_letters_to,
    )
    # Nobody receives from an entity that forwards, so that it would always seem idle.
    idle_ms = description.auto_delete_on_idle_ms if forward_to is None else limits.UNLIMITED_MS
    return replace(
        description,
        forward_to=forward_to,
        forward_dead_letters_to=dead_letters_to,
        auto_delete_on_idle_ms=idle_ms,
    )


def _destination(text: str | None, name: str, start: str, find: Find, old: str | None) -> str | None:
    path = target_path(text)
    if path is None:
        return None
    if path.lower() == start.lower():
        raise BusError(Fault.ARGUMENT, f"{name}: an entity cannot forward to itself.")
    target = find(path)
    if not isinstance(target, Queue | Topic):
        if target is None and old is not None and path.lower() == old.lower():
            return old
        raise BusError(Fault.ARGUMENT, f"{name}: there is no queue or topic '{path[:100]}' in this namespace.")
    if start.lower() in _reached(target.path, find):
        raise BusError(Fault.ARGUMENT, f"{name}: from '{target.path}' messages would come back to '{start}'.")
    return target.path


def _reached(first: str, find: Find) -> set[str]:
    """The paths of all queues and topics to which messages can get from one, and of those that were deleted."""
    reached: set[str] = set()
    ahead = [first]
    while ahead:
        path = ahead.pop().lower()
        entity = find(path)
        if path not in reached and entity is not None:
            ahead += _next(entity)
        reached.add(path)
    return reached


def _next(entity: AnyEntity) -> Iterator[str]:
    for part in entity.subscriptions() if isinstance(entity, Topic) else [entity]:
        for sub_queue in (SubQueue.MAIN, SubQueue.DEAD_LETTER):
            path = part.forwards_to(sub_queue)
            if path is not None:
                yield path
