"""What came into a store since it was opened, and what left it, by how: both sides of the conservation line.

Counted once for each commit, from the page that it journals, so that no message costs anything. The words are those of
docs/reconcile.md, which proves the same from the journal's files, copy by copy.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from twinbus.store.journal import JournalPage
from twinbus.store.volatile import Memory

_BY_API = frozenset({("http", "api"), ("http", "job")})  # Who sends dead letters back.
_CREATED = {"send": "accepted", "schedule": "scheduled", "copy": "fanned_out"}
_ENDED = {
    "complete": "completed",
    "receive_delete": "received_deleted",
    "forward": "forwarded",
    "ttl_expire": "expired",
    "delete": "purged",
    "cancel": "cancelled",
    "damaged": "damaged",
}


class Balance(NamedTuple):
    """The line of one store: held at its start and created is ended and held now."""

    since_ms: int
    held_at_start: int
    created: dict[str, int]
    ended: dict[str, int]
    held: dict[str, int]

    @property
    def delta(self) -> int:
        """What the right side has too much; anything but 0 is a defect."""
        return sum(self.ended.values()) + sum(self.held.values()) - self.held_at_start - sum(self.created.values())


class Scales:
    """Counts of copies since an instant."""

    __slots__ = ("_created", "_ended", "_held_at_start", "_since_ms")

    def __init__(self, memory: Memory, now_ms: int) -> None:
        self._since_ms = now_ms
        self._held_at_start = sum(_held(memory).values())
        self._created: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()

    def take(self, page: JournalPage) -> None:
        """Count what a commit did, once it is done."""
        for operation, queue, connection, client, outcome, ids, *_ in page.groups:
            if operation in _CREATED:
                if operation == "copy":
                    self._created["fanned_out"] += len(queue) * len(ids)
                elif not outcome and (operation != "send" or queue not in page.topics):
                    # Duplicates, pings and refusals have an outcome: they make no copy either.
                    self._created[_way(_CREATED[operation], operation, connection, client)] += len(ids)
            elif operation in _ENDED and (operation != "ttl_expire" or outcome == "removed"):
                way = "published" if outcome == "published" else _ENDED[operation]
                self._ended[_way(way, operation, connection, client)] += len(ids)
        if page.dropped:
            self._ended["dropped"] += page.dropped

    def balance(self, memory: Memory) -> Balance:
        """The line as it is between two commits."""
        created, ended = dict((+self._created).most_common()), dict((+self._ended).most_common())
        return Balance(self._since_ms, self._held_at_start, created, ended, _held(memory))


def _way(way: str, operation: str, connection: str, client: str) -> str:
    """Forwarding and sending back are moves from one queue to another: told apart from what people did."""
    if operation in ("send", "complete") and client == "forward" and connection == "":
        return "forwarded"
    if operation in ("send", "forward") and (connection, client) in _BY_API:
        return "redriven"
    return way


def _held(memory: Memory) -> dict[str, int]:
    """Copies by state; those of a dropped entity went with it, although their rows are freed later."""
    held = dict.fromkeys(("active", "deferred", "scheduled", "dead", "transfer_dead"), 0)
    for entity in memory.entities.values():
        if not entity.dropped:
            main, dead, transfer = entity.queues
            held["active"] += main.active
            held["deferred"] += main.deferred
            held["scheduled"] += main.scheduled
            held["dead"] += dead.active + dead.deferred
            held["transfer_dead"] += transfer.active + transfer.deferred
    return held
