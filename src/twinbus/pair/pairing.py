"""Pairing: the backlog queues are there before the first send may need them.

Missing ones are created as documented, existing ones accepted as they are, surplus ones left alone. What they are for
is told in `backlog`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from twinbus.client.atom import Administration, AtomError
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.pair import backlog
from twinbus.pair.errors import PairingError
from twinbus.pair.failures import Failure, kind_of
from twinbus.pair.half import Half

_log = logging.getLogger(__name__)

CONFLICT = 409


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
        _log.warning("backlog queue '%s' is not as documented: %s", queue, "; ".join(found))
    for queue, stuck in paired.surplus.items():
        if stuck:
            _log.warning("'%s' is not used, and %d messages are stuck in it", queue, stuck)
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
        await administration.create(backlog.description(paired.primary, index))
        paired.created.append(path)
    except AtomError as problem:
        if problem.status != CONFLICT:
            if kind_of(problem) is Failure.UNAUTHORIZED:
                raise
            paired.missing[path] = problem.text
            return
        existing = (await administration.entity(path)).description
        if not isinstance(existing, QueueDescription):
            paired.missing[path] = "there is a topic of that name"
            return
        if found := backlog.differences(existing):
            paired.differing[path] = found
    paired.queues.append(path)
