"""Room for unsettled deliveries: what is settled frees it, and at the limit what is past its lock makes way."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.gateway import unsettled as module
from twinbus.gateway.unsettled import Unsettled


class FakeSession:
    def __init__(self) -> None:
        self.outgoing: dict[int, Any] = {}

    def forget(self, delivery_id: int) -> bool:
        return self.outgoing.pop(delivery_id, None) is not None


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    monkeypatch.setattr(module, "UNSETTLED_MAX", 3)
    return FakeSession()


def sent(session: FakeSession, ends: list[int]) -> Unsettled:
    unsettled = Unsettled(session)  # type: ignore[arg-type]
    for delivery_id, end in enumerate(ends):
        session.outgoing[delivery_id] = "link"
        unsettled.add(delivery_id, end)
    return unsettled


def test_settling_makes_room(session: FakeSession) -> None:
    unsettled = sent(session, [100, 100, 100])
    assert unsettled.room(50) == 0
    del session.outgoing[1]
    unsettled.settled(1)
    assert unsettled.room(50) == 1


def test_at_the_limit_deliveries_past_their_lock_are_forgotten_oldest_first(session: FakeSession) -> None:
    unsettled = sent(session, [100, 200, 300])
    assert unsettled.next_end_ms == 100
    assert unsettled.room(99) == 0
    assert unsettled.room(100) == 1
    assert list(session.outgoing) == [1, 2]
    assert unsettled.next_end_ms == 200


def test_below_the_limit_nothing_is_forgotten(session: FakeSession) -> None:
    unsettled = sent(session, [100, 200])
    assert unsettled.room(1000) == 1
    assert list(session.outgoing) == [0, 1]


def test_what_was_settled_is_not_counted_twice(session: FakeSession) -> None:
    unsettled = sent(session, [100, 200, 300])
    del session.outgoing[0]
    unsettled.settled(1)
    session.outgoing[3] = "link"
    unsettled.add(3, 400)
    assert unsettled.room(150) == 0
    assert unsettled.room(200) == 1
    assert list(session.outgoing) == [2, 3]
