"""The health_board: who is ill, what is told to whom, and when something is due."""

from __future__ import annotations

from twinbus.pair.route.health import Event, Policy, Route, State
from twinbus.pair.route.health_board import Change, HealthBoard, Scope


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(interval: float = 10) -> tuple[HealthBoard, Clock, list[Change]]:
    clock = Clock()
    health_board = HealthBoard(Policy(interval, 5), clock)
    changes: list[Change] = []
    health_board.listen(changes.append)
    return health_board, clock, changes


ORDERS = Scope("orders")


def test_who_was_never_heard_of_is_healthy() -> None:
    health_board, _, changes = made()

    assert health_board.is_clear
    assert health_board.route(ORDERS) is Route.PRIMARY
    health_board.sent(ORDERS)
    assert changes == []


def test_time_alone_makes_a_suspect_fail_over_when_it_is_asked() -> None:
    health_board, clock, changes = made()
    health_board.record(ORDERS, Event.FAILED, "no answer")
    assert (health_board.is_clear, health_board.route(ORDERS)) == (False, Route.PRIMARY)
    clock.now = 10

    assert health_board.route(ORDERS) is Route.BACKLOG
    assert [(change.before, change.after) for change in changes] == [
        (State.HEALTHY, State.SUSPECT),
        (State.SUSPECT, State.FAILED_OVER),
    ]
    assert changes[-1].reason == "no answer"


def test_success_heals_for_everyone() -> None:
    health_board, _, changes = made(interval=0)
    health_board.record(ORDERS, Event.FAILED)
    health_board.sent(ORDERS)

    assert health_board.is_clear
    assert health_board.ill() == {}
    assert changes[-1].after is State.HEALTHY


def test_scopes_are_apart() -> None:
    health_board, _, _ = made(interval=0)
    health_board.record(Scope("orders", 3), Event.FAILED, "", "the-key")

    assert health_board.route(Scope("orders", 3)) is Route.BACKLOG
    assert health_board.route(Scope("orders", 4)) is Route.PRIMARY
    assert health_board.route(ORDERS) is Route.PRIMARY
    assert health_board.key(Scope("orders", 3)) == "the-key"
    assert str(Scope("orders", 3)) == "orders (fragment 3)"


def test_the_next_due_is_the_earliest() -> None:
    health_board, clock, _ = made()
    assert health_board.next_due() is None
    health_board.record(ORDERS, Event.FAILED)
    clock.now = 4
    health_board.record(Scope("other"), Event.FAILED)

    assert health_board.next_due() == 10


def test_a_listener_that_fails_harms_nobody() -> None:
    health_board, _, changes = made(interval=0)

    def broken(change: Change) -> None:
        raise RuntimeError("no")

    health_board.listen(broken)
    health_board.listen(changes.append)
    health_board.record(ORDERS, Event.FAILED)

    assert len(changes) == 2
