"""A way through a queue: each message once, from where one has got to, in every fragment."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.entities.browsing import Cursor
from twinbus.entities.partitions import NUMBER_BITS
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin

ORIGIN = Origin("connection-1")
DOWN = BusError(Fault.STORE_UNAVAILABLE, "down")


class Place:
    """A queue or fragment that can be looked at, with messages of these numbers."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.error: BusError | None = None

    async def peek(
        self, start: int, limit: int, session: str | None, origin: Origin, room: int, *, active_only: bool
    ) -> list[Delivered]:
        assert active_only
        if self.error is not None:
            raise self.error
        found = [number for number in self.numbers if number >= start]
        return [Delivered(number, b"x", f"m{number}", 0, 0) for number in found[:limit]]


class Mailbox:
    def __init__(self, *places: Place) -> None:
        self._places = places

    def places(self, session: str | None) -> list[tuple[int, Any]]:
        return list(enumerate(self._places))


def cursor(*places: Place) -> Cursor:
    mailbox: Any = Mailbox(*places)
    return Cursor(mailbox)


async def seen(way: Cursor, limit: int) -> list[int]:
    found = await way.look(limit, ORIGIN)
    way.passed(found)
    return [message.sequence_number for message in found]


async def test_each_message_is_shown_once_and_later_ones_when_they_come() -> None:
    queue = Place(1, 2, 5)
    way = cursor(queue)
    assert await seen(way, 2) == [1, 2]
    assert await seen(way, 2) == [5]
    assert await seen(way, 2) == []
    queue.numbers += [3, 6]  # Behind the place nothing is looked for.
    assert await seen(way, 9) == [6]


async def test_what_was_not_shown_after_all_comes_again() -> None:
    way = cursor(Place(1, 2, 3))
    found = await way.look(3, ORIGIN)
    way.passed(found[:1])
    assert await seen(way, 9) == [2, 3]


async def test_each_fragment_has_its_own_place() -> None:
    second = 1 << NUMBER_BITS
    first, other = Place(1, 2), Place(second + 1)
    way = cursor(first, other)
    assert await seen(way, 9) == [1, 2, second + 1]
    first.numbers.append(3)
    assert await seen(way, 9) == [3]


async def test_a_fragment_that_is_away_is_left_out_and_all_of_them_are_an_error() -> None:
    first, other = Place(1), Place((1 << NUMBER_BITS) + 1)
    first.error = DOWN
    way = cursor(first, other)
    assert await seen(way, 9) == [(1 << NUMBER_BITS) + 1]
    other.error = DOWN
    with pytest.raises(BusError):
        await way.look(9, ORIGIN)
