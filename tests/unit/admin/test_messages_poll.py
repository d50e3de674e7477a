"""A request that waits for one message: what ends it, and that no message is lost at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from twinbus.admin.messages_poll import Poll
from twinbus.entities.feed import Feed
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, Outcome, ReceiveMode
from twinbus.store.commands import Acquire, Command, Settle

MESSAGE = Delivered(1, b"", "m", 0, 0, token=bytes(16))
GONE = BusError(Fault.ENTITY_DELETED, "It is gone.")


class Store:
    """Keeps what it is asked until the test answers."""

    pending_bytes = 0
    is_available = True

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def submit(self, command: Command) -> None:
        self.commands.append(command)

    async def call(self, command: Any) -> Any:
        raise AssertionError("a poll only submits")

    def answer(self, *messages: Delivered, error: BusError | None = None) -> None:
        """Answer the acquire that is under way."""
        command = [each for each in self.commands if isinstance(each, Acquire)][-1]
        command.result, command.error = list(messages), error
        command.done(command)


class Bench:
    """A poll that waits, its feed and its store."""

    def __init__(self, timeout_s: float = 60, mode: ReceiveMode = ReceiveMode.PEEK_LOCK) -> None:
        self.store = Store()
        self.feed = Feed(4, self.store)
        self.is_gone = False
        self.poll = Poll(self.feed, mode, Origin("http"), lambda: self.is_gone)
        self.waiting = asyncio.create_task(self.poll.wait(timeout_s))

    async def begun(self) -> Bench:
        await asyncio.sleep(0)
        assert len(self.store.commands) == 1
        return self

    @property
    def released(self) -> list[tuple[bytes, Outcome]]:
        settled = [each for each in self.store.commands if isinstance(each, Settle)]
        return [(one.token, one.outcome) for each in settled for one in each.settlements]


async def test_a_message_that_is_there_is_the_answer() -> None:
    bench = await Bench().begun()
    bench.store.answer(MESSAGE)
    assert await bench.waiting == MESSAGE
    assert bench.feed.is_idle


async def test_a_message_that_comes_later_is_the_answer_and_one_is_enough() -> None:
    bench = await Bench().begun()
    bench.store.answer()
    bench.feed.wake()
    bench.store.answer(MESSAGE)
    bench.feed.wake()
    assert await bench.waiting == MESSAGE
    assert len(bench.store.commands) == 2


async def test_without_a_timeout_the_store_is_asked_once_all_the_same() -> None:
    bench = await Bench(timeout_s=0).begun()
    assert bench.poll.demand() == 1
    bench.store.answer(MESSAGE)
    assert await bench.waiting == MESSAGE
    empty = await Bench(timeout_s=0).begun()
    empty.store.answer()
    assert await empty.waiting is None
    assert empty.feed.is_idle


async def test_the_end_waits_for_an_answer_that_is_under_way_so_that_nothing_is_lost() -> None:
    bench = await Bench(mode=ReceiveMode.RECEIVE_AND_DELETE).begun()
    bench.poll.end(GONE)
    await asyncio.sleep(0)
    assert not bench.waiting.done()
    bench.store.answer(MESSAGE)
    assert await bench.waiting == MESSAGE


async def test_the_end_is_told_where_there_was_nothing() -> None:
    bench = await Bench().begun()
    bench.poll.end(GONE)
    bench.store.answer()
    with pytest.raises(BusError, match="It is gone"):
        await bench.waiting


async def test_the_end_is_told_at_once_to_who_waits_for_a_hint() -> None:
    bench = await Bench().begun()
    bench.store.answer()
    bench.poll.end(GONE)
    with pytest.raises(BusError, match="It is gone"):
        await bench.waiting
    assert bench.feed.is_idle


async def test_a_store_that_fails_ends_it() -> None:
    bench = await Bench().begun()
    bench.store.answer(error=BusError(Fault.STORE_UNAVAILABLE, "The store is down."))
    with pytest.raises(BusError, match="down"):
        await bench.waiting


async def test_nothing_is_asked_for_a_client_that_is_gone() -> None:
    bench = await Bench().begun()
    bench.store.answer()
    bench.is_gone = True
    bench.feed.wake()
    assert len(bench.store.commands) == 1
    bench.waiting.cancel()


async def test_a_request_that_is_cancelled_gives_back_what_comes_for_it() -> None:
    bench = await Bench().begun()
    bench.waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.waiting
    bench.store.answer(MESSAGE)
    assert bench.released == [(MESSAGE.token, Outcome.RELEASE)]


async def test_an_answer_that_could_not_be_handed_over_is_given_back_uncounted() -> None:
    bench = await Bench().begun()
    bench.store.answer(MESSAGE)
    bench.poll.give_back(await bench.waiting or MESSAGE)
    assert bench.released == [(MESSAGE.token, Outcome.RELEASE)]


async def test_a_second_message_is_given_back() -> None:
    bench = await Bench().begun()
    bench.store.answer(MESSAGE)
    other = MESSAGE._replace(token=b"\x01" * 16)
    bench.poll.deliver([other])
    assert bench.released == [(other.token, Outcome.RELEASE)]
    assert await bench.waiting == MESSAGE
