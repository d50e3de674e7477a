"""What can be chosen about a pair, with its defaults and bounds.

Durations may be given as seconds or as timedelta and are kept in seconds; what the choices mean is in the modules
that obey them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import ClassVar

from twinbus.pair import replaced
from twinbus.pair.route.presets import DEFAULT, PRESETS

ADAPTERS = ("own", "sdk")

Duration = float | int | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAvailabilityOptions:
    """How sends stay available while the primary namespace is down."""

    preset: str = DEFAULT  # default, documents or client-2013: which failures count, and what is None below.
    backlog_queue_count: int = 10
    failover_interval: Duration | None = None  # How long sends must fail before they are diverted; 0: with the first.
    ping_primary_interval: Duration | None = None
    enable_syphon: bool = False  # At least one process must bring diverted messages home.
    ordered: bool = False  # Messages of a session or key stay in order through an outage (docs/outbox.md).
    heal_after_pings: int = 1  # So many pings in a row must succeed; more than one calms a flapping primary.
    attempt_timeout: Duration | None = None  # One attempt at a namespace.
    primary_timeout: Duration | None = None  # One send at the primary, over all attempts; then it counts as failed.
    attempts: int = 2  # At the primary, within one send.
    divert_timeout: Duration = 60.0  # One diverted send, over however many backlog queues.
    queue_rest: Duration = 60.0  # How long a backlog queue that failed is left out.
    poll: Duration = 900.0  # How long the syphon waits at an idle backlog queue.
    syphon_batch: int = 100
    syphon_pause: Duration = 1.0  # Between two receives of the syphon that failed.
    missing_entity_wait: Duration = 300.0  # How long the syphon waits for an entity of the primary that is not there.
    partner_grace: Duration = 5.0  # How long one namespace may stay open when the other is closed.
    # Probes leave nothing behind for a consumer; Azure no longer swallows the documented ping. None: find out.
    ping_with_probe: bool | None = None
    adapter: str = "own"  # Over our own client, except where only the SDK knows the way; or "sdk": always over the SDK.
    # Where it remembers who the primary is, for a start while that is down; "": nowhere. None: TWINBUS_STATE_DIRECTORY,
    # or ~/.twinbus/pairs.
    state_directory: str | None = None
    replaces: str | None = None  # Primaries that were lost for good: written by `twinbus pair replace`.
    announce: bool = True  # Say to both namespaces that this client is there (docs/pairing.md); Azure is not asked.

    _BOUNDS: ClassVar[dict[str, tuple[float, float]]] = {
        "backlog_queue_count": (1, 1000),
        "failover_interval": (0, 3600),
        "ping_primary_interval": (1, 1800),
        "heal_after_pings": (1, 1000),
        "attempt_timeout": (0.1, 600),
        "primary_timeout": (0.1, 3600),
        "attempts": (1, 10),
        "divert_timeout": (0.1, 3600),
        "queue_rest": (0, 3600),
        "poll": (0.1, 3600),
        "syphon_batch": (1, 1000),
        "syphon_pause": (0.01, 120),
        "missing_entity_wait": (0, 86_400),
        "partner_grace": (0, 60),
    }

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        preset = PRESETS[self.preset]
        if self.primary_timeout is None and self.attempt_timeout is not None:
            object.__setattr__(self, "primary_timeout", self.attempts * self.seconds("attempt_timeout"))
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in preset._fields:
                value = getattr(preset, field.name)
                object.__setattr__(self, field.name, value)
            if isinstance(value, timedelta):
                value = value.total_seconds()
                object.__setattr__(self, field.name, value)
            if field.name in self._BOUNDS:
                low, high = self._BOUNDS[field.name]
                if not isinstance(value, int | float) or not low <= value <= high:
                    raise ValueError(f"{field.name} must be between {low:g} and {high:g}, not {value!r}")
        replaced.parse(self.replaces)
        if self.adapter not in ADAPTERS:
            raise ValueError(f"adapter must be one of {', '.join(ADAPTERS)}, not {self.adapter!r}")

    def seconds(self, name: str) -> float:
        """A duration as a number."""
        value = getattr(self, name)
        return value.total_seconds() if isinstance(value, timedelta) else float(value)
