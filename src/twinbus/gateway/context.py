"""What every part of the gateway shares: the namespace, the clock, identifiers, the log and plain counters.

Holds no connection state; that is `connection`'s, and links keep their own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from twinbus.amqp.performatives import Error
from twinbus.entities.namespace import Namespace
from twinbus.model.errors import BusError
from twinbus.wire import conditions

log = logging.getLogger("twinbus.gateway")


class Context:
    """The gateway's surroundings."""

    def __init__(self, namespace: Namespace, new_id: Callable[[], str]) -> None:
        self.namespace = namespace
        self.clock = namespace.clock
        self.new_id = new_id  # 32 hex digits, for message ids, tracking ids and delivery tags.
        self.counters: Counter[str] = Counter()
        self._numbers = 0

    def next_number(self) -> int:
        """A number for a connection or link, never used twice in this process."""
        self._numbers += 1
        return self._numbers

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
        log.info(
            "%s refused: %s: %s (entity '%s', TrackingId:%s)", doing, error.fault.value, error.text, entity, tracking_id
        )
