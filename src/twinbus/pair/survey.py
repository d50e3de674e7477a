"""A look at a pair from outside: both namespaces, the backlog queues, who is alive, and what an operator should know.

Changes nothing. Making the queues is `pairing`'s work; showing what was found is left to the caller.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from twinbus.client import upkeep
from twinbus.client.atom import Administration, AtomError
from twinbus.client.errors import ClientError
from twinbus.pair import backlog, ordered
from twinbus.pair.description import HalfDescription, PairDescription
from twinbus.pair.half import Half
from twinbus.pair.options import SendAvailabilityOptions

LOOK_S = 10.0


@dataclass(slots=True)
class HalfFound:
    """One namespace as it answers."""

    role: str
    address: str
    reachable: bool = False
    name: str | None = None
    datacenter: str | None = None
    version: str | None = None
    problem: str | None = None
    clients: list[dict[str, Any]] | None = None  # None where the namespace does not tell.


@dataclass(slots=True)
class QueueFound:
    """One backlog queue; `state` is as documented, ordered, differing, missing or surplus."""

    name: str
    state: str
    messages: int = 0
    dead: int = 0
    differences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PairFound:
    """The pair as it was found."""

    primary: HalfFound
    secondary: HalfFound
    queues: list[QueueFound] | None = None  # None where nobody could be asked.
    clients: list[dict[str, Any]] | None = None
    warnings: list[str] = field(default_factory=list)


async def survey(description: PairDescription) -> PairFound:
    """Look at both namespaces at once."""
    halves = description.halves()
    try:
        first, second = await asyncio.gather(
            _look(halves[0], description.primary), _look(halves[1], description.secondary)
        )
        found = PairFound(first, second)
        if first.name and second.reachable:
            try:
                async with asyncio.timeout(LOOK_S), await halves[1].administer() as administration:
                    found.queues = await _queues(administration, first.name, description.options)
            except (ClientError, TimeoutError) as problem:
                second.problem = second.problem or _words(problem)
        found.clients = _alive(found)
        found.warnings = warnings(found, description)
        return found
    finally:
        await asyncio.gather(*(half.close() for half in halves), return_exceptions=True)


async def _look(half: Half, described: HalfDescription) -> HalfFound:
    target = half.target
    found = HalfFound(half.role, f"{target.host}:{target.port}", name=described.name, datacenter=described.datacenter)
    try:
        async with asyncio.timeout(LOOK_S):
            is_twinbus = await half.is_twinbus()
            found.reachable = True
            if not is_twinbus:
                found.name = found.name or await half.name()
                return found
            async with await half.administer() as administration:
                status = await upkeep.status(administration)
                found.name = found.name or str(status["namespace"])
                found.datacenter = str(status.get("datacenter") or "") or found.datacenter
                found.version = str(status.get("version") or "") or None
                found.clients = await _clients(administration)
    except (ClientError, TimeoutError) as problem:
        found.problem = _words(problem)
    return found


async def _clients(administration: Administration) -> list[dict[str, Any]] | None:
    try:
        return await upkeep.clients(administration)
    except AtomError:
        return None


async def _queues(administration: Administration, primary: str, options: SendAvailabilityOptions) -> list[QueueFound]:
    """The backlog queues, and behind them those of clients that keep order, if there are any or should be."""
    count = options.backlog_queue_count
    there: dict[int, QueueFound] = {}
    keeping: dict[int, QueueFound] = {}
    async for entry in administration.queues():
        name = entry.description.name
        index = backlog.index_of(primary, name)
        if index is not None:
            differences = backlog.differences(entry.description) if index < count else []
            state = "surplus" if index >= count else "differing" if differences else "as documented"
            there[index] = _found(entry, state, differences)
        index = backlog.index_of(primary, name, ordered.TRANSFER_ORDERED)
        if index is not None:
            differences = backlog.differences(entry.description, ordered.ORDERED_SETTINGS)
            keeping[index] = _found(entry, "differing" if differences else "ordered", differences)
    for index in range(count):
        there.setdefault(index, QueueFound(backlog.path(primary, index), "missing"))
    # Their number was decided by whoever made them.
    for index in range(max(keeping, default=count - 1 if options.ordered else -1) + 1):
        keeping.setdefault(index, QueueFound(ordered.path(primary, index), "missing"))
    return [queues[index] for queues in (there, keeping) for index in sorted(queues)]


def _found(entry: Any, state: str, differences: list[str]) -> QueueFound:
    counts = entry.counts
    held = counts.active + counts.deferred + counts.scheduled
    return QueueFound(entry.description.name, state, held, counts.dead_letter, differences)


def _alive(found: PairFound) -> list[dict[str, Any]] | None:
    """The records of this pair, from whichever namespace has the newer one."""
    lists = [half.clients for half in (found.primary, found.secondary) if half.clients is not None]
    if not lists:
        return None
    newest: dict[str, dict[str, Any]] = {}
    for record in sorted((record for records in lists for record in records), key=lambda record: record["seen_at"]):
        if str(record["pair"]).lower() == (found.primary.name or "").lower():
            newest[record["id"]] = record
    return list(newest.values())


def syphons(clients: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that bring messages home, alone or beside an application."""
    return [record for record in clients if record["kind"] == "syphon" or record["state"].get("syphon") is not None]


def warnings(found: PairFound, description: PairDescription) -> list[str]:
    """What an operator should know, a sentence each."""
    told = []
    for half, described in ((found.primary, description.primary), (found.secondary, description.secondary)):
        if not half.reachable:
            told.append(f"The {half.role} at {half.address} cannot be reached: {half.problem}")
        elif half.problem is not None:
            told.append(f"The {half.role} does not tell everything: {half.problem}")
        if described.datacenter and half.datacenter and half.datacenter != described.datacenter:
            told.append(
                f"The {half.role} says that it is in '{half.datacenter}', and the description '{described.datacenter}'."
            )
    centers = {half.datacenter.lower() for half in (found.primary, found.secondary) if half.datacenter}
    if len(centers) == 1 and found.primary.datacenter and found.secondary.datacenter:
        told.append(f"Both namespaces are in the datacenter '{found.primary.datacenter}', and would be lost together.")
    if found.primary.name is None:
        told.append("The primary's name is not known, so the backlog queues cannot be found: describe it as its name.")
    told += _about_queues(found)
    return told


def _about_queues(found: PairFound) -> list[str]:
    told = []
    queues = found.queues or []
    for queue in queues:
        if queue.state == "missing":
            told.append(f"The backlog queue '{queue.name}' is missing; `twinbus pair create` makes it.")
        elif queue.state == "differing":
            told.append(f"'{queue.name}' is not as documented: {'; '.join(queue.differences)}.")
        elif queue.state == "surplus" and queue.messages:
            told.append(f"{_are(queue.messages)} stuck in '{queue.name}', which nobody uses.")
        if queue.dead:
            told.append(f"{_are(queue.dead)} dead in '{queue.name}': what could not be brought home.")
    waiting = sum(queue.messages for queue in queues if queue.state != "surplus")
    if waiting and found.clients is None:
        told.append(f"{_are(waiting)} in the backlog, and whether a syphon runs is not known.")
    elif waiting and not syphons(found.clients or []):
        told.append(f"{_are(waiting)} in the backlog, and no syphon runs: start `twinbus syphon`.")
    return told


def _are(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


def _words(problem: BaseException) -> str:
    return problem.text if isinstance(problem, ClientError) else f"no answer within {LOOK_S:g} s"
