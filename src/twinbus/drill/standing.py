"""A drill on a pair that is already up: on entities of its own, over wires of its own, ended at once if others suffer.

Makes entities with a name and a mark that tell what they are, and removes them; if it cannot, they vanish by themselves
when nobody has used them for an hour. The namespaces are never disturbed: the drill cuts its own connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from twinbus.client import ConnectionString
from twinbus.client.atom import Administration
from twinbus.client.errors import ClientError
from twinbus.drill.course import Course
from twinbus.drill.paired import OPTIONS
from twinbus.drill.stage import PRIMARY, SECONDARY, Plan, Site, Stage
from twinbus.drill.traffic import DESTINATIONS, Destination
from twinbus.faults.proxy import Mode
from twinbus.model.entity import QueueDescription
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.pair.description import PairDescription
from twinbus.pair.survey import PairFound, survey, syphons

PREFIX = "twinbus-drill-"
MARK = "twinbus drill: may be removed"
IDLE_MS = 3_600_000
WATCH_S = 2.0  # Between two looks at whether others suffer.
SILENCE_S = 20.0  # No send has been acknowledged for so long: neither namespace takes anything.
BACKLOG_MAX = 50_000  # More than a drill should ever leave in the backlog.
HOMECOMING_S = 30.0


class BreachError(Exception):
    """A drill must not go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a drill would find and do."""

    found: PairFound
    steps: tuple[str, ...]
    obstacles: tuple[str, ...]


async def rehearse(pair: PairDescription, plan: Plan) -> Readiness:
    """Look, and say what would be done; nothing is changed."""
    found = await survey(pair)
    made = ", ".join(_shown(destination) for destination in named(prefix_of("…")))
    steps = (
        f"make {made} in '{found.primary.name or 'the primary'}'",
        f"send {plan.rate:g} messages a second to them through a paired client, and receive them",
        f"play '{plan.scenario}' for {plan.outage_s:g} s on the drill's own connections to the primary",
        "wait until what was diverted has come home, count, and remove the entities",
    )
    return Readiness(found, steps, tuple(obstacles(found, pair)))


def obstacles(found: PairFound, pair: PairDescription) -> list[str]:
    """Why a drill cannot begin now, a sentence each."""
    told = []
    for namespace, described in ((found.primary, pair.primary), (found.secondary, pair.secondary)):
        if not namespace.reachable or namespace.problem is not None:
            told.append(f"the {namespace.role} is not well: {namespace.problem}")
        if ConnectionString.parse(described.connection_string).tls:
            told.append(f"the {namespace.role} speaks TLS, and the drill cannot stand on that wire")
    suffering = others_that_suffer(found)
    if suffering:
        told.append(f"clients are diverting already: {', '.join(suffering)}")
    waiting = sum(queue.messages for queue in found.queues or [])
    if waiting:
        told.append(f"{waiting:,} messages wait in the backlog already")
    return told


def others_that_suffer(found: PairFound, own: str | None = None) -> list[str]:
    """Clients whose sends to other entities than the drill's `own`, by their prefix, fail or are diverted.

    By what they send to and not by who they are: in containers every process has the same number, and often a host of
    the same name.
    """
    return [
        f"{record['host']}/{record['process']}"
        for record in found.clients or []
        if any(own is None or not entity.startswith(own) for entity in record["state"].get("ill") or ())
    ]


def prefix_of(run: str) -> str:
    """How the names of a drill's entities begin."""
    return f"{PREFIX}{run}-"


def named(prefix: str) -> tuple[Destination, ...]:
    """The usual destinations under names of the drill's own."""
    return tuple(destination._replace(path=f"{prefix}{destination.path}") for destination in DESTINATIONS)


def _shown(destination: Destination) -> str:
    return destination.path if destination.subscription is None else f"{destination.path}/{destination.subscription}"


