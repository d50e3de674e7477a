"""In which order messages leave an outbox: a pure plan that learns what waits and what became of what was sent.

Messages of one order group (a session or key of one entity) go one after the other, each when the one before is
acknowledged and forgotten; groups, and messages without one, go at the same time. Sending and forgetting is left to
`dispatcher`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

WINDOW = 1000  # Messages in memory.
WINDOW_BYTES = 16 * 1024 * 1024
GROUP_DEPTH = 50  # Messages of one group in memory, so that a long one leaves room for others.
LOT = 100  # Messages without a group that are sent together.
PAUSE_S = 0.5
PAUSE_MAX_S = 30.0


class Entry(NamedTuple):
    """A message that waits, or that was refused for good and set aside."""

    number: int
    path: str
    order_group: str | None
    message_id: str
    put_at_ms: int
    payload: bytes
    aside_at_ms: int | None = None
    reason: str | None = None

    @property
    def key(self) -> str | None:
        """The session or key that the message is kept in order by."""
        return None if self.order_group is None else self.order_group.split("\n", 1)[1]


class Wanted(NamedTuple):
    """Which messages a dispatcher has room for: the first so many, apart from those that it knows or cannot send."""

    limit: int
    max_bytes: int
    known: Sequence[int] = ()
    busy_groups: Sequence[str] = ()
    paused_paths: Sequence[str] = ()


class Lot(NamedTuple):
    """Messages for one entity that are sent together: one of a group, or several without."""

    path: str
    key: str | None
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Pause:
    """An entity that takes nothing at present."""

    until: float
    length_s: float


class DispatchPlan:
    """What a dispatcher has in memory. Times are on the clock of the caller."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._known: dict[int, Entry] = {}  # All of them, those that are under way included.
        self._bytes = 0
        self._groups: dict[str, deque[Entry]] = {}
        self._loose: dict[str, deque[Entry]] = {}  # Without a group, by path.
        self._busy: set[str] = set()  # Groups of which a message is under way.
        self._under_way = 0
        self._pauses: dict[str, Pause] = {}
        self._unloaded: set[str] = set()  # Groups that were given up since the outbox was last asked.

    @property
    def under_way(self) -> int:
        """How many lots have no outcome yet."""
        return self._under_way

    @property
    def waiting(self) -> int:
        """How many messages are known."""
        return len(self._known)

    def wanted(self, now: float) -> Wanted | None:
        """What there is room for; None if there is none."""
        room, room_bytes = WINDOW - len(self._known), WINDOW_BYTES - self._bytes
        if room <= WINDOW // 4 or room_bytes <= WINDOW_BYTES // 4:
            return None
        self._unloaded.clear()
        deep = [group for group, waiting in self._groups.items() if len(waiting) >= GROUP_DEPTH]
        return Wanted(room, room_bytes, list(self._known), deep, self.paused(now))

    def add(self, entries: Sequence[Entry], now: float) -> None:
        """Messages that were taken from the outbox, in its order.

        Of a group they are taken without a gap: not if it was given up while the outbox was asked, since earlier ones
        are missing then, and never behind one that was passed over.
        """
        paused = set(self.paused(now))
        for entry in entries:
            path = entry.path.lower()
            if entry.number in self._known or path in paused or entry.order_group in self._unloaded:
                continue
            if entry.order_group is not None and len(self._group(entry.order_group)) >= GROUP_DEPTH:
                continue
            self._known[entry.number] = entry
            self._bytes += len(entry.payload)
            waiting = (
                self._loose.setdefault(path, deque()) if entry.order_group is None else self._group(entry.order_group)
            )
            waiting.append(entry)

    def _group(self, group: str) -> deque[Entry]:
        return self._groups.setdefault(group, deque())

    def next(self, now: float) -> list[Lot]:
        """What is to be sent now; it is under way from here on."""
        lots: list[Lot] = []
        room = self._max_in_flight - self._under_way
        paused = set(self.paused(now))
        for group, waiting in self._groups.items():
            if len(lots) == room:
                break
            if waiting and group not in self._busy and waiting[0].path.lower() not in paused:
                entry = waiting[0]
                self._busy.add(group)
                lots.append(Lot(entry.path, entry.key, (entry,)))
        for path, loose in self._loose.items():
            while loose and len(lots) < room and path not in paused:
                lots.append(Lot(loose[0].path, None, tuple(loose.popleft() for _ in range(min(LOT, len(loose))))))
        self._under_way += len(lots)
        return lots

    def ended(self, lot: Lot, gone: Collection[int], *, took: bool, is_blocked: bool, now: float) -> None:
        """What became of a lot: `gone` are the numbers that the outbox no longer has waiting.

        A message of a group that is not gone is sent again before anything that follows it.
        """
        path = lot.path.lower()
        if is_blocked:
            self._pause(path, now)
        elif took:
            self._pauses.pop(path, None)
        self._under_way -= 1
        for entry in lot.entries:
            self._forget(entry)
        if lot.key is not None:
            group = lot.entries[0].order_group
            assert group is not None
            self._busy.discard(group)
            waiting = self._groups[group]
            if lot.entries[0].number in gone:
                waiting.popleft()
                if not waiting:
                    del self._groups[group]
            else:
                self._unload_group(group)
        if path in self.paused(now):
            self._unload_path(path)

    # Pauses

    def paused(self, now: float) -> list[str]:
        """Entities that take nothing at present."""
        return [path for path, pause in self._pauses.items() if pause.until > now]

    def next_try(self, now: float) -> float | None:
        """When the first of them will be tried again."""
        return min((pause.until for pause in self._pauses.values() if pause.until > now), default=None)

    def resume(self, path: str | None = None) -> None:
        """Something says that entities take messages again: try at once."""
        for paused, pause in self._pauses.items():
            if path is None or paused == path.lower():
                pause.until = float("-inf")
                pause.length_s = PAUSE_S

    def _pause(self, path: str, now: float) -> None:
        pause = self._pauses.get(path)
        if pause is None:
            self._pauses[path] = Pause(now + PAUSE_S, PAUSE_S)
        elif pause.until <= now:  # Several lots that fail together are one failure.
            pause.length_s = min(pause.length_s * 2, PAUSE_MAX_S)
            pause.until = now + pause.length_s

    # Memory: what cannot be sent now makes room for what can

    def _forget(self, entry: Entry) -> None:
        if self._known.pop(entry.number, None) is not None:
            self._bytes -= len(entry.payload)

    def _unload_group(self, group: str) -> None:
        self._unloaded.add(group)
        for entry in self._groups.pop(group, ()):
            self._forget(entry)

    def _unload_path(self, path: str) -> None:
        for group in [group for group in self._groups if group.split("\n", 1)[0] == path and group not in self._busy]:
            self._unload_group(group)
        for entry in self._loose.pop(path, ()):
            self._forget(entry)
