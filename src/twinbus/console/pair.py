"""The pair as the console watches it: both namespaces asked again and again, what each last said, and what changed.

Decides nothing about the pair: clients do. Watching is quick while somebody looks, and slow otherwise.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from twinbus.console.asking import Asker, Document, Door, Memory, RefusedError, SilentError
from twinbus.console.shapes import seconds_of
from twinbus.console.signing import Credential

LOOKED_S = 2.0  # Between two looks while somebody watches.
UNWATCHED_S = 15.0
WATCHED_S = 20.0  # So long after the last page somebody counts as watching.
ASK_S = 1.5
LOCATE_S = 5.0
POINTS = 150
PAGE = 50  # Entities on a page of a list.
EVENTS_KEPT = 50
TRANSFER = "/x-servicebus-transfer"  # Of backlog queues, plain and ordered.


@dataclass(frozen=True, slots=True)
class Side:
    """One namespace of the pair, as whoever starts the console describes it."""

    role: str
    credential: Credential
    locate: Callable[[], Awaitable[str]]  # Where it is administered; may take a while, and fail.
    host: str
    name: str | None = None
    tls: ssl.SSLContext | bool = True


@dataclass(frozen=True, slots=True)
class Pair:
    """Both."""

    primary: Side
    secondary: Side


class Look(NamedTuple):
    """What one namespace said at one moment."""

    at_s: float
    took_ms: float
    status: Document
    sums: Document
    backlog: list[Document]
    clients: list[Document]
    oldest_s: float | None  # Age of the oldest message in a backlog queue.


@dataclass(slots=True)
class Watched:
    """One namespace as it was last seen."""

    side: Side
    address: str | None = None
    look: Look | None = None
    problem: str | None = "not asked yet"
    since_s: float = 0.0  # Since when it answers, or does not.
    asked_at_s: float = 0.0

    @property
    def known_name(self) -> str | None:
        """The namespace's name, once it has told it or if it was described."""
        told = self.look.status.get("namespace") if self.look is not None else None
        return str(told) if told else self.side.name

    @property
    def name(self) -> str:
        """The namespace's name, or its part in the pair."""
        return self.known_name or self.side.role

    @property
    def is_up(self) -> bool:
        """Whether it answered when it was last asked."""
        return self.problem is None and self.look is not None


class Point(NamedTuple):
    """The pair at one moment, for its timeline."""

    at_s: float
    state: str
    arriving: float
    backlog: int


class Event(NamedTuple):
    """Something that this console saw happen."""

    at_s: float
    kind: str
    words: str


@dataclass(slots=True)
class Standing:
    """What follows from both looks."""

    state: str = "unknown"
    since_s: float = 0.0
    why: str = ""
    next: str = ""
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))


