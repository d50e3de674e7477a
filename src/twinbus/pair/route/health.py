"""The health of one entity of the primary: a pure policy, `on(health, event, now) -> Health`, as a table.

It says where a send goes, when a ping is due and when a failover takes effect. Who sends, pings and keeps time obeys;
which failures count is decided before (`failures`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum


class State(Enum):
    """How an entity of the primary stands with one client."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"  # Sends have failed; they still go to the primary until the failover interval is over.
    FAILED_OVER = "failed over"  # Sends go to a backlog queue; pings try the primary.
    REFUSED = "refused"  # A ping was refused for a reason that will not pass; sends raise it until a ping succeeds.


class Event(Enum):
    """What happens to an entity."""

    SENT = "a send succeeded"
    FAILED = "a send failed in a way that counts"
    TIME = "time passed"
    PING_SENT = "a ping succeeded"
    PING_FAILED = "a ping failed in a way that may pass"
    PING_REFUSED = "a ping failed in a way that will not pass"


class Route(Enum):
    """Where a send goes now."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class Policy:
    """The intervals that the transitions need, in seconds."""

    failover_interval: float
    ping_interval: float
    heal_after_pings: int = 1


@dataclass(frozen=True, slots=True)
class Health:
    """One entity's state; the instants are on the clock of the caller."""

    state: State = State.HEALTHY
    since: float = 0.0
    due_at: float | None = None  # When `TIME` will change something: a failover, or (failed over) a ping.
    good_pings: int = 0
    reason: str = ""

    @property
    def route(self) -> Route:
        """Where a send goes."""
        return _ROUTES[self.state]

    @property
    def pings(self) -> bool:
        """Whether `due_at` is a ping's."""
        return self.state in (State.FAILED_OVER, State.REFUSED)


_ROUTES = {
    State.HEALTHY: Route.PRIMARY,
    State.SUSPECT: Route.PRIMARY,
    State.FAILED_OVER: Route.BACKLOG,
    State.REFUSED: Route.NOWHERE,
}


def on(health: Health, event: Event, now: float, policy: Policy, reason: str = "") -> Health:
    """The health after an event. What the table does not name changes nothing."""
    change = TABLE.get((health.state, event))
    return health if change is None else change(health, now, policy, reason)


Change = Callable[[Health, float, Policy, str], Health]


def _heal(health: Health, now: float, policy: Policy, reason: str) -> Health:
    return Health(State.HEALTHY, now)


def _suspect(health: Health, now: float, policy: Policy, reason: str) -> Health:
    if policy.failover_interval == 0:
        return _fail_over(health, now, policy, reason)
    return Health(State.SUSPECT, now, now + policy.failover_interval, reason=reason)


def _elapse(health: Health, now: float, policy: Policy, reason: str) -> Health:
    """The timer was started by the first failure; later ones do not restart it."""
    if health.due_at is None or now < health.due_at:
        return health
    return _fail_over(health, now, policy, health.reason)


def _fail_over(health: Health, now: float, policy: Policy, reason: str) -> Health:
    """The first ping comes one interval after the failover."""
    return Health(State.FAILED_OVER, now, now + policy.ping_interval, reason=reason)


def _ping_again(health: Health, now: float, policy: Policy, reason: str) -> Health:
    return replace(
        health, state=State.FAILED_OVER, due_at=now + policy.ping_interval, good_pings=0, reason=reason or health.reason
    )


def _refuse(health: Health, now: float, policy: Policy, reason: str) -> Health:
    since = health.since if health.state is State.REFUSED else now
    return Health(State.REFUSED, since, now + policy.ping_interval, reason=reason)


def _good_ping(health: Health, now: float, policy: Policy, reason: str) -> Health:
    if health.good_pings + 1 >= policy.heal_after_pings:
        return Health(State.HEALTHY, now)
    return replace(health, state=State.FAILED_OVER, due_at=now + policy.ping_interval, good_pings=health.good_pings + 1)


# A send that was under way when the entity failed over, and succeeds, heals it as a ping does.
TABLE: dict[tuple[State, Event], Change] = {
    (State.HEALTHY, Event.FAILED): _suspect,
    (State.SUSPECT, Event.SENT): _heal,
    (State.SUSPECT, Event.TIME): _elapse,
    (State.SUSPECT, Event.FAILED): _elapse,
    (State.FAILED_OVER, Event.SENT): _heal,
    (State.FAILED_OVER, Event.PING_SENT): _good_ping,
    (State.FAILED_OVER, Event.PING_FAILED): _ping_again,
    (State.FAILED_OVER, Event.PING_REFUSED): _refuse,
    (State.REFUSED, Event.SENT): _heal,
    (State.REFUSED, Event.PING_SENT): _good_ping,
    (State.REFUSED, Event.PING_FAILED): _ping_again,
    (State.REFUSED, Event.PING_REFUSED): _refuse,
}
