"""The board: who is ill, what is told to whom, and when something is due."""

from __future__ import annotations

from twinbus.pair.board import Board, Change, Scope
from twinbus.pair.health import Event, Policy, Route, State


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(interval: float = 10) -> tuple[Board, Clock, list[Change]]:
    clock = Clock()
    board = Board(Policy(interval, 5), clock)
    changes: list[Change] = []
    board.listen(changes.append)
    return board, clock, changes


ORDERS = Scope("orders")


def test_who_was_never_heard_of_is_healthy() -> None:
    board, _, changes = made()

    assert board.is_clear
    assert board.route(ORDERS) is Route.PRIMARY
    board.sent(ORDERS)
    assert changes == []


def test_time_alone_makes_a_suspect_fail_over_when_it_is_asked() -> None:
    board, clock, changes = made()
    board.tell(ORDERS, Event.FAILED, "no answer")
    assert (board.is_clear, board.route(ORDERS)) == (False, Route.PRIMARY)
    clock.now = 10

    assert board.route(ORDERS) is Route.BACKLOG
    assert [(change.before, change.after) for change in changes] == [
        (State.HEALTHY, State.SUSPECT),
        (State.SUSPECT, State.FAILED_OVER),
    ]
    assert changes[-1].reason == "no answer"


def test_success_heals_for_everyone() -> None:
    board, _, changes = made(interval=0)
    board.tell(ORDERS, Event.FAILED)
    board.sent(ORDERS)

    assert board.is_clear
    assert board.ill() == {}
    assert changes[-1].after is State.HEALTHY


def test_scopes_are_apart() -> None:
    board, _, _ = made(interval=0)
    board.tell(Scope("orders", 3), Event.FAILED, "", "the-key")

    assert board.route(Scope("orders", 3)) is Route.BACKLOG
    assert board.route(Scope("orders", 4)) is Route.PRIMARY
    assert board.route(ORDERS) is Route.PRIMARY
    assert board.key(Scope("orders", 3)) == "the-key"
    assert str(Scope("orders", 3)) == "orders (fragment 3)"


def test_the_next_due_is_the_earliest() -> None:
    board, clock, _ = made()
    assert board.next_due() is None
    board.tell(ORDERS, Event.FAILED)
    clock.now = 4
    board.tell(Scope("other"), Event.FAILED)

    assert board.next_due() == 10


def test_a_listener_that_fails_harms_nobody() -> None:
    board, _, changes = made(interval=0)

    def broken(change: Change) -> None:
        raise RuntimeError("no")

    board.listen(broken)
    board.listen(changes.append)
    board.tell(ORDERS, Event.FAILED)

    assert len(changes) == 2
