"""Pairing: who the primary is, and backlog queues that are there before the first send may need them.

Missing ones are created as documented, existing ones accepted as they are, extra ones left alone. What they are for
is in `queues`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from twinbus.client.atom import Administration, AtomError
from twinbus.client.descriptions import Description
from twinbus.client.errors import ClientError, is_local
from twinbus.model.entity import QueueDescription
from twinbus.model.logged import EventLog
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.backlog.signs import Signs, may_be_written
from twinbus.pair.errors import PairingError
from twinbus.pair.namespace.port import Identity, RemoteNamespace
from twinbus.pair.route.failures import Failure, kind_of

_log = EventLog(__name__)

SOON_S = 0.5  # A primary that answers has answered by then; else its backlog queues are read meanwhile.
NOT_FOUND, CONFLICT = 404, 409
NO_SUCH_ENTITY = "amqp:not-found"
GAP_MAX = 10  # Who may not list queues gives up after so many numbers without one.
# A queue that another client is making exists and is not there, for as long as that takes.
MAKING_S = 0.05
MAKING_TRIES = 8


@dataclass(slots=True)
class Paired:
    """What pairing found and made."""

    primary: str
    id: str = ""  # The primary's own, where it is known.
    queues: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    differing: dict[str, list[str]] = field(default_factory=dict)  # Used as they are; how they differ.
    missing: dict[str, str] = field(default_factory=dict)  # Could not be made, and why.
    extra: dict[str, int] = field(default_factory=dict)  # Not sent to, and how many messages are in each.

    @property
    def drained(self) -> list[str]:
        """The queues that a syphon empties: all."""
        return [*self.queues, *self.extra]


async def pair(
    primary: RemoteNamespace,
    secondary: RemoteNamespace,
    count: int,
    name: str | None = None,
    *,
    must_make: bool = False,
) -> Paired:
    """Have `count` backlog queues for the primary in the secondary; a PairingError if there is none in the end.

    Those that exist will do for those who may not make any, unless that is what they are asked for (`must_make`).
    """
    identity = await named(primary, secondary, name)
    try:
        return await have(secondary, identity, primary, count, must_make=must_make)
    except ClientError as problem:
        raise PairingError(f"The backlog queues of '{identity.name}' could not be made: {problem.text}") from problem


async def named(
    primary: RemoteNamespace, secondary: RemoteNamespace, name: str | None = None, known: Identity | None = None
) -> Identity:
    """Who the primary is; a PairingError if nobody says it now."""
    identity, problem = await learn(primary, secondary, name, known)
    if problem is not None and identity.name == primary.provisional_name:
        raise PairingError(
            f"The primary's name is not known, since it cannot be asked now ({problem.text}), and no backlog queue says"
            " that it belongs to its address. Give it as primary_name."
        ) from problem
    return identity


async def learn(
    primary: RemoteNamespace, secondary: RemoteNamespace, name: str | None = None, known: Identity | None = None
) -> tuple[Identity, ClientError | None]:
    """Who the primary is: as it says itself, as was `known`, or as its backlog queues say; and why it was not asked.

    One that nobody knows has a provisional name, by its address: a syphon empties the queues of either name.
    """
    is_known = known is not None and known.name and name in (None, known.name)
    asking = asyncio.ensure_future(primary.identity(anew=True))
    reading = None
    try:
        await asyncio.wait({asking}, timeout=SOON_S)
        if not is_known and (not asking.done() or asking.exception() is not None):
            reading = asyncio.ensure_future(_signed(primary, secondary, name))
        try:
            found = await asking
            return Identity(name or found.name, found.id), None
        except ClientError as problem:
            if known is not None and is_known:
                return known, problem
            assert reading is not None
            return await reading or Identity(name or primary.provisional_name, ""), problem
    finally:
        for each in (asking, reading):
            if each is not None:
                each.cancel()
                await asyncio.gather(each, return_exceptions=True)


async def _signed(primary: RemoteNamespace, secondary: RemoteNamespace, name: str | None) -> Identity | None:
    """Who the backlog queues say is reached at the primary's address."""
    try:
        async with await secondary.administer() as administration:
            async for found, signs in _signs(administration):
                found_id = signs.id_at(primary.reached_at) if name in (None, found) else None
                if found_id is not None and not signs.is_provisional:
                    return Identity(found, found_id)
    except ClientError:
        pass
    return None


async def _signs(administration: Administration) -> AsyncIterator[tuple[str, Signs]]:
    """Every primary that has backlog queues, and what they say of it."""
    async for entry in administration.queues():
        primary = backlog.primary_of(entry.description.name)
        if primary is not None and backlog.index_of(primary, entry.description.name) == 0:
            yield primary, Signs.parse(entry.description.user_metadata)


