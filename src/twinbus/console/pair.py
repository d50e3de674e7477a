"""The pair as the console watches it: both namespaces asked again and again, what each last said, and what changed.

Decides nothing about the pair: clients do. Watching is quick while somebody looks, and slow otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

from twinbus.console.asking import PATIENCE_S, Asker, Document, Door, Memory, RefusedError, SilentError
from twinbus.console.book import Book
from twinbus.console.clients import diverting, drainers, syphons_in, tidied
from twinbus.console.incidents import Incidents, Moment, Point
from twinbus.console.past import Past
from twinbus.console.shapes import seconds_of
from twinbus.console.signing import Credential

log = logging.getLogger("twinbus.console")

LOOKED_S = 2.0  # Between two looks while somebody watches.
UNWATCHED_S = 15.0
WATCHED_S = 20.0  # So long after the last page somebody counts as watching.
ASK_S = 1.5
LOCATE_S = 5.0
POINTS = 150
PAGE = 50  # Entities on a page of a list.
WARNED = ("draining", "waiting", "suspect", "unprotected")
KINDS = {"normal": "good", **dict.fromkeys(WARNED, "warn")}  # Of states; others are bad.
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
    balance: Document  # Its conservation line.


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
    def pair_name(self) -> str | None:
        """The name by which its backlog queues and clients go: as it was described, else as it says."""
        return self.side.name or self.known_name

    @property
    def name(self) -> str:
        """The namespace's name, or its part in the pair."""
        return self.known_name or self.side.role

    @property
    def is_up(self) -> bool:
        """Whether it answered when it was last asked."""
        return self.problem is None and self.look is not None


@dataclass(slots=True)
class Standing:
    """What follows from both looks."""

    state: str = "unknown"
    since_s: float = 0.0
    why: str = ""
    next: str = ""
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))


class PairWatch:
    """Watches one pair, from the broker's start on."""

    def __init__(self, pair: Pair, memory: Memory, now_s: Callable[[], float] = time.time) -> None:
        self.primary, self.secondary = Watched(pair.primary), Watched(pair.secondary)
        self.standing = Standing()
        self.incidents = Incidents()
        self._book = Book(None)
        self.past = Past(None)
        self._memory = memory
        self._now_s = now_s
        self._viewed_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()
        self._viewed = asyncio.Event()

    def begin(self, http: aiohttp.ClientSession, book: Book, past: Past | None = None) -> None:
        """Watch, and go on with the incidents that were kept, and with what was last seen."""
        self._book = book
        self.past = past or self.past
        self.incidents.kept.extend(book.read())
        self._task = asyncio.create_task(self._watch(http))

    async def view(self) -> float:
        """Somebody looks: go on watching quickly. At first, wait a little for something to show; what time is left."""
        self._viewed_at_s = self._now_s()
        self._viewed.set()
        if self._first.is_set():
            return PATIENCE_S
        began = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), PATIENCE_S)
        return max(0.0, PATIENCE_S - (time.monotonic() - began))

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

    def asker(self, http: aiohttp.ClientSession, watched: Watched, patience_s: float = PATIENCE_S) -> Asker | None:
        """Somebody to ask the namespace by, if it is known where it is."""
        if watched.address is None:
            return None
        side = watched.side
        host = side.host
        parts = urlsplit(watched.address)
        shown = f"{host}:{parts.port}" if parts.port else host
        door = Door(watched.address, shown, side.tls)
        return Asker(http, door, side.credential, self._memory, patience_s=patience_s)

    # Watching

    async def _watch(self, http: aiohttp.ClientSession) -> None:
        while True:
            try:
                await self._look_at_both(http)
            except Exception:
                log.exception("the pair could not be judged")  # The next look may be another.
            self._first.set()
            if self.incidents.open is not None or self._now_s() - self._viewed_at_s < WATCHED_S:
                await asyncio.sleep(LOOKED_S)
                continue
            self._viewed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._viewed.wait(), UNWATCHED_S)

    async def _look_at_both(self, http: aiohttp.ClientSession) -> None:
        await asyncio.gather(*(self._look(http, watched) for watched in (self.primary, self.secondary)))
        judge(self.standing, self.primary, self.secondary, self._now_s())
        changed = self.incidents.take(self._moment())
        if changed is not None:
            everything = (incident.document() for incident in list(self.incidents.kept))
            await asyncio.to_thread(self._book.write, changed.document(), everything)

    def _moment(self) -> Moment:
        """What the last looks tell, for incidents."""
        standing, look = self.standing, self.secondary.look
        point = standing.points[-1]
        clients = clients_of(self.primary, self.secondary)
        oldest_s = None if look is None else look.oldest_s
        return Moment(point.at_s, point.state, standing.why, point.arriving, point.backlog, oldest_s, clients)

    async def _look(self, http: aiohttp.ClientSession, watched: Watched) -> None:
        was_up, now = watched.is_up, self._now_s()
        watched.asked_at_s = now
        try:
            if watched.address is None:
                async with asyncio.timeout(LOCATE_S):
                    watched.address = (await watched.side.locate()).rstrip("/")
            asker = self.asker(http, watched)
            assert asker is not None
            watched.look = await _seen(asker, self.primary.pair_name, self._now_s)
            watched.problem = None
            await asyncio.to_thread(self.past.look, watched.side.role, watched.look.status)
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
    page, told, balance, _ = await asyncio.gather(
        asker.api("GET", "entities", {"filter": TRANSFER, "top": "100"}, timeout_s=ASK_S),
        asker.api("GET", "clients", timeout_s=ASK_S),
        asker.look("balance"),
        asker.look("entities", top=PAGE),  # Remembered, for the list of both namespaces when this one is gone.
    )
    backlog = [entity for entity in page["entities"] if is_backlog(entity["name"], primary)]
    held = [queue for queue in backlog if queue["active"]]
    oldest = await asyncio.gather(*(_oldest(asker, queue["name"]) for queue in held))
    ages = []
    for queue, at_s in zip(held, oldest, strict=True):
        if at_s is not None:
            queue["oldest_s"] = now_s() - at_s
            ages.append(now_s() - at_s)
    clients = [tidied(record) for record in told["clients"]]
    line = balance.document or {"told": False, "why": f"It does not tell: {balance.problem}."}
    return Look(now_s(), took_ms, status, page["sums"], backlog, clients, max(ages, default=None), line)


