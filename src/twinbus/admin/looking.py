"""Entities for whoever looks at many of them: a page at a time, with counts by state and the rates of the last minutes.

Nothing is counted while nobody looks: two looks make a rate. What an entity holds is asked of `entities`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from twinbus.admin.asked import Asked, Document
from twinbus.entities.entity import AnyEntity
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.watching import Seen, see
from twinbus.model.message import Counts

PAGE, PAGE_MAX = 50, 500
POINTS = 40  # Of a rate's history.
FRESH_MS = 1_500  # Two looks closer than this are one.
FORGET_MS = 120_000  # After so long, what was seen says nothing about a rate of now.
MANY = 1_000  # So many entities are counted for a request; more of them beside it, and less often.
FRESH_MANY_MS = 5_000
CHUNK = 500

KINDS = ("", "queue", "topic", "subscription")
SORTS = ("name", "active", "dead", "rate", "bytes")
ONLY = ("", "messages", "dead", "trouble")
_PARAMETERS = ("skip", "top", "filter", "kind", "sort", "only", "after", "name")

NOTHING = Seen(Counts())


class Watched(NamedTuple):
    """An entity as it was last seen, and how quickly messages came and went before."""

    seen: Seen
    at_ms: int
    arriving: deque[float]
    leaving: deque[float]

    @property
    def rate(self) -> float:
        """Messages in a second that arrive and leave."""
        return (self.arriving[-1] if self.arriving else 0.0) + (self.leaving[-1] if self.leaving else 0.0)


UNSEEN = Watched(NOTHING, 0, deque(), deque())


class EntityRoutes:
    """The routes about entities."""

    def __init__(self, namespace: Namespace, now_ms: Callable[[], int], instant: Callable[[int], str]) -> None:
        """`now_ms` is the machine's time: rates are by it, whatever a test's clock does."""
        self._namespace = namespace
        self._now_ms = now_ms
        self._instant = instant
        self._watched: dict[int, Watched] = {}
        self._whole_at_ms = 0  # When all entities were last seen.
        self._sums = _summed([])
        self._looking: asyncio.Task[None] | None = None
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {("GET", "entities"): self._page}

    async def _page(self, asked: Asked) -> Document:
        asked.only(*_PARAMETERS)
        skip, top = asked.number("skip", 0, 10**9), asked.number("top", PAGE, PAGE_MAX)
        sort, only = asked.one_of("sort", SORTS), asked.one_of("only", ONLY)
        everything = self._namespace.entities()
        await self._look_at_all(everything)
        chosen = [
            entity
            for entity in self._named(everything, asked)
            if not only or _is_one(only, entity, self._of(entity).seen)
        ]
        chosen.sort(key=lambda entity: entity.path.lower())
        if sort != "name":
            chosen.sort(key=lambda entity: _measure(sort, self._of(entity)), reverse=True)
        if after := asked.text("after").lower():
            chosen = [entity for entity in chosen if entity.path.lower() > after]
        page = chosen[skip : skip + top]
        await self._look_at([entity for entity in page if self._is_stale(entity)])
        return {
            "namespace": self._namespace.name,
            "now": self._instant(self._now_ms()),
            "all": len(everything),
            "total": len(chosen),
            "skip": skip,
            "sums": self._sums,
            "sums_at": self._instant(self._whole_at_ms),
            "entities": [self._document(entity) for entity in page],
        }

    def _named(self, everything: Iterable[AnyEntity], asked: Asked) -> list[AnyEntity]:
        """Those whose names and kinds are asked for."""
        kind, part, name = asked.one_of("kind", KINDS), asked.text("filter").lower(), asked.text("name").lower()
        return [
            entity
            for entity in everything
            if (not kind or _kind(entity) == kind)
            and (not part or part in entity.path.lower())
            and (not name or entity.path.lower() == name)
        ]

    # Looking

    async def _look_at_all(self, everything: Sequence[AnyEntity]) -> None:
        """See to it that every entity was seen lately; a great many are looked at while the request goes on."""
        age_ms = self._now_ms() - self._whole_at_ms
        if len(everything) <= MANY:
            if age_ms >= FRESH_MS:
                self._whole_at_ms = self._now_ms()
                await self._look_at(everything)
                self._forget(everything)
            return
        if self._looking is None and age_ms >= FRESH_MANY_MS:
            self._looking = asyncio.create_task(self._look_in_chunks(everything))
            self._looking.add_done_callback(self._looked)

    async def _look_in_chunks(self, everything: Sequence[AnyEntity]) -> None:
        for at in range(0, len(everything), CHUNK):
            await self._look_at(everything[at : at + CHUNK])
            await asyncio.sleep(0)
        self._whole_at_ms = self._now_ms()
        self._forget(everything)

    def _forget(self, everything: Sequence[AnyEntity]) -> None:
        """Sum up, and leave out what was deleted."""
        self._watched = {entity.id: self._of(entity) for entity in everything}
        self._sums = _summed(self._watched.values())

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled():
            task.exception()

    async def _look_at(self, entities: Sequence[AnyEntity]) -> None:
        if not entities:
            return
        found = await see(entities)
        now_ms = self._now_ms()
        for entity, seen in zip(entities, found, strict=True):
            self._watched[entity.id] = _followed(self._watched.get(entity.id), seen, now_ms)

    def _is_stale(self, entity: AnyEntity) -> bool:
        watched = self._watched.get(entity.id)
        return watched is None or self._now_ms() - watched.at_ms >= FRESH_MS

    def _of(self, entity: AnyEntity) -> Watched:
        return self._watched.get(entity.id, UNSEEN)

    # Wording

    def _document(self, entity: AnyEntity) -> Document:
        watched, description = self._of(entity), entity.description
        seen = watched.seen
        document: Document = {
            "name": entity.path,
            "kind": _kind(entity),
            "status": entity.status.value,
            "stores": sorted(set(entity.places)),
            "partitioned": entity.is_partitioned,
            "requires_session": bool(getattr(description, "requires_session", False)),
            "forward_to": getattr(description, "forward_to", None),
            "links": entity.links,
            **_counts(seen.counts),
            "locked": seen.locked,
            "bytes_max": getattr(description, "max_size_mb", 0) * 1024 * 1024,
            "arriving": [round(rate, 2) for rate in watched.arriving],
            "leaving": [round(rate, 2) for rate in watched.leaving],
        }
        if seen.problem is not None:
            document["problem"] = seen.problem
        return document


def _followed(before: Watched | None, seen: Seen, now_ms: int) -> Watched:
    """What a second look adds to the first."""
    if before is None or now_ms - before.at_ms > FORGET_MS or seen.arrived < before.seen.arrived:
        return Watched(seen, now_ms, deque(maxlen=POINTS), deque(maxlen=POINTS))
    elapsed_s = (now_ms - before.at_ms) / 1000
    if elapsed_s < FRESH_MS / 2000:
        return before._replace(seen=before.seen._replace(counts=seen.counts, locked=seen.locked))
    arrived = seen.arrived - before.seen.arrived
    left = max(0, arrived + _held(before.seen.counts) - _held(seen.counts))
    before.arriving.append(arrived / elapsed_s)
    before.leaving.append(left / elapsed_s)
    return Watched(seen, now_ms, before.arriving, before.leaving)


def _summed(all_watched: Iterable[Watched]) -> Document:
    """All of them together."""
    columns = [0] * len(Counts._fields)
    locked, arriving, leaving = 0, 0.0, 0.0
    for seen, _, coming, going in all_watched:
        if seen.arrived or seen.counts != NOTHING.counts:
            columns = [one + other for one, other in zip(columns, seen.counts, strict=True)]
            locked += seen.locked
        arriving += coming[-1] if coming else 0.0
        leaving += going[-1] if going else 0.0
    rates = {"arriving": round(arriving, 2), "leaving": round(leaving, 2)}
    return {**_counts(Counts(*columns)), "locked": locked, **rates}


def _held(counts: Counts) -> int:
    return counts.active + counts.deferred + counts.scheduled


def _kind(entity: AnyEntity) -> str:
    return "queue" if isinstance(entity, Queue) else "subscription" if isinstance(entity, Subscription) else "topic"


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "active": counts.active,
        "deferred": counts.deferred,
        "scheduled": counts.scheduled,
        "dead_letter": counts.dead_letter,
        "transfer_dead_letter": counts.transfer_dead_letter,
        "bytes": counts.size_bytes,
    }


def _measure(sort: str, watched: Watched) -> float:
    counts = watched.seen.counts
    if sort == "active":
        return _held(counts)
    if sort == "dead":
        return counts.dead_letter + counts.transfer_dead_letter
    return watched.rate if sort == "rate" else counts.size_bytes


def _is_one(only: str, entity: AnyEntity, seen: Seen) -> bool:
    dead = seen.counts.dead_letter + seen.counts.transfer_dead_letter
    if only == "dead":
        return dead > 0
    if only == "trouble":
        return entity.is_limited or seen.problem is not None or entity.status.value != "Active"
    return dead + _held(seen.counts) > 0
