"""What can be chosen about a pair, with the documented defaults and bounds.

Durations may be given as seconds or as timedelta and are kept in seconds; what the choices mean is told by the modules
that obey them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import ClassVar

from twinbus.pair.failures import PRESETS

Duration = float | int | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAvailabilityOptions:
    """How sends stay available while the primary namespace is down."""

    backlog_queue_count: int = 10
    failover_interval: Duration = 60.0  # How long sends must fail before they are diverted; 0: with the first.
    ping_primary_interval: Duration = 60.0
    enable_syphon: bool = False  # At least one process must bring diverted messages home.
    ordered: bool = False  # Messages of a session or key stay in order through an outage (docs/outbox.md).
    # Which failures count: recommended, docs or client-2013 (see `failures`).
    failure_preset: str = "recommended"
    heal_after_pings: int = 1  # So many pings in a row must succeed; more than one calms a flapping primary.
    attempt_timeout: Duration = 20.0  # One attempt at the primary; longer than a broker needs to find another store.
    attempts: int = 2  # At the primary, within one send.
    divert_timeout: Duration = 60.0  # One diverted send, over however many backlog queues.
    queue_rest: Duration = 60.0  # How long a backlog queue that failed is left out.
    poll: Duration = 900.0  # How long the syphon waits at an idle backlog queue.
    syphon_batch: int = 100
    syphon_pause: Duration = 1.0  # Between two receives of the syphon that failed.
    partner_grace: Duration = 5.0  # How long one half may stay open when the other is closed.
    # Probes leave nothing behind for a consumer; Azure no longer swallows the documented ping. None: find out.
    ping_with_probe: bool | None = None
    announce: bool = True  # Say to both namespaces that this client is there (docs/pairing.md); Azure is not asked.

    _BOUNDS: ClassVar[dict[str, tuple[float, float]]] = {
        "backlog_queue_count": (1, 1000),
        "failover_interval": (0, 3600),
        "ping_primary_interval": (1, 1800),
        "heal_after_pings": (1, 1000),
        "attempt_timeout": (0.1, 600),
        "attempts": (1, 10),
        "divert_timeout": (0.1, 3600),
        "queue_rest": (0, 3600),
        "poll": (0.1, 3600),
        "syphon_batch": (1, 1000),
        "syphon_pause": (0.01, 120),
        "partner_grace": (0, 60),
    }

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, timedelta):
                value = value.total_seconds()
                object.__setattr__(self, field.name, value)
            if field.name in self._BOUNDS:
                low, high = self._BOUNDS[field.name]
                if not isinstance(value, int | float) or not low <= value <= high:
                    raise ValueError(f"{field.name} must be between {low:g} and {high:g}, not {value!r}")
        if self.failure_preset not in PRESETS:
            raise ValueError(f"failure_preset must be one of {', '.join(PRESETS)}, not {self.failure_preset!r}")

    def seconds(self, name: str) -> float:
        """A duration as a number."""
        value = getattr(self, name)
        return value.total_seconds() if isinstance(value, timedelta) else float(value)