async def have(
    secondary: RemoteNamespace, identity: Identity, primary: RemoteNamespace, count: int, *, must_make: bool = False
) -> Paired:
    """Make the backlog queues that are missing; where that is not permitted, those that exist must do."""
    paired = Paired(identity.name, identity.id)
    try:
        async with await secondary.administer() as administration:
            await _survey(administration, paired, count, primary.provisional_name)
            for index in range(count):
                if backlog.path(identity.name, index) not in paired.queues:
                    await _create(administration, paired, index)
            await _sign(administration, paired, primary)
    except ClientError as problem:
        if must_make or kind_of(problem) is not Failure.UNAUTHORIZED:
            raise
        paired.queues = [path for path in backlog.paths(identity.name, count) if await exists(secondary, path)]
        paired.missing = {} if paired.queues else {backlog.path(identity.name, 0): problem.text}
    paired.queues.sort(key=lambda queue: backlog.index_of(identity.name, queue) or 0)
    if not paired.queues:
        why = next(iter(paired.missing.values()), "none was found")
        raise PairingError(f"There is no backlog queue for '{identity.name}': {why}")
    _warn(paired)
    return paired


async def exists(secondary: RemoteNamespace, path: str) -> bool:
    """Whether a queue is there, asked without the Manage right: by attaching to it."""
    try:
        receiver = await secondary.receiver(path)
    except ClientError as error:
        if is_local(error) or kind_of(error) is Failure.TIMEOUT:
            raise
        return error.condition != NO_SUCH_ENTITY
    with suppress(ClientError):
        await receiver.close()
    return True


async def found(
    secondary: RemoteNamespace,
    names: Sequence[str],
    transfer: str = backlog.TRANSFER,
    belongs: Callable[[Signs], bool] | None = None,
) -> list[str]:
    """Every backlog queue of a primary, whatever count its clients were given; without the Manage right, by trying.

    Also those of other names whose signs say that they belong to it.
    """
    try:
        async with await secondary.administer() as administration:
            descriptions = [entry.description async for entry in administration.queues()]
            if belongs is not None:
                names = [*names, *(name for name, signs in signed(descriptions).items() if belongs(signs))]
            there = {
                (name, index): description.name
                for description in descriptions
                for name in names
                if (index := backlog.index_of(name, description.name, transfer)) is not None
            }
            return list(dict.fromkeys(there[each] for each in sorted(there)))
    except ClientError as error:
        if kind_of(error) is not Failure.UNAUTHORIZED:
            raise
    return [queue for name in names for queue in await _tried(secondary, name, transfer)]


def signed(descriptions: Sequence[Description]) -> dict[str, Signs]:
    """The names that a secondary has backlog queues of, and what the first of each says."""
    found = {}
    for description in descriptions:
        primary = backlog.primary_of(description.name)
        if primary is not None and backlog.index_of(primary, description.name) == 0:
            found[primary] = Signs.parse(getattr(description, "user_metadata", None))
    return found


async def _tried(secondary: RemoteNamespace, name: str, transfer: str) -> list[str]:
    """From 0 upward, over gaps."""
    queues: list[str] = []
    index = missed = 0
    while missed < GAP_MAX:
        path = backlog.path(name, index, transfer)
        is_there = await exists(secondary, path)
        queues += [path] if is_there else []
        missed = 0 if is_there else missed + 1
        index += 1
    return queues


def _warn(paired: Paired) -> None:
    for queue, found in paired.differing.items():
        _log.warning(
            "backlog.differs",
            "backlog queue '{entity}' is not as documented: {reason}",
            entity=queue,
            reason="; ".join(found),
        )


async def _survey(administration: Administration, paired: Paired, count: int, provisional_name: str) -> None:
    """What is there already."""
    async for entry in administration.queues():
        index = backlog.index_of(paired.primary, entry.description.name)
        is_provisional = index is None and backlog.index_of(provisional_name, entry.description.name) is not None
        if index is None and not is_provisional:
            continue
        if index is None or index >= count:
            paired.extra[entry.description.name] = entry.counts.active + entry.counts.deferred
            continue
        path = backlog.path(paired.primary, index)
        paired.queues.append(path)
        if found := backlog.differences(entry.description):
            paired.differing[path] = found


async def _sign(administration: Administration, paired: Paired, primary: RemoteNamespace) -> None:
    """Have the first queue say whose it is, for clients that start while the primary cannot be asked.

    So does that of the primary's provisional name, for syphons that reach it at another address.
    """
    first, provisional = (backlog.path(name, 0) for name in (paired.primary, primary.provisional_name))
    for queue in dict.fromkeys((first, provisional)):
        if queue in paired.drained and (paired.id or queue == provisional):
            with suppress(ClientError):  # It is a help, and nothing that a pair needs.
                description = (await administration.entity(queue)).description
                signs = Signs.parse(description.user_metadata)
                if may_be_written(description.user_metadata) and signs.add(paired.id, primary.reached_at):
                    await administration.update(replace(description, user_metadata=signs.to_text()))


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
