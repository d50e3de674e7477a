"""Pairing: the backlog queues are there before the first send may need them.

Missing ones are created as documented, existing ones accepted as they are, surplus ones left alone. What they are for
is told in `backlog`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from twinbus.client.atom import Administration, AtomError
from twinbus.client.descriptions import Description
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.model.logged import EventLog
from twinbus.pair import backlog
from twinbus.pair.errors import PairingError
from twinbus.pair.failures import Failure, kind_of
from twinbus.pair.half import Half

_log = EventLog(__name__)

NOT_FOUND, CONFLICT = 404, 409
# A queue that another client is making exists and is not there, for as long as that takes.
MAKING_S = 0.05
MAKING_TRIES = 8


@dataclass(slots=True)
class Paired:
    """What pairing found and made."""

    primary: str
    queues: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    differing: dict[str, list[str]] = field(default_factory=dict)  # Used as they are; how they differ.
    missing: dict[str, str] = field(default_factory=dict)  # Could not be made, and why.
    surplus: dict[str, int] = field(default_factory=dict)  # Nobody's, and how many messages are stuck in each.


async def pair(primary: Half, secondary: Half, count: int, name: str | None = None) -> Paired:
    """Have `count` backlog queues for the primary in the secondary; a PairingError if there is none in the end."""
    try:
        name = name or await primary.name()
    except ClientError as problem:
        raise PairingError(
            f"The primary's name is not known, since it cannot be asked now ({problem.text}). Give it as primary_name."
        ) from problem
    paired = Paired(name)
    try:
        async with await secondary.administer() as administration:
            await _survey(administration, paired, count)
            for index in range(count):
                path = backlog.path(name, index)
                if path not in paired.queues:
                    await _create(administration, paired, index)
    except ClientError as problem:
        raise PairingError(f"The backlog queues of '{name}' could not be made: {problem.text}") from problem
    paired.queues.sort(key=lambda queue: backlog.index_of(name, queue) or 0)
    if not paired.queues:
        why = next(iter(paired.missing.values()), "none was found")
        raise PairingError(f"There is no backlog queue for '{name}': {why}")
    for queue, found in paired.differing.items():
        _log.warning(
            "backlog.differs",
            "backlog queue '{entity}' is not as documented: {reason}",
            entity=queue,
            reason="; ".join(found),
        )
    for queue, stuck in paired.surplus.items():
        if stuck:
            _log.warning(
                "backlog.stuck",
                "'{entity}' is not used, and {messages} messages are stuck in it",
                entity=queue,
                messages=stuck,
            )
    return paired


async def _survey(administration: Administration, paired: Paired, count: int) -> None:
    """What is there already."""
    async for entry in administration.queues():
        index = backlog.index_of(paired.primary, entry.description.name)
        if index is None:
            continue
        if index >= count:
            paired.surplus[entry.description.name] = entry.counts.active + entry.counts.deferred
            continue
        path = backlog.path(paired.primary, index)
        paired.queues.append(path)
        if found := backlog.differences(entry.description):
            paired.differing[path] = found


async def _create(administration: Administration, paired: Paired, index: int) -> None:
    """One that is missing. Another client may make it at the same time; what it made will do."""
    path = backlog.path(paired.primary, index)
    try:
        existing = await create_or_find(administration, backlog.description(paired.primary, index))
    except AtomError as problem:
        if kind_of(problem) is Failure.UNAUTHORIZED:
            raise
        paired.missing[path] = problem.text
        return
    if existing is None:
        paired.created.append(path)
    elif not isinstance(existing, QueueDescription):
        paired.missing[path] = "there is a topic of that name"
        return
    elif found := backlog.differences(existing):
        paired.differing[path] = found
    paired.queues.append(path)


async def create_or_find(administration: Administration, description: QueueDescription) -> Description | None:
    """Make a queue; what is there under its name, if another client was first, or None if it is ours.

    The other one may still be at it, or fail, so that it is asked for, and tried, again.
    """
    pause_s = MAKING_S
    for left in reversed(range(MAKING_TRIES)):
        try:
            await administration.create(description)
            return None
        except AtomError as problem:
            if problem.status != CONFLICT:
                raise
        try:
            return (await administration.entity(description.name)).description
        except AtomError as problem:
            if problem.status != NOT_FOUND or not left:
                raise
        await asyncio.sleep(pause_s)
        pause_s *= 2
    raise AssertionError("the last try returns or raises")
