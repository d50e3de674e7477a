"""A look at a pair from outside: both namespaces, the backlog queues, who is alive, and what an operator should know.

The secondary alone knows enough: while the primary is down, its name is found there too. Changes nothing. Making the
queues is `pairing`'s work; showing what was found is left to the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from twinbus.client import messages, upkeep
from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.pair import replaced
from twinbus.pair.backlog import making
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.backlog.signs import Signs
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.order import table as ordered
from twinbus.pair.replaced import Replaced

LOOK_S = 10.0
PEEKS_MAX = 50  # Queues whose oldest message is looked at.
_PARTS = {"queues": backlog.TRANSFER, "ordered_queues": ordered.TRANSFER_ORDERED}  # By what a syphon's record says.


@dataclass(slots=True)
class NamespaceFound:
    """One namespace as it answers."""

    role: str
    address: str
    reachable: bool = False
    name: str | None = None
    datacenter: str | None = None
    version: str | None = None
    id: str | None = None
    problem: str | None = None
    clients: list[dict[str, Any]] | None = None  # None where the namespace does not say.


@dataclass(slots=True)
class QueueFound:
    """One backlog queue; `state` is as documented, ordered, differing, missing, extra (beyond the clients' count), or,
    with messages in it, replaced (of a primary that was lost for good), former (of the name that it had before), or
    provisional (called after an address)."""

    name: str
    state: str
    messages: int = 0
    dead: int = 0
    differences: list[str] = field(default_factory=list)
    oldest_s: float | None = None  # For how long the first of its messages is there.
    drained_by: list[str] = field(default_factory=list)  # Syphons that are alive, as host and process.


@dataclass(slots=True)
class PairFound:
    """The pair as it was found."""

    primary: NamespaceFound
    secondary: NamespaceFound
    queues: list[QueueFound] | None = None  # None where nobody could be asked.
    clients: list[dict[str, Any]] | None = None
    warnings: list[str] = field(default_factory=list)
    stranded: list[str] = field(default_factory=list)  # Those of the warnings that are about messages nobody moves.
    notes: list[str] = field(default_factory=list)  # What is as it should be, and worth knowing.
    # Names that the primary may have, if it could not be asked: those for which the secondary has queues or clients.
    candidates: list[str] = field(default_factory=list)
    # Those that clients made of its address while nobody could say its own, and those of one that had its place.
    other_names: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names by which the primary's backlog queues and clients go."""
        return [self.primary.name] if self.primary.name else self.candidates


async def survey(description: PairDescription) -> PairFound:
    """Look at both namespaces at once."""
    namespaces = description.namespaces()
    try:
        first, second = await asyncio.gather(
            _look(namespaces[0], description.primary), _look(namespaces[1], description.secondary)
        )
        found = PairFound(first, second)
        if second.reachable:
            try:
                async with asyncio.timeout(LOOK_S):
                    await _look_into_backlog(found, *namespaces, description.options)
            except (ClientError, TimeoutError) as problem:
                second.problem = second.problem or _words(problem)
        found.clients = _alive(found)
        _say_who_drains(found)
        found.stranded = stranded(found)
        found.warnings = warnings(found, description)
        found.notes = notes(found)
        return found
    finally:
        await asyncio.gather(*(namespace.close() for namespace in namespaces), return_exceptions=True)


async def _look(namespace: RemoteNamespace, described: NamespaceDescription) -> NamespaceFound:
    target = namespace.target
    name = described.name or namespace.name_in_host
    found = NamespaceFound(namespace.role, f"{target.host}:{target.port}", name=name, datacenter=described.datacenter)
    try:
        async with asyncio.timeout(LOOK_S):
            is_twinbus = await namespace.is_twinbus()
            found.reachable = True
            if not is_twinbus:
                found.name = found.name or await namespace.name()
                return found
            async with await namespace.administer() as administration:
                status = await upkeep.status(administration)
                found.name = found.name or str(status["namespace"])
                found.datacenter = str(status.get("datacenter") or "") or found.datacenter
                found.version = str(status.get("version") or "") or None
                found.id = str(status.get("id") or "") or None
                with suppress(AtomError):
                    found.clients = await upkeep.clients(administration)
    except (ClientError, TimeoutError) as problem:
        found.problem = _words(problem)
    return found


async def _look_into_backlog(
    found: PairFound, primary: RemoteNamespace, secondary: OwnClientNamespace, options: SendAvailabilityOptions
) -> None:
    async with await secondary.administer() as administration:
        entries = [entry async for entry in administration.queues()]
    known = making.signed([entry.description for entry in entries])
    provisional = [name for name, signs in known.items() if signs.is_provisional]
    if found.primary.name is None:
        names = [entry.description.name for entry in entries]
        found.candidates = candidates(names, found.secondary.clients or [], [*provisional, primary.provisional_name])
        if len(found.candidates) == 1:
            found.primary.name = found.candidates[0]
    found.queues = [queue for name in found.names for queue in _queues(entries, name, options)]
    found.queues += left_behind(entries, replaced.parse(options.replaces), found.names)
    found.other_names = [primary.provisional_name, *other_names(known, found, primary.reached_at)]
    found.queues += under_other_names(entries, found, [*provisional, primary.provisional_name])
    held = [queue for queue in found.queues if queue.messages][:PEEKS_MAX]
    await asyncio.gather(*(_look_at_oldest(queue, secondary) for queue in held))


def other_names(known: Mapping[str, Signs], found: PairFound, reached_at: str) -> list[str]:
    """Of the names that a secondary has queues of those that are this primary's, too, and those of nobody yet."""
    own = {name.lower() for name in found.names}
    ids = {found.primary.id or ""}.union(*(signs.ids for name, signs in known.items() if name.lower() in own))
    return [
        name
        for name, signs in known.items()
        if name.lower() not in own
        and ((signs.is_provisional and not signs.ids) or any(signs.belongs(each, reached_at) for each in sorted(ids)))
    ]


def candidates(queues: Sequence[str], clients: Sequence[dict[str, Any]], provisional: Sequence[str] = ()) -> list[str]:
    """The names of primaries that a secondary knows of: by the backlog queues in it, and by its clients.

    Provisional ones only if there are no others.
    """
    found = {}
    for queue in queues:
        primary, part, _ = queue.partition(f"/{backlog.TRANSFER}/")
        if part:
            found[primary.lower()] = primary
    for record in clients:
        found.setdefault(str(record["pair"]).lower(), str(record["pair"]))
    others = {each.lower() for each in provisional}
    return sorted(name for key, name in found.items() if key not in others) or sorted(found.values())


async def _look_at_oldest(queue: QueueFound, secondary: OwnClientNamespace) -> None:
    """A peek costs nothing and changes nothing; who may not listen goes without."""
    with suppress(ClientError):
        management = await (await secondary.connection()).management(queue.name)
        for payload in await management.peek(0, 1):
            at_ms = messages.read(payload).enqueued_at_ms
            if at_ms is not None:
                queue.oldest_s = round(max(0.0, time.time() - at_ms / 1000), 1)


def _queues(entries: Sequence[Any], primary: str, options: SendAvailabilityOptions) -> list[QueueFound]:
    """The backlog queues, and behind them those of clients that keep order, if there are any or should be."""
    count = options.backlog_queue_count
    there: dict[int, QueueFound] = {}
    keeping: dict[int, QueueFound] = {}
    for entry in entries:
        name = entry.description.name
        index = backlog.index_of(primary, name)
        if index is not None:
            differences = backlog.differences(entry.description)
            state = "differing" if differences else "as documented" if index < count else "extra"
            there[index] = _found(entry, state, differences)
        index = backlog.index_of(primary, name, ordered.TRANSFER_ORDERED)
        if index is not None:
            differences = backlog.differences(entry.description, ordered.ORDERED_SETTINGS)
            keeping[index] = _found(entry, "differing" if differences else "ordered", differences)
    for index in range(count):
        there.setdefault(index, QueueFound(backlog.path(primary, index), "missing"))
    # Their number was decided by the client that made them.
    for index in range(max(keeping, default=count - 1 if options.ordered else -1) + 1):
        keeping.setdefault(index, QueueFound(ordered.path(primary, index), "missing"))
    return [queues[index] for queues in (there, keeping) for index in sorted(queues)]


def left_behind(entries: Sequence[Any], lost: Sequence[Replaced], names: Sequence[str]) -> list[QueueFound]:
    """The backlog queues of primaries that were replaced, as far as there is something in them."""
    own = {name.lower() for name in names}
    others = {name for each in lost for name in each.names if name.lower() not in own}
    return [
        queue
        for entry in entries
        if any(
            backlog.index_of(name, entry.description.name, part) is not None
            for name in others
            for part in _PARTS.values()
        )
        for queue in (_found(entry, "replaced", []),)
        if queue.messages or queue.dead
    ]


def under_other_names(entries: Sequence[Any], found: PairFound, provisional: Sequence[str]) -> list[QueueFound]:
    """The backlog queues of its other names, as far as there is something in them."""
    others = {name.lower() for name in found.other_names} - {name.lower() for name in found.names}
    after_address = {name.lower() for name in provisional}
    named = [(entry, (backlog.primary_of(entry.description.name) or "").lower()) for entry in entries]
    queues = [
        _found(entry, "provisional" if name in after_address else "former", [])
        for entry, name in named
        if name in others
    ]
    return [queue for queue in queues if queue.messages or queue.dead]


def _found(entry: Any, state: str, differences: list[str]) -> QueueFound:
    counts = entry.counts
    held = counts.active + counts.deferred + counts.scheduled
    return QueueFound(entry.description.name, state, held, counts.dead_letter, differences)


# Who is alive


def _alive(found: PairFound) -> list[dict[str, Any]] | None:
    """The records of this pair, from whichever namespace has the newer one."""
    lists = [namespace.clients for namespace in (found.primary, found.secondary) if namespace.clients is not None]
    if not lists:
        return None
    names = {name.lower() for name in (*found.names, *found.other_names)}
    newest: dict[str, dict[str, Any]] = {}
    for record in sorted((record for records in lists for record in records), key=lambda record: record["seen_at"]):
        if str(record["pair"]).lower() in names:
            newest[record["id"]] = record
    return list(newest.values())


def syphons(clients: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that bring messages home, alone or in an application."""
    return [record for record in clients if record["kind"] == "syphon" or record["state"].get("syphon") is not None]


def drains(record: dict[str, Any], queue: str) -> bool:
    """Whether a syphon says that it brings messages home from a queue; one that does not say has all of its pair."""
    said = record["state"].get("syphon")
    said = said if isinstance(said, dict) else {}
    replaces = said.get("replaces")
    names = [str(record.get("pair", "")), *(map(str, replaces) if isinstance(replaces, list) else ())]
    for key, part in _PARTS.items():
        for name in names:
            index = backlog.index_of(name, queue, part)
            if index is not None:
                return said.get(key) is None or backlog.in_spans(index, str(said[key]))
    return False


def _say_who_drains(found: PairFound) -> None:
    running = syphons(found.clients or [])
    for queue in found.queues or []:
        queue.drained_by = [place(record) for record in running if drains(record, queue.name)]


def place(record: dict[str, Any]) -> str:
    """Where a client runs."""
    return f"{record['host']}:{record['process']}"


# What follows


def stranded(found: PairFound) -> list[str]:
    """Messages that nobody moves, a sentence each: nobody drains their queue, or they are dead.

    What waits for a primary that is away is not among them, if a syphon is ready for its return.
    """
    told = []
    queues = found.queues or []
    waiting = sum(queue.messages for queue in queues)
    if waiting and found.clients is not None:
        if not syphons(found.clients):
            told.append(f"{_are(waiting)} in the backlog, and no syphon runs: start `twinbus syphon`.")
        else:
            told += [
                f"{_are(queue.messages)} in '{queue.name}'{_since(queue)}, and no syphon that is alive drains it."
                for queue in queues
                if queue.messages and not queue.drained_by
            ]
    told += [
        f"{_are(queue.dead)} dead in '{queue.name}': what could not be brought home." for queue in queues if queue.dead
    ]
    return told


def warnings(found: PairFound, description: PairDescription) -> list[str]:
    """What an operator should know, a sentence each."""
    told = []
    for namespace, described in ((found.primary, description.primary), (found.secondary, description.secondary)):
        if not namespace.reachable:
            told.append(f"The {namespace.role} at {namespace.address} cannot be reached: {namespace.problem}")
        elif namespace.problem is not None:
            told.append(f"The {namespace.role} does not say everything: {namespace.problem}")
        if described.datacenter and namespace.datacenter and namespace.datacenter != described.datacenter:
            told.append(
                f"The {namespace.role} says that it is in '{namespace.datacenter}',"
                f" and the description '{described.datacenter}'."
            )
    centers = {namespace.datacenter.lower() for namespace in (found.primary, found.secondary) if namespace.datacenter}
    if len(centers) == 1 and found.primary.datacenter and found.secondary.datacenter:
        told.append(f"Both namespaces are in the datacenter '{found.primary.datacenter}', and would be lost together.")
    if found.primary.name is None:
        told.append(_about_name(found.candidates))
    return told + _about_queues(found) + _about_syphons(found) + stranded(found)


def _about_name(known: Sequence[str]) -> str:
    if known:
        names = ", ".join(f"'{name}'" for name in known)
        return f"Several primaries use this secondary ({names}), and all of them are shown: describe yours by its name."
    return "The primary's name is not known, so the backlog queues cannot be found: describe it as its name."


def _about_queues(found: PairFound) -> list[str]:
    told = []
    queues = found.queues or []
    for queue in queues:
        if queue.state == "missing":
            told.append(f"The backlog queue '{queue.name}' is missing; `twinbus pair create` makes it.")
        elif queue.state == "differing":
            told.append(f"'{queue.name}' is not as documented: {'; '.join(queue.differences)}.")
    waiting = sum(queue.messages for queue in queues)
    if waiting and found.clients is None:
        told.append(f"{_are(waiting)} in the backlog, and whether a syphon runs is not known.")
    return told


def _about_syphons(found: PairFound) -> list[str]:
    """What stands in the way of syphons that are alive, as they said."""
    told = []
    for record in syphons(found.clients or []):
        said = record["state"].get("syphon")
        said = said if isinstance(said, dict) else {}
        blocked = said.get("blocked")
        for path, why in blocked.items() if isinstance(blocked, dict) else ():
            told.append(f"'{path}' takes nothing from the syphon {place(record)}: {why}")
        if said.get("waits_for") == "primary" and found.primary.reachable:
            told.append(f"The syphon {place(record)} does not reach the primary: {said.get('problem')}")
        elif said.get("waits_for") == "secondary":
            told.append(f"The syphon {place(record)} does not reach the secondary: {said.get('problem')}")
    return told


def notes(found: PairFound) -> list[str]:
    """What waits, and for what, where all is done that can be done."""
    ready = {who for queue in found.queues or [] if queue.messages for who in queue.drained_by}
    waiting = sum(queue.messages for queue in found.queues or [] if queue.drained_by)
    if not waiting or found.primary.reachable:
        return []
    who = ", ".join(sorted(ready))
    return [f"{_are(waiting)} in the backlog until the primary answers; ready to bring them home: {who}."]


def _since(queue: QueueFound) -> str:
    return "" if queue.oldest_s is None else f", the oldest for {queue.oldest_s:,.0f} s"


def _are(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


def _words(problem: BaseException) -> str:
    return problem.text if isinstance(problem, ClientError) else f"no answer within {LOOK_S:g} s"