async def _oldest(asker: Asker, queue: str) -> float | None:
    found = await asker.api("GET", "messages", {"entity": queue, "top": "1", "preview": "1"}, timeout_s=ASK_S)
    return seconds_of(found["messages"][0]["enqueued_at"]) if found["messages"] else None


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
    pair = primary.pair_name
    for watched in (primary, secondary):
        for record in watched.look.clients if watched.look is not None else []:
            if pair is not None and str(record.get("pair", pair)).lower() != pair.lower():
                continue  # Several primaries may share a secondary.
            known = newest.get(record["id"])
            if known is None or known["seen_at"] < record["seen_at"]:
                newest[record["id"]] = record
    return sorted(newest.values(), key=lambda record: (record["kind"], record["host"], record["process"]))


def state_of(primary: Watched, secondary: Watched) -> tuple[str, str, str]:
    """The pair's state in a word, why it is so, and what comes next."""
    clients = clients_of(primary, secondary)
    backlog = secondary.look.backlog if secondary.look is not None else []
    waiting, away = waiting_in(backlog), diverting(clients)
    stuck = f" {stranded_in(backlog, clients)}".rstrip()
    if not primary.is_up and not secondary.is_up:
        return "both down", "Neither namespace answers.", "Clients with an outbox keep their messages in it."
    if not primary.is_up:
        why = f"The primary does not answer: {primary.problem}."
        if away:
            return "diverted", why, f"Paired clients send to the backlog and ping the primary until it answers.{stuck}"
        return "failing", why, f"Paired clients divert when their failover interval is over.{stuck}"
    if away:
        names = sorted({name for record in away for name in record["state"]["ill"]})
        why = f"{len(away)} client(s) divert what they send to {', '.join(names[:3])}."
        return "diverted", why, f"Each pings the primary, and goes back to it when a ping succeeds.{stuck}"
    if not secondary.is_up:
        return "unprotected", f"The secondary does not answer: {secondary.problem}.", "Nothing could be diverted now."
    if waiting:
        return _with_backlog(waiting, stuck.strip(), clients)
    ill = [record for record in clients if record["state"].get("ill_count")]
    if ill:
        return "suspect", f"Sends of {len(ill)} client(s) have failed.", "They divert if it goes on."
    return "normal", "Everything is sent to the primary, and the backlog is empty.", ""


def stranded_in(backlog: list[Document], clients: list[Document]) -> str:
    """In words, messages of the backlog that nobody brings home; nothing if there are none."""
    if not waiting_in(backlog):
        return ""
    if not syphons_in(clients):
        return "No syphon is running: start `twinbus syphon`."
    alone = [queue for queue in backlog if waiting_in([queue]) and not drainers(clients, queue["name"])]
    if not alone:
        return ""
    names = ", ".join(queue["name"] for queue in alone[:3])
    return f"{waiting_in(alone):,} of them are in queues that no syphon drains: {names}."


def _with_backlog(waiting: int, stuck: str, clients: list[Document]) -> tuple[str, str, str]:
    """Both namespaces answer, and messages are in the backlog: it is drained, waits for something, or is stranded."""
    why = f"{waiting:,} messages wait in the backlog."
    if stuck:
        return "stranded", why, stuck
    told = [record["state"]["syphon"] or {} for record in syphons_in(clients)]
    if all(syphon.get("waits_for") for syphon in told):
        role = told[0]["waits_for"]
        return "waiting", why, f"The syphon does not reach the {role} yet, and looks for it: {told[0]['problem']}."
    blocked = {path: text for syphon in told for path, text in (syphon.get("blocked") or {}).items()}
    if blocked:
        path, text = next(iter(blocked.items()))
        return "waiting", why, f"'{path}' takes nothing from the syphon: {text}."
    return "draining", why, "A syphon brings them home."


def judge(standing: Standing, primary: Watched, secondary: Watched, now_s: float) -> None:
    """Take the latest looks into account."""
    state, why, following = state_of(primary, secondary)
    if state != standing.state:
        standing.state, standing.since_s = state, now_s
    standing.why, standing.next = why, following
    arriving = primary.look.sums.get("arriving", 0.0) if primary.is_up and primary.look is not None else 0.0
    backlog = secondary.look.backlog if secondary.look is not None else []
    standing.points.append(Point(now_s, state, float(arriving), waiting_in(backlog)))
