"""What the gateway's parts share about one namespace: itself, its clock, identifiers, the log and plain counters.

Holds no connection state; that is `connection`'s, and links keep their own. Which namespace a client means is found
out in `choosing`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from twinbus.amqp.performatives import Error
from twinbus.entities.namespace import Namespace
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.wire import conditions

log = EventLog("twinbus.gateway")

_AUTH = (Fault.AUTHENTICATION_FAILED, Fault.UNAUTHORIZED)


class Context:
    """The surroundings of all connections to one namespace."""

    def __init__(self, namespace: Namespace, new_id: Callable[[], str], numbers: Iterator[int]) -> None:
        self.namespace = namespace
        self.clock = namespace.clock
        self.new_id = new_id  # 32 hex digits, for message ids, tracking ids and delivery tags.
        self.counters: Counter[str] = Counter()
        self._numbers = numbers
        self._tasks: set[asyncio.Task[None]] = set()

    def next_number(self) -> int:
        """A number for a connection or link, never used twice in this process."""
        return next(self._numbers)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that is to be finished even when its connection has been closed meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("settlement.failed", "a settlement failed", namespace=self.namespace.name, exc_info=problem)

    def refusal(self, error: BusError, entity: str, doing: str) -> Error:
        """The error as the peer gets it; its tracking id is in the log and in the text."""
        tracking_id = self.new_id()
        self.record_refusal(error, entity, doing, tracking_id)
        return conditions.to_error(
            error, tracking_id, namespace=self.namespace.name, entity=entity, now_ms=self.clock.now_ms()
        )

    def record_refusal(self, error: BusError, entity: str, doing: str, tracking_id: str) -> None:
        """Count and log a refusal under its tracking id."""
        self.counters[f"refused_{error.fault.value}"] += 1
        self.namespace.remember_refusal(error.fault.value, f"{doing}: {error.text}", entity, tracking_id)
        log.info(
            "auth.refused" if error.fault in _AUTH else "request.refused",
            "{doing} refused: {fault}: {reason} (entity '{entity}', TrackingId:{tracking_id})",
            namespace=self.namespace.name,
            entity=entity,
            doing=doing,
            fault=error.fault.value,
            reason=error.text,
            tracking_id=tracking_id,
        )