@asynccontextmanager
async def on_a_pair(
    directory: Path, plan: Plan, course: Course, pair: PairDescription, run: str
) -> AsyncIterator[Stage]:
    """A stage on a pair that is up; `run` tells this drill from others."""
    readiness = await rehearse(pair, plan)
    if readiness.obstacles:
        raise BreachError("; ".join(readiness.obstacles))
    destinations = named(prefix_of(run))
    namespaces = pair.namespaces()
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            stack.push_async_callback(namespace.close)
        described = [
            replace(told, http=await namespace.http_address(), name=found.name)
            for told, namespace, found in zip(
                (pair.primary, pair.secondary),
                namespaces,
                (readiness.found.primary, readiness.found.secondary),
                strict=True,
            )
        ]
        primary, secondary = [
            Site(course, role, namespace, None) for role, namespace in zip((PRIMARY, SECONDARY), described, strict=True)
        ]
        await stack.enter_async_context(primary.proxy)
        await stack.enter_async_context(secondary.proxy)
        administration = await stack.enter_async_context(await namespaces[0].administer())
        stack.push_async_callback(_remove, administration, destinations, course, pair)
        await _make(administration, destinations)
        course.say(f"made {', '.join(_shown(destination) for destination in destinations)}")
        stack.callback(primary.proxy.set, Mode.PASS)
        # Quicker than in earnest, so that a short drill diverts; the backlog queues are the pair's own.
        options = replace(
            OPTIONS,
            backlog_queue_count=pair.options.backlog_queue_count,
            enable_syphon=not syphons(readiness.found.clients or []),
        )
        yield Stage(
            directory,
            plan,
            course,
            primary,
            secondary,
            destinations=destinations,
            id_prefix=f"{run}-",
            options=options,
        )


async def _make(administration: Administration, destinations: tuple[Destination, ...]) -> None:
    for path, subscription, sessions in destinations:
        if subscription is None:
            await administration.create(
                QueueDescription(
                    name=path, requires_session=sessions, auto_delete_on_idle_ms=IDLE_MS, user_metadata=MARK
                )
            )
            continue
        await administration.create(TopicDescription(name=path, auto_delete_on_idle_ms=IDLE_MS, user_metadata=MARK))
        await administration.create(SubscriptionDescription(topic=path, name=subscription))


async def _remove(
    administration: Administration, destinations: tuple[Destination, ...], course: Course, pair: PairDescription
) -> None:
    """Remove what was made; not while something in the backlog is still on its way to it, or might be."""
    deadline = time.monotonic() + HOMECOMING_S
    while (queues := (await survey(pair)).queues) is not None and any(queue.messages for queue in queues):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(1)
    left = [path for path, _, _ in destinations]
    if queues is not None and not any(queue.messages for queue in queues):
        left = [path for path in left if not await _is_removed(administration, path)]
    if left:
        course.say(f"{', '.join(left)} could not be removed, and will vanish an hour after their last use")
    else:
        course.say("the drill's entities are removed")


async def _is_removed(administration: Administration, path: str) -> bool:
    try:
        await administration.delete(path)
    except ClientError:
        return False
    return True


async def watch(pair: PairDescription, course: Course, run: str) -> None:
    """Look again and again whether somebody suffers who has nothing to do with the drill; raises BreachError then."""
    acknowledged, since = -1, time.monotonic()
    while True:
        await asyncio.sleep(WATCH_S)
        if len(course.acknowledged) != acknowledged:
            acknowledged, since = len(course.acknowledged), time.monotonic()
        breach = breach_in(await survey(pair), prefix_of(run))
        if breach is None and time.monotonic() - since > SILENCE_S and "drained" not in course.marks:
            breach = f"no send was acknowledged for {SILENCE_S:g} s"
        if breach is not None:
            raise BreachError(breach)


def breach_in(found: PairFound, own: str) -> str | None:
    """Why the drill, whose entities have names with this prefix, must end now, if it must."""
    for namespace in (found.primary, found.secondary):
        if not namespace.reachable:
            return f"the {namespace.role} itself does not answer: {namespace.problem}"
    suffering = others_that_suffer(found, own)
    if suffering:
        return f"other clients divert: {', '.join(suffering)}"
    waiting = sum(queue.messages for queue in found.queues or [])
    if waiting > BACKLOG_MAX:
        return f"{waiting:,} messages wait in the backlog"
    return None
