"""Claiming by deferral: messages are set aside in their queue, marked, and named in Spark's own offsets.

There is no lock to lose and no directory to share, at the price of more operations for each message. Decides from the
offset and the marks alone; talking to a broker is `deferring`'s business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading import claims
from twinbus.pipeline.reading.staged import BETWEEN_S, Limit
from twinbus.pipeline.reading.staging import Key

ROWS_PER_TASK = 5_000


class DeferringBroker(Protocol):
    """A broker as it is seen from here."""

    def receive(self, limit: Limit, wait_s: float) -> list[Key]:
        """Lock messages, at most so many."""
        ...

    def defer(self, keys: Iterable[Key]) -> set[Key]:
        """Set aside what is locked here, under this query's mark; those of which the broker confirmed it."""
        ...

    def complete(self, keys: Iterable[Key]) -> set[Key]:
        """Complete what is set aside; those that are certainly gone, now or before."""
        ...

    def marked(self) -> set[Key]:
        """All that is set aside under this query's mark."""
        ...


class Claimed(NamedTuple):
    """What is logged: what a batch has claimed, when, and what earlier batches had and is not known to be gone.

    An interrupted commit is not repeated, so that the next one must know what it was about.
    """

    batch: int = 0
    at_ms: int = 0
    keys: tuple[Key, ...] = ()
    before: tuple[Key, ...] = ()

    def told(self) -> dict[str, Any]:
        """As Spark logs it."""
        return {
            "batch": self.batch,
            "at": self.at_ms,
            "claims": claims.told(self.keys),
            "previous": claims.told(self.before),
        }

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Claimed:
        """As Spark tells it."""
        try:
            keys, before = claims.read(told["claims"]), claims.read(told["previous"])
            return cls(int(told["batch"]), int(told["at"]), tuple(keys), tuple(before))
        except (KeyError, TypeError, ValueError, AttributeError):
            text = f"The checkpoint holds the offset {dict(told)}, which is none of claimMode=defer."
            raise PipelineError(text) from None


class DeferredClaims:
    """One query's claims. All that it must not forget is in Spark's offsets and on the messages themselves."""

    def __init__(self, broker: DeferringBroker, now_s: Callable[[], float] = time.time) -> None:
        self._broker = broker
        self._now_s = now_s
        self._marked: set[Key] | None = None  # What is set aside, as far as this process knows; None if it must look.

    def initial(self) -> Claimed:
        """Where a query without a checkpoint begins: what an earlier one left is found by its mark."""
        return Claimed()

    def next(self, start: Claimed, limit: Limit, wait_s: float) -> Claimed:
        """Where the next batch ends; the start itself, if there is nothing to do.

        What is set aside and in no offset was claimed by somebody who did not live to log it, and is taken first.
        """
        if self._marked is None:
            self._marked = self._broker.marked()
        self._complete(start.before)  # Spark was done with these a batch ago.
        logged = {*start.keys, *start.before}
        keys = sorted(self._marked - logged)[: limit.messages]
        if not keys:
            has_uncommitted = not self._marked.isdisjoint(start.keys)
            keys = self._claim(limit, min(wait_s, BETWEEN_S) if has_uncommitted else wait_s)
            if not keys and not has_uncommitted:
                return start
        before = logged if self._marked is None else logged & self._marked
        return Claimed(start.batch + 1, int(self._now_s() * 1000), tuple(keys), tuple(sorted(before)))

    def _claim(self, limit: Limit, wait_s: float) -> list[Key]:
        received = self._broker.receive(limit, wait_s)
        deferred = self._broker.defer(received) if received else set()
        if self._marked is not None:
            self._marked |= deferred
        if len(deferred) < len(received):
            self._marked = None  # Some may be set aside all the same: look before the next batch.
        return sorted(deferred)

    def parts(self, end: Claimed, least: int | None = None) -> list[dict[str, str]]:
        """What a batch has claimed, cut for tasks, as ranges."""
        return claims.shares(end.keys, max(least or 1, -(-len(end.keys) // ROWS_PER_TASK)))

    def commit(self, end: Claimed) -> None:
        """Spark is done with this batch and all before it."""
        self._complete({*end.keys, *end.before})

    def _complete(self, keys: Iterable[Key]) -> None:
        wanted = set(keys) if self._marked is None else self._marked & set(keys)
        if wanted:
            gone = self._broker.complete(wanted)
            if self._marked is not None:
                self._marked -= gone