class PairWatch:
    """Watches one pair, from the first page on that somebody looks at."""

    def __init__(self, pair: Pair, memory: Memory, now_s: Callable[[], float] = time.time) -> None:
        self.primary, self.secondary = Watched(pair.primary), Watched(pair.secondary)
        self.standing = Standing()
        self._memory = memory
        self._now_s = now_s
        self._viewed_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()
        self._viewed = asyncio.Event()

    async def view(self, http: aiohttp.ClientSession, patience_s: float) -> None:
        """Somebody looks: go on watching quickly. The first time, wait a little for something to show."""
        self._viewed_at_s = self._now_s()
        self._viewed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._watch(http))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), patience_s)

    async def close(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def half(self, namespace: str) -> Watched | None:
        """The one of that name."""
        for watched in (self.primary, self.secondary):
            if watched.name.lower() == namespace.lower():
                return watched
        return None

    async def asker(self, http: aiohttp.ClientSession, watched: Watched) -> Asker | None:
        """Somebody to ask the namespace by, if it is known where it is."""
        if watched.address is None:
            return None
        side = watched.side
        host = side.host
        parts = urlsplit(watched.address)
        shown = f"{host}:{parts.port}" if parts.port else host
        return Asker(http, Door(watched.address, shown, side.tls), side.credential, self._memory)

    # Watching

    async def _watch(self, http: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.gather(*(self._look(http, watched) for watched in (self.primary, self.secondary)))
            judge(self.standing, self.primary, self.secondary, self._now_s())
            self._first.set()
            if self._now_s() - self._viewed_at_s < WATCHED_S:
                await asyncio.sleep(LOOKED_S)
                continue
            self._viewed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._viewed.wait(), UNWATCHED_S)

    async def _look(self, http: aiohttp.ClientSession, watched: Watched) -> None:
        was_up, now = watched.is_up, self._now_s()
        watched.asked_at_s = now
        try:
            if watched.address is None:
                async with asyncio.timeout(LOCATE_S):
                    watched.address = (await watched.side.locate()).rstrip("/")
            asker = await self.asker(http, watched)
            assert asker is not None
            watched.look = await _seen(asker, self.primary.known_name, self._now_s)
            watched.problem = None
        except (RefusedError, SilentError, TimeoutError, OSError) as problem:
            watched.problem = str(problem) or "it cannot be reached"
        except Exception as problem:
            # Whoever locates a namespace has errors of its own, and each means that it was not found.
            watched.problem = f"it was not found: {problem}"[:200]
        if watched.is_up != was_up or not watched.since_s:
            watched.since_s = now


async def _seen(asker: Asker, primary: str | None, now_s: Callable[[], float]) -> Look:
    began = time.perf_counter()
    status = await asker.api("GET", "status", timeout_s=ASK_S)
    took_ms = (time.perf_counter() - began) * 1000
    page, told, _ = await asyncio.gather(
        asker.api("GET", "entities", {"filter": TRANSFER, "top": "100"}, timeout_s=ASK_S),
        asker.api("GET", "clients", timeout_s=ASK_S),
        asker.look("entities", top=PAGE),  # Remembered, for the list of both namespaces when this one is gone.
    )
    backlog = [entity for entity in page["entities"] if is_backlog(entity["name"], primary)]
    oldest = await asyncio.gather(*(_oldest(asker, queue["name"]) for queue in backlog if queue["active"]))
    ages = [now_s() - at_s for at_s in oldest if at_s is not None]
    clients = [tidied(record) for record in told["clients"]]
    return Look(now_s(), took_ms, status, page["sums"], backlog, clients, max(ages, default=None))


async def _oldest(asker: Asker, queue: str) -> float | None:
    found = await asker.api("GET", "messages", {"entity": queue, "top": "1", "preview": "1"}, timeout_s=ASK_S)
    return seconds_of(found["messages"][0]["enqueued_at"]) if found["messages"] else None


def tidied(record: Document) -> Document:
    """A client's record with a state of the expected shape: whoever may send can write anything into it."""
    state = record["state"] if isinstance(record.get("state"), dict) else {}
    ill, syphon = state.get("ill"), state.get("syphon")
    kept: Document = {
        "ill": {str(name): str(how) for name, how in ill.items()} if isinstance(ill, dict) else {},
        "syphon": None,
        **{name: _whole(state.get(name)) for name in ("ill_count", "diverted", "pings")},
    }
    if isinstance(syphon, dict):
        problem = syphon.get("problem")
        kept["syphon"] = {"moved": _whole(syphon.get("moved")), "problem": str(problem)[:300] if problem else None}
    return {**record, "state": kept}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def is_backlog(name: str, primary: str | None) -> bool:
    """Whether a queue keeps what is diverted from the primary; while its name is not known, from any."""
    before, found, _ = name.lower().partition(TRANSFER)
    return bool(found) and (primary is None or before == primary.lower())


# Judging


def waiting_in(backlog: list[Document]) -> int:
    """Messages in backlog queues that can still be brought home."""
    return sum(int(queue["active"] + queue["deferred"] + queue["scheduled"]) for queue in backlog)


def clients_of(primary: Watched, secondary: Watched) -> list[Document]:
    """Who says that it is alive, from whichever namespace has the newer record."""
    newest: dict[str, Document] = {}
    for watched in (primary, secondary):
        for record in watched.look.clients if watched.look is not None else []:
            known = newest.get(record["id"])
            if known is None or known["seen_at"] < record["seen_at"]:
                newest[record["id"]] = record
    return sorted(newest.values(), key=lambda record: (record["kind"], record["host"], record["process"]))


def syphons_in(clients: list[Document]) -> list[Document]:
    """Those that bring messages home."""
    return [record for record in clients if record["kind"] == "syphon" or record["state"].get("syphon") is not None]


def diverting(clients: list[Document]) -> list[Document]:
    """Paired clients some of whose sends go to the backlog."""
    return [record for record in clients if "failed over" in (record["state"].get("ill") or {}).values()]


def state_of(primary: Watched, secondary: Watched) -> tuple[str, str, str]:
    """The pair's state in a word, why it is so, and what comes next."""
    clients = clients_of(primary, secondary)
    backlog = secondary.look.backlog if secondary.look is not None else []
    waiting, away = waiting_in(backlog), diverting(clients)
    syphons = syphons_in(clients)
    brings = "A syphon brings them home." if syphons else "No syphon is running: start `twinbus syphon`."
    if not primary.is_up and not secondary.is_up:
        return "both down", "Neither namespace answers.", "Clients with an outbox keep their messages in it."
    if not primary.is_up:
        why = f"The primary does not answer: {primary.problem}."
        if away:
            return "diverted", why, "Paired clients send to the backlog and ping the primary until it answers."
        return "failing", why, "Paired clients divert when their failover interval is over."
    if away:
        names = sorted({name for record in away for name in record["state"]["ill"]})
        why = f"{len(away)} client(s) divert what they send to {', '.join(names[:3])}."
        return "diverted", why, "Each pings the primary, and goes back to it when a ping succeeds."
    if not secondary.is_up:
        return "unprotected", f"The secondary does not answer: {secondary.problem}.", "Nothing could be diverted now."
    if waiting:
        return "draining", f"{waiting:,} messages wait in the backlog.", brings
    ill = [record for record in clients if record["state"].get("ill_count")]
    if ill:
        return "suspect", f"Sends of {len(ill)} client(s) have failed.", "They divert if it goes on."
    return "normal", "Everything is sent to the primary, and the backlog is empty.", ""


def judge(standing: Standing, primary: Watched, secondary: Watched, now_s: float) -> None:
    """Take the latest looks into account."""
    state, why, following = state_of(primary, secondary)
    if state != standing.state:
        if standing.state != "unknown":
            lasted = now_s - standing.since_s
            standing.events.append(Event(now_s, state, f"{standing.state} → {state}, after {lasted:.0f} s. {why}"))
        standing.state, standing.since_s = state, now_s
    standing.why, standing.next = why, following
    arriving = primary.look.sums.get("arriving", 0.0) if primary.is_up and primary.look is not None else 0.0
    backlog = secondary.look.backlog if secondary.look is not None else []
    standing.points.append(Point(now_s, state, float(arriving), waiting_in(backlog)))


def told_ago_s(clients: list[Document], now_s: float) -> float | None:
    """How old the oldest word of these clients is: they speak now and then, and when something changes."""
    ages = [now_s - at_s for record in clients if (at_s := seconds_of(record["seen_at"])) is not None]
    return max(ages, default=None)


def syphoned(clients: list[Document]) -> int:
    """Messages that the syphons which are alive have brought home."""
    told: list[dict[str, Any]] = [record["state"].get("syphon") or {} for record in syphons_in(clients)]
    return sum(int(record.get("moved") or 0) for record in told)
