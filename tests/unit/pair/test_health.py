"""The health policy, by its table and by property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pair.route.health import TABLE, Event, Health, Policy, Route, State, on

POLICY = Policy(failover_interval=60, ping_interval=10)
SUSPECT = on(Health(), Event.FAILED, 100, POLICY, "down")
FAILED_OVER = on(SUSPECT, Event.TIME, 160, POLICY)
REFUSED = on(FAILED_OVER, Event.PING_REFUSED, 170, POLICY, "gone")
BY_STATE = {
    State.HEALTHY: Health(),
    State.SUSPECT: SUSPECT,
    State.FAILED_OVER: FAILED_OVER,
    State.REFUSED: REFUSED,
}


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (State.HEALTHY, Event.SENT, State.HEALTHY),
        (State.HEALTHY, Event.FAILED, State.SUSPECT),
        (State.HEALTHY, Event.TIME, State.HEALTHY),
        (State.HEALTHY, Event.PING_SENT, State.HEALTHY),
        (State.SUSPECT, Event.SENT, State.HEALTHY),
        (State.SUSPECT, Event.FAILED, State.SUSPECT),
        (State.SUSPECT, Event.TIME, State.SUSPECT),
        (State.FAILED_OVER, Event.SENT, State.HEALTHY),
        (State.FAILED_OVER, Event.FAILED, State.FAILED_OVER),
        (State.FAILED_OVER, Event.TIME, State.FAILED_OVER),
        (State.FAILED_OVER, Event.PING_SENT, State.HEALTHY),
        (State.FAILED_OVER, Event.PING_FAILED, State.FAILED_OVER),
        (State.FAILED_OVER, Event.PING_REFUSED, State.REFUSED),
        (State.REFUSED, Event.PING_SENT, State.HEALTHY),
        (State.REFUSED, Event.PING_FAILED, State.FAILED_OVER),
        (State.REFUSED, Event.PING_REFUSED, State.REFUSED),
        (State.REFUSED, Event.SENT, State.HEALTHY),
    ],
)
def test_each_event_in_each_state(state: State, event: Event, expected: State) -> None:
    assert on(BY_STATE[state], event, 120, POLICY).state is expected


def test_the_failover_comes_when_the_interval_is_over_and_not_before() -> None:
    assert on(SUSPECT, Event.TIME, 159.9, POLICY).state is State.SUSPECT
    assert on(SUSPECT, Event.TIME, 160, POLICY).state is State.FAILED_OVER


def test_later_failures_do_not_restart_the_timer() -> None:
    again = on(SUSPECT, Event.FAILED, 150, POLICY)

    assert again.due_at == SUSPECT.due_at == 160


def test_with_an_interval_of_zero_the_first_failure_fails_over() -> None:
    assert on(Health(), Event.FAILED, 5, Policy(0, 10)).state is State.FAILED_OVER


def test_the_first_ping_comes_one_interval_after_the_failover() -> None:
    assert FAILED_OVER.due_at == 170
    assert on(FAILED_OVER, Event.PING_FAILED, 171, POLICY).due_at == 181


def test_a_flapping_primary_must_answer_several_pings_in_a_row() -> None:
    calm = Policy(0, 10, heal_after_pings=3)
    health = on(Health(), Event.FAILED, 0, calm)
    health = on(health, Event.PING_SENT, 10, calm)
    health = on(health, Event.PING_FAILED, 20, calm)
    for at in (30, 40):
        health = on(health, Event.PING_SENT, at, calm)
        assert health.state is State.FAILED_OVER
    assert on(health, Event.PING_SENT, 50, calm).state is State.HEALTHY


def test_routes() -> None:
    assert [health.route for health in BY_STATE.values()] == [
        Route.PRIMARY,
        Route.PRIMARY,
        Route.BACKLOG,
        Route.NOWHERE,
    ]


def test_the_table_names_only_what_exists() -> None:
    assert {state for state, _ in TABLE} == set(State)
    assert {event for _, event in TABLE} == set(Event)


# Eighths of a second, which add up and subtract without rounding.
SPANS = st.integers(0, 1600).map(lambda eighths: eighths / 8)


@given(st.lists(st.tuples(st.sampled_from(Event), SPANS), max_size=40), st.sampled_from([0.0, 60.0]))
def test_whatever_happens(events: list[tuple[Event, float]], interval: float) -> None:
    policy = Policy(interval, 10)
    health, now, failing_since = Health(), 0.0, None
    for event, passed in events:
        now += passed
        before, health = health, on(health, event, now, policy)
        if event is Event.FAILED and failing_since is None and before.state is State.HEALTHY:
            failing_since = now
        if health.state is State.HEALTHY:
            failing_since = None
            assert health.due_at is None
        else:
            # Nothing is diverted before sends have failed for the whole interval, and something is always due.
            assert health.due_at is not None
            assert failing_since is not None
            if health.state is not State.SUSPECT:
                assert now - failing_since >= interval
        if event in (Event.SENT, Event.PING_SENT):
            assert health.state in (State.HEALTHY, before.state)
