"""The window of overlapped sends: the bound, the order, and outcomes that nobody looked at."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.client.overlapped import UncollectedError, Window


class Line:
    """Sends that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gates: dict[int, asyncio.Future[None]] = {}

    async def send(self, number: int) -> None:
        self.begun.append(number)
        gate = self.gates[number] = asyncio.get_running_loop().create_future()
        await gate


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_waits_until_one_has_its_outcome() -> None:
    line = Line()
    window = Window(line.send, 2)
    first = await window.submit(1)
    await window.submit(2)
    third = asyncio.ensure_future(window.submit(3))
    await settle()
    assert (line.begun, third.done(), window.under_way) == ([1, 2], False, 2)
    line.gates[1].set_result(None)
    await settle()

    assert line.begun == [1, 2, 3]
    assert (first.is_done, first.error) == (True, None)
    for number in (2, 3):
        line.gates[number].set_result(None)
    await third
    await window.close()


async def test_messages_are_taken_only_when_there_is_room() -> None:
    line = Line()
    taken: list[int] = []

    def endless():  # type: ignore[no-untyped-def]
        for number in range(1000):
            taken.append(number)
            yield number

    window = Window(line.send, 3)
    task = asyncio.ensure_future(window.send_many(endless()))
    await settle()

    assert len(taken) <= 4
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for gate in line.gates.values():
        gate.set_result(None)
    await window.finish()


async def test_every_outcome_comes_back_in_order() -> None:
    async def send(number: int) -> None:
        await asyncio.sleep(0)
        if number % 3 == 0:
            raise ValueError(str(number))

    window = Window(send, 4)
    outcomes = await window.send_many(range(7))

    assert [outcome.message for outcome in outcomes] == list(range(7))
    assert [str(outcome.error) for outcome in outcomes if outcome.error] == ["0", "3", "6"]
    await window.close()


async def test_what_nobody_looked_at_is_raised_at_the_end() -> None:
    async def send(number: int) -> None:
        raise ValueError(str(number))

    window = Window(send)
    looked_at = await window.submit(1)
    await window.submit(2)
    await window.submit(3)
    with pytest.raises(ValueError, match="1"):
        await looked_at
    with pytest.raises(UncollectedError, match="2 sends failed") as caught:
        await window.close()

    assert [outcome.message for outcome in caught.value.outcomes] == [2, 3]


def test_a_window_has_room_for_one_at_least() -> None:
    with pytest.raises(ValueError, match="max_in_flight"):
        Window(lambda number: asyncio.sleep(0), 0)
