"""A broker, a disk and a Spark that forget what a crash makes them forget, for tests of claims without them.

Every step of theirs can be the last of a process: `Fate` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from twinbus.pipeline.reading.staged import Limit
from twinbus.pipeline.reading.staging import Key, Staged


class CrashError(Exception):
    """The process is gone."""


class Fate:
    """Ends the process at its n-th step; never, if n is None."""

    def __init__(self, crash_at: int | None = None) -> None:
        self._left = crash_at

    def step(self) -> None:
        if self._left is None:
            return
        if self._left == 0:
            raise CrashError
        self._left -= 1


@dataclass
class Broker:
    """Messages by key. Locks belong to a process and end with it; what is set aside stays so."""

    messages: dict[Key, str | None] = field(default_factory=dict)  # The mark of one that is set aside.
    locked: set[Key] = field(default_factory=set)
    deliveries: dict[Key, int] = field(default_factory=dict)
    fate: Fate = field(default_factory=Fate)
    refuse_settling: bool = False
    _numbers: dict[str, int] = field(default_factory=dict)

    def send(self, entity: str, count: int = 1) -> list[Key]:
        sent = []
        for _ in range(count):
            number = self._numbers.get(entity, 0) + 1
            self._numbers[entity] = number
            self.messages[Key(entity, number)] = None
            sent.append(Key(entity, number))
        return sent

    def process_ended(self) -> None:
        self.locked.clear()

    def locks_expire(self) -> None:
        self.locked.clear()

    # As `staged` sees it

    def receive(self, limit: Limit, wait_s: float, known: Callable[[Key], bool] = lambda _: False) -> list[Staged]:
        self.fate.step()
        taken = []
        fresh = size = 0
        for key in sorted(self.messages):
            if self.messages[key] is not None or key in self.locked:
                continue
            if fresh >= limit.messages or (limit.bytes is not None and size >= limit.bytes):
                break
            payload = f"{key.entity}/{key.number}".encode()
            fresh += not known(key)
            size += len(payload)
            self.locked.add(key)
            self.deliveries[key] = self.deliveries.get(key, 0) + 1
            taken.append(Staged(key.entity, key.number, None, 0, payload))
        self.fate.step()
        return taken

    def settle(self, keys: Iterable[Key]) -> set[Key]:
        confirmed = set()
        for key in sorted(keys):
            self.fate.step()
            if key in self.locked and not self.refuse_settling:
                self.locked.discard(key)
                del self.messages[key]
                confirmed.add(key)
        self.fate.step()
        return confirmed

    def present(self, keys: Iterable[Key]) -> set[Key]:
        self.fate.step()
        return {key for key in keys if key in self.messages}


@dataclass
class Marking:
    """The same broker as `deferred` sees it."""

    broker: Broker
    mark: str = "mine"

    def receive(self, limit: Limit, wait_s: float) -> list[Key]:
        return [Key(message.entity, message.number) for message in self.broker.receive(limit, wait_s)]

    def defer(self, keys: Iterable[Key]) -> set[Key]:
        confirmed = set()
        for key in sorted(keys):
            self.broker.fate.step()
            if key in self.broker.locked:
                self.broker.locked.discard(key)
                self.broker.messages[key] = self.mark
                confirmed.add(key)
        self.broker.fate.step()
        return confirmed

    def complete(self, keys: Iterable[Key]) -> set[Key]:
        gone = set()
        for key in sorted(keys):
            self.broker.fate.step()
            if not self.broker.refuse_settling:
                self.broker.messages.pop(key, None)
                gone.add(key)
        self.broker.fate.step()
        return gone

    def marked(self) -> set[Key]:
        self.broker.fate.step()
        return {key for key, mark in self.broker.messages.items() if mark == self.mark}


@dataclass
class Disk:
    """A staging directory that keeps what was written, and nothing else."""

    segments: dict[int, list[Staged]] = field(default_factory=dict)
    finished: int = 0
    fate: Fate = field(default_factory=Fate)

    def numbers(self) -> list[int]:
        return sorted(self.segments)

    def keys(self, number: int) -> list[Key]:
        return [Key(message.entity, message.number) for message in self.segments[number]]

    def sessions(self, number: int) -> list[str | None]:
        return [message.session_id for message in self.segments[number]]

    def age_s(self, number: int, now_s: float) -> float:
        return now_s

    def path(self, number: int) -> Path:
        return Path(str(number))

    def write(self, number: int, messages: list[Staged]) -> None:
        self.fate.step()
        assert number not in self.segments, "a segment is never written twice"
        self.segments[number] = list(messages)
        self.fate.step()

    def remove(self, number: int) -> None:
        self.fate.step()
        self.segments.pop(number, None)
        self.fate.step()

    def finish(self, number: int) -> None:
        self.fate.step()
        self.finished = max(self.finished, number)
        self.fate.step()


class Source(Protocol):
    """A stream reader as Spark calls it, offsets as they are logged."""

    def initial(self) -> dict[str, Any]: ...
    def latest(self, start: dict[str, Any]) -> dict[str, Any]: ...
    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Key]: ...
    def commit(self, end: dict[str, Any]) -> None: ...


@dataclass
class Spark:
    """The micro-batch engine: its two logs outlive a process, and so does what its sink has written."""

    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = 0  # How many batches are in the commit log.
    written: dict[int, list[Key]] = field(default_factory=dict)  # By batch.
    fate: Fate = field(default_factory=Fate)

    def run(self, source: Source, batches: int = 100) -> None:
        """One process: what was logged and not committed is done first; then on, until there is nothing to do."""
        if len(self.offsets) > self.committed:
            self._execute(source, len(self.offsets) - 1)
        for _ in range(batches):
            start = self.offsets[-1] if self.offsets else source.initial()
            end = source.latest(start)
            if end == start:
                return
            self.fate.step()
            self.offsets.append(end)
            self.fate.step()
            if len(self.offsets) > 1:
                source.commit(self.offsets[-2])
            self._execute(source, len(self.offsets) - 1)
        raise AssertionError("the query does not end")

    def _execute(self, source: Source, batch: int) -> None:
        start = self.offsets[batch - 1] if batch else source.initial()
        rows = source.read(start, self.offsets[batch])
        self.fate.step()
        if batch in self.written:
            assert self.written[batch] == rows, "a batch that is done again has the same rows"
        self.written[batch] = rows
        self.fate.step()
        self.committed = batch + 1
        self.fate.step()

    def lose_checkpoint(self) -> None:
        self.offsets.clear()
        self.committed = 0
