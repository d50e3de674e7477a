"""Changes of state for those who collect them: one plain document for structured logs, and events of OpenTelemetry.

Nothing is imported for it: a span can only be recording where the application has imported OpenTelemetry itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from twinbus.pair.route.health import State

if TYPE_CHECKING:
    from twinbus.pair.route.health_board import Change

# What a change is called, by the state that it leads to.
EVENTS = {
    State.SUSPECT: "pair.suspected",
    State.FAILED_OVER: "pair.failover.engaged",
    State.HEALTHY: "pair.failover.ended",
    State.REFUSED: "pair.refused",
}


def document(change: Change) -> dict[str, Any]:
    """A change in values that JSON has."""
    told: dict[str, Any] = {
        "entity": change.scope.path,
        "before": change.before.value,
        "after": change.after.value,
        "reason": change.reason,
    }
    if change.scope.fragment is not None:
        told["fragment"] = change.scope.fragment
    return told


def add_span_event(change: Change) -> None:
    """An event of the span that is current where the change happens, if one is recording there."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        told = document(change)
        span.add_event(f"twinbus.{EVENTS[change.after]}", {f"twinbus.{key}": value for key, value in told.items()})
