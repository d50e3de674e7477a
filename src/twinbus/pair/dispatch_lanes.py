"""In which order messages leave an outbox: a pure plan that is told what waits and what became of what was sent.

Messages of one lane (a session or key of one entity) go one after the other, each when the one before is acknowledged
and forgotten; lanes, and messages without one, go beside each other. Sending and forgetting is `dispatch`'s work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from twinbus.pair.outbox_rows import Entry, Wanted

WINDOW = 1000  # Messages in memory.
WINDOW_BYTES = 16 * 1024 * 1024
LANE_DEPTH = 50  # Messages of one lane in memory, so that a long one leaves room for others.
LOT = 100  # Messages without a lane that are sent together.
PAUSE_S = 0.5
PAUSE_MAX_S = 30.0


class Fate(Enum):
    """What became of a message that was sent."""

    SENT = "acknowledged"
    REFUSED = "refused for good"
    LATER = "not taken at present"


class Lot(NamedTuple):
    """Messages for one entity that are sent together: one of a lane, or several without."""

    path: str
    key: str | None
    entries: tuple[Entry, ...]


class Outcome(NamedTuple):
    """What became of one message, and why."""

    fate: Fate
    reason: str = ""


@dataclass(slots=True)
class Pause:
    """An entity that takes nothing at present."""

    until: float
    length_s: float


@dataclass(slots=True)
class Settled:
    """What is to be written down about a lot."""

    sent: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


class Lanes:
    """What a dispatcher has in memory. Times are on the clock of whoever asks."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._known: dict[int, Entry] = {}  # All of them, those that are under way included.
        self._bytes = 0
        self._lanes: dict[str, deque[Entry]] = {}
        self._loose: dict[str, deque[Entry]] = {}  # Without a lane, by path.
        self._busy: set[str] = set()  # Lanes of which a message is under way.
        self._under_way = 0
        self._pauses: dict[str, Pause] = {}
        self._unloaded: set[str] = set()  # Lanes that were given up since the outbox was last asked.

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
        deep = [lane for lane, waiting in self._lanes.items() if len(waiting) >= LANE_DEPTH]
        return Wanted(room, room_bytes, list(self._known), deep, self.paused(now))

    def add(self, entries: Sequence[Entry], now: float) -> None:
        """Messages that were taken from the outbox, in its order.

        Of a lane they are taken without a gap: not if it was given up while the outbox was asked, since earlier ones
        are missing then, and never behind one that was passed over.
        """
        paused = set(self.paused(now))
        for entry in entries:
            path = entry.path.lower()
            if entry.number in self._known or path in paused or entry.lane in self._unloaded:
                continue
            if entry.lane is not None and len(self._lane(entry.lane)) >= LANE_DEPTH:
                continue
            self._known[entry.number] = entry
            self._bytes += len(entry.payload)
            waiting = self._loose.setdefault(path, deque()) if entry.lane is None else self._lane(entry.lane)
            waiting.append(entry)

    def _lane(self, lane: str) -> deque[Entry]:
        return self._lanes.setdefault(lane, deque())

    def next(self, now: float) -> list[Lot]:
        """What is to be sent now; it is under way from here on."""
        lots: list[Lot] = []
        room = self._max_in_flight - self._under_way
        paused = set(self.paused(now))
        for lane, waiting in self._lanes.items():
            if len(lots) == room:
                break
            if waiting and lane not in self._busy and waiting[0].path.lower() not in paused:
                entry = waiting[0]
                self._busy.add(lane)
                lots.append(Lot(entry.path, entry.key, (entry,)))
        for path, loose in self._loose.items():
            while loose and len(lots) < room and path not in paused:
                lots.append(Lot(loose[0].path, None, tuple(loose.popleft() for _ in range(min(LOT, len(loose))))))
        self._under_way += len(lots)
        return lots

    def done(self, lot: Lot, outcomes: Sequence[Outcome], now: float) -> Settled:
        """What became of a lot. It stays under way until `settled`, so that nothing of its lane overtakes the note."""
        settled = Settled()
        for entry, outcome in zip(lot.entries, outcomes, strict=True):
            if outcome.fate is Fate.SENT:
                settled.sent.append(entry.number)
            elif outcome.fate is Fate.REFUSED:
                settled.refused.append((entry.number, outcome.reason))
        if any(outcome.fate is Fate.LATER for outcome in outcomes):
            self._pause(lot.path.lower(), now)
        elif settled.sent:
            self._pauses.pop(lot.path.lower(), None)
        return settled

    def settled(self, lot: Lot, noted: bool, settled: Settled, now: float) -> None:
        """The note was written down, or it was not: then nothing more of the lane leaves before it is."""
        self._under_way -= 1
        gone = {*settled.sent, *(number for number, _ in settled.refused)} if noted else set()
        for entry in lot.entries:
            self._forget(entry)
        if lot.key is not None:
            lane = lot.entries[0].lane
            assert lane is not None
            self._busy.discard(lane)
            waiting = self._lanes[lane]
            if lot.entries[0].number in gone:
                waiting.popleft()
                if not waiting:
                    del self._lanes[lane]
            else:
                self._unload_lane(lane)
        if lot.path.lower() in self.paused(now):
            self._unload_path(lot.path.lower())

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

    def _unload_lane(self, lane: str) -> None:
        self._unloaded.add(lane)
        for entry in self._lanes.pop(lane, ()):
            self._forget(entry)

    def _unload_path(self, path: str) -> None:
        for lane in [lane for lane in self._lanes if lane.split("\n", 1)[0] == path and lane not in self._busy]:
            self._unload_lane(lane)
        for entry in self._loose.pop(path, ()):
            self._forget(entry)
