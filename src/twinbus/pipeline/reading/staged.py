"""Claiming by staging: messages are received under a lock, kept in a segment, and completed when Spark is done with it.

Decides what an offset means, what a redelivery is, and what may be settled, from durable facts alone: the segments,
the number that Spark is done with, and the numbers of messages. Talking to a broker is `intake`'s business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading.staging import Key, Staged, Staging, by_session, ranges

# A segment whose messages are all gone, though nobody confirmed it, stays for so long: a look at a broker, one of whose
# stores is away, shows less than there is.
GRACE_S = 3600.0
# How often is asked whether messages that are still to be completed are there at all.
LOOK_S = 30.0
ROWS_PER_TASK = 5_000
# How long is waited for new messages while a batch is still to be committed.
BETWEEN_S = 0.1
# How long a run that is to end waits for messages to come back that it should have completed.
RETURN_S = 60.0


class Limit(NamedTuple):
    """How much one trigger may take."""

    messages: int
    bytes: int | None = None


class LockingBroker(Protocol):
    """A broker as it is seen from here. Locks are its business; messages are told apart by their keys."""

    def receive(self, limit: Limit, wait_s: float, known: Callable[[Key], bool]) -> list[Staged]:
        """Messages under lock, at most so many that are not known; more of those that are."""
        ...

    def settle(self, keys: Iterable[Key]) -> set[Key]:
        """Complete what is locked here; those of which the broker confirmed it."""
        ...

    def present(self, keys: Iterable[Key]) -> set[Key]:
        """Those of the keys that are still in their entities."""
        ...


class Offset(NamedTuple):
    """What is logged: all segments up to a number. The tick only makes two offsets differ."""

    segment: int
    tick: int = 0

    def told(self) -> dict[str, int]:
        """As Spark logs it."""
        return {"segment": self.segment, "tick": self.tick}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Offset:
        """As Spark tells it."""
        try:
            return cls(int(told["segment"]), int(told["tick"]))
        except (KeyError, TypeError, ValueError):
            text = f"The checkpoint holds the offset {dict(told)}, which is none of claimMode=stage."
            raise PipelineError(text) from None


class Part(NamedTuple):
    """Some rows of a segment, for one task."""

    segment: int
    first: int
    rows: int


class StagedClaims:
    """One query's claims. All that it must not forget is in the staging directory and in Spark's offsets."""

    def __init__(
        self,
        staging: Staging,
        intake: LockingBroker,
        *,
        settle_at_once: bool = False,
        fail_on_data_loss: bool = True,
        least: int = 1,
        patience_s: float = 0.0,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """With fewer new messages than `least`, a batch is put off for at most `patience_s`."""
        self._staging = staging
        self._intake = intake
        self._settle_at_once = settle_at_once
        self._fail_on_data_loss = fail_on_data_loss
        self._least = least
        self._patience_s = patience_s
        self._now_s = now_s
        self._committed = 0  # Spark has said that it is done with the segments up to this one.
        self._segments: dict[int, list[Key]] = {}
        self._home: dict[Key, int] = {}  # The segment of each message of these.
        self._unsettled: dict[int, set[Key]] = {}  # What the broker may still have, by segment.
        self._gone: set[int] = set()  # Segments some of which are gone by a look at the broker alone.
        self._pending: dict[Key, Staged] = {}  # Received, and in no segment yet.
        self._pending_since_s = 0.0
        self._looked_at_s = -LOOK_S
        self._is_loaded = False

    # What Spark asks

    def initial(self) -> Offset:
        """Where a query without a checkpoint begins: behind what an earlier one was done with."""
        self._load()
        return Offset(self._committed)

    def next(self, start: Offset, limit: Limit, wait_s: float, *, ending: bool = False) -> Offset:
        """Where the next batch ends; the start itself, if there is nothing to do.

        A segment that was written but never logged is taken as it is. While something is still to be committed, an
        offset that differs in its tick alone has Spark say so. `ending` waits for what is to come back.
        """
        self._load()
        orphans = [number for number in self._staging.numbers() if number > start.segment]
        if orphans:
            return Offset(orphans[0])
        uncommitted = self._committed < start.segment
        deadline_s = self._now_s() + RETURN_S
        while True:
            self._receive(limit, min(wait_s, BETWEEN_S) if uncommitted else wait_s)
            if self._is_due(limit, ending):
                return Offset(self._stage(max(start.segment, self._committed) + 1, limit))
            if uncommitted:
                return Offset(start.segment, start.tick + 1)
            self._settle(self.owed)
            self._look()
            if not (ending and self.owed) or self._now_s() > deadline_s:
                return start

    def parts(self, start: Offset, end: Offset, least: int | None = None) -> list[Part]:
        """The rows between two offsets, cut for tasks; the same rows in the same order whenever it is asked."""
        self._load()
        there = set(self._staging.numbers())
        found: list[Part] = []
        for number in range(start.segment + 1, end.segment + 1):
            if number in there:
                sessions = self._staging.sessions(number)
                cut = ranges(sessions, max(least or 1, -(-len(sessions) // ROWS_PER_TASK)))
                found += [Part(number, first, rows) for first, rows in cut]
            elif self._fail_on_data_loss:
                raise PipelineError(
                    f"Segment {number}, which the checkpoint asks for, is not in the staging directory. Messages that"
                    " were not completed are delivered again by the broker; failOnDataLoss=false goes on without it."
                )
        return found

    def commit(self, end: Offset) -> None:
        """Spark is done with everything up to here: complete it all, whoever received it."""
        self._load()
        self._staging.finish(end.segment)
        self._committed = max(self._committed, end.segment)
        self._settle(self.owed)
        self._look()
        self._collect()

    @property
    def owed(self) -> list[Key]:
        """What Spark is done with and the broker may still have."""
        return [key for number, keys in self._unsettled.items() if self._may_settle(number) for key in keys]

    # How

    def _load(self) -> None:
        """Learn from disk what earlier processes left."""
        if self._is_loaded:
            return
        self._committed = self._staging.finished
        for number in self._staging.numbers():
            self._add(number, self._staging.keys(number))
        self._is_loaded = True

    def _add(self, number: int, keys: list[Key]) -> None:
        self._segments[number] = keys
        self._unsettled[number] = set(keys)
        self._home |= dict.fromkeys(keys, number)

    def _may_settle(self, number: int) -> bool:
        return self._settle_at_once or number <= self._committed

    def _knows(self, key: Key) -> bool:
        return key in self._home or key in self._pending

    def _receive(self, limit: Limit, wait_s: float) -> None:
        """Takes in what is new. What is known was delivered again: completed if Spark is done with it, else held."""
        room = limit.messages - len(self._pending)
        if room <= 0 or (limit.bytes is not None and self._pending_bytes >= limit.bytes):
            return
        waiting_for = 0.0 if self._pending else wait_s
        back = []
        for message in self._intake.receive(Limit(room, limit.bytes), waiting_for, self._knows):
            key = Key(message.entity, message.number)
            home = self._home.get(key)
            if home is not None:
                self._unsettled[home].add(key)
                back.append(key)
            elif key not in self._pending:
                if not self._pending:
                    self._pending_since_s = self._now_s()
                self._pending[key] = message
        self._settle([key for key in back if self._may_settle(self._home[key])])

    @property
    def _pending_bytes(self) -> int:
        return sum(len(message.payload) for message in self._pending.values())

    def _is_due(self, limit: Limit, ending: bool) -> bool:
        """Whether what is there makes a batch; nothing is waited for that could not be taken."""
        if not self._pending:
            return False
        return (
            ending
            or len(self._pending) >= min(self._least, limit.messages)
            or (limit.bytes is not None and self._pending_bytes >= limit.bytes)
            or self._now_s() - self._pending_since_s >= self._patience_s
        )

    def _stage(self, number: int, limit: Limit) -> int:
        """Write what is pending, as much of it as one trigger may take; the rest stays locked for the next."""
        taken: list[Staged] = []
        size = 0
        for message in self._pending.values():
            size += len(message.payload)
            if taken and (len(taken) >= limit.messages or (limit.bytes is not None and size > limit.bytes)):
                break
            taken.append(message)
        messages = by_session(taken)
        self._staging.write(number, messages)
        keys = [Key(message.entity, message.number) for message in messages]
        self._add(number, keys)
        for key in keys:
            del self._pending[key]
        self._pending_since_s = self._now_s()
        if self._settle_at_once:
            self._settle(keys)
        return number

    def _settle(self, keys: Sequence[Key]) -> None:
        if keys:
            for key in self._intake.settle(keys):
                self._unsettled[self._home[key]].discard(key)

    def _collect(self) -> None:
        """Remove segments that Spark is done with and of which the broker has nothing any more."""
        for number in [number for number, keys in self._unsettled.items() if not keys and number <= self._committed]:
            if number in self._gone and self._staging.age_s(number, self._now_s()) < GRACE_S:
                continue
            self._staging.remove(number)
            del self._unsettled[number]
            self._gone.discard(number)
            for key in self._segments.pop(number):
                del self._home[key]

    def _look(self) -> None:
        """Ask now and then whether what should come back is there at all: it may have been settled before a crash."""
        owed = self.owed
        if not owed or self._now_s() - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = self._now_s()
        left = self._intake.present(owed)
        for key in owed:
            if key not in left:
                number = self._home[key]
                self._unsettled[number].discard(key)
                self._gone.add(number)
        self._collect()
