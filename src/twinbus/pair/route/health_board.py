"""The health of every entity that one client sends to: asked before each send, updated after, shared by all senders.

Transitions are `health`'s; here they are kept, timed and announced. Safe to use from several threads, because a
synchronous application's senders, and its pings, are in different ones.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from twinbus.model.logged import EventLog
from twinbus.pair import listeners
from twinbus.pair.route.health import Event, Health, Policy, Route, State, on

_log = EventLog(__name__)

# What a change is called, by the state that it leads to.
EVENTS = {
    State.SUSPECT: "pair.suspected",
    State.FAILED_OVER: "pair.failover.engaged",
    State.HEALTHY: "pair.failover.ended",
    State.REFUSED: "pair.refused",
}


class Scope(NamedTuple):
    """What fails and heals as one: an entity, or what one fragment of a partitioned entity holds."""

    path: str
    fragment: int | None = None

    def __str__(self) -> str:
        return self.path if self.fragment is None else f"{self.path} (fragment {self.fragment})"


class Change(NamedTuple):
    """A change of state, for those who listen."""

    scope: Scope
    before: State
    after: State
    reason: str
    at: float


Listener = Callable[[Change], None]


class HealthBoard:
    """Scopes that are not healthy, by name; a scope that is not listed is healthy."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._ill: dict[Scope, Health] = {}
        self.failovers: Counter[str] = Counter()  # That took effect, ever, by path.
        self.is_clear = True  # Nothing is ill: what most sends ask, and all that they need to know.
        self._keys: dict[Scope, str] = {}  # A key that leads to the fragment, for its pings.
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Hear of changes, in the thread in which they happen; a listener must neither wait nor raise."""
        self._listeners.append(listener)

    def route(self, scope: Scope) -> Route:
        """Where a send goes now."""
        if not self._ill or scope not in self._ill:
            return Route.PRIMARY
        return self.record(scope, Event.TIME).route

    def sent(self, scope: Scope) -> None:
        """A send to the primary succeeded."""
        if self._ill and scope in self._ill:
            self.record(scope, Event.SENT)

    def record(self, scope: Scope, event: Event, reason: str = "", key: str | None = None) -> Health:
        """Something happened; the health that follows."""
        now = self._clock()
        with self._lock:
            before = self._ill.get(scope, Health())
            after = on(before, event, now, self._policy, reason)
            if after.state is State.HEALTHY:
                self._ill.pop(scope, None)
                self._keys.pop(scope, None)
            else:
                self._ill[scope] = after
                if key is not None:
                    self._keys[scope] = key
            self.is_clear = not self._ill
        if after.state is not before.state:
            if after.state is State.FAILED_OVER and before.state is not State.REFUSED:
                self.failovers[scope.path] += 1
            self._announce(Change(scope, before.state, after.state, after.reason or reason, now))
        return after

    def health(self, scope: Scope) -> Health:
        """The health of a scope as it was last told."""
        return self._ill.get(scope, Health())

    def ill(self) -> dict[Scope, Health]:
        """Everything that is not healthy."""
        with self._lock:
            return dict(self._ill)

    def key(self, scope: Scope) -> str | None:
        """A key that leads to the scope's fragment."""
        return self._keys.get(scope)

    def now(self) -> float:
        """The time by which things are due."""
        return self._clock()

    def next_due(self) -> float | None:
        """When something will want attention: a failover that takes effect, or a ping."""
        with self._lock:
            return min((health.due_at for health in self._ill.values() if health.due_at is not None), default=None)

    def _announce(self, change: Change) -> None:
        level = logging.INFO if change.after is State.HEALTHY else logging.WARNING
        text = "{entity}: {before} -> {after} {reason}"
        _log.log(level, EVENTS[change.after], text, **document(change))
        add_span_event(change)
        for listener in self._listeners:
            listeners.call(listener, change)


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
    """An event of the span that is current where the change happens, if one is recording there.

    Nothing is imported for it: a span can only be recording where the application has imported OpenTelemetry itself.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        told = document(change)
        span.add_event(f"twinbus.{EVENTS[change.after]}", {f"twinbus.{key}": value for key, value in told.items()})
