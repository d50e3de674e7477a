"""Overlapped sends with a bound: so many are under way, the next waits, and every outcome is somebody's.

An outcome that failed and that nobody looked at is raised when the window is closed: nothing is fire and forget. What
sending means is told by the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Generic, TypeVar

M = TypeVar("M")

MAX_IN_FLIGHT = 10


class UncollectedError(Exception):
    """Sends failed, and nobody had looked at their outcomes; `outcomes` are theirs."""

    def __init__(self, outcomes: list[Outcome[M]]) -> None:
        first = outcomes[0].error
        super().__init__(f"{len(outcomes)} sends failed and nobody looked at their outcomes, the first with: {first}")
        self.outcomes = outcomes


class Outcome(Generic[M]):
    """What becomes of one message. Await it, or look at `error` when it is done."""

    def __init__(self, message: M, task: asyncio.Task[None]) -> None:
        self.message = message
        self.is_collected = False
        self._task = task

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self._task.done()

    @property
    def error(self) -> BaseException | None:
        """Why the send failed; None if it did not."""
        self.is_collected = True
        return self._task.exception()

    def __await__(self) -> Generator[object, None, None]:
        self.is_collected = True
        return asyncio.shield(self._task).__await__()


class Window(Generic[M]):
    """At most `max_in_flight` sends at a time. Use it with `async with`, whose end waits for the last one."""

    def __init__(self, send: Callable[[M], Awaitable[object]], max_in_flight: int = MAX_IN_FLIGHT) -> None:
        if max_in_flight < 1:
            raise ValueError("max_in_flight must be at least 1")
        self._send = send
        self._room = asyncio.Semaphore(max_in_flight)
        self._under_way: set[Outcome[M]] = set()
        self._failed: list[Outcome[M]] = []

    @property
    def under_way(self) -> int:
        """How many have no outcome yet."""
        return len(self._under_way)

    async def submit(self, message: M) -> Outcome[M]:
        """Begin to send, as soon as there is room; the outcome comes later."""
        await self._room.acquire()
        task = asyncio.ensure_future(self._run(message))
        outcome = Outcome(message, task)
        self._under_way.add(outcome)
        task.add_done_callback(lambda _: self._done(outcome))
        return outcome

    async def send_many(self, messages: Iterable[M] | AsyncIterable[M]) -> list[Outcome[M]]:
        """Send all, and return every outcome in order. Messages are taken from the iterable only when there is room."""
        outcomes: list[Outcome[M]] = []
        if isinstance(messages, AsyncIterable):
            async for message in messages:
                outcomes.append(await self.submit(message))
        else:
            for message in messages:
                outcomes.append(await self.submit(message))
        await self.finish()
        return outcomes

    async def finish(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait([outcome._task for outcome in self._under_way])
            await asyncio.sleep(0)  # Lets the callbacks have their turn.

    async def close(self) -> None:
        """Wait for the last one; raises what nobody looked at."""
        await self.finish()
        forgotten = self.forgotten()
        if forgotten:
            raise UncollectedError(forgotten)

    def forgotten(self) -> list[Outcome[M]]:
        """Sends that failed and whose outcome nobody has looked at."""
        self._failed = [outcome for outcome in self._failed if not outcome.is_collected]
        return list(self._failed)

    async def __aenter__(self) -> Window[M]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.finish()

    async def _run(self, message: M) -> None:
        try:
            await self._send(message)
        finally:
            self._room.release()

    def _done(self, outcome: Outcome[M]) -> None:
        self._under_way.discard(outcome)
        if outcome._task.cancelled() or outcome._task.exception() is not None:
            self._failed.append(outcome)


class Windows:
    """The windows of one sender; its end asks all of them for what nobody looked at."""

    def __init__(self, send: Callable[[Any], Awaitable[object]]) -> None:
        self._send = send
        self._opened: list[Window[Any]] = []

    def open(self, max_in_flight: int) -> Window[Any]:
        """A window of sends; messages are the SDK's."""
        self._opened = [window for window in self._opened if window.under_way or window.forgotten()]
        opened: Window[Any] = Window(self._send, max_in_flight)
        self._opened.append(opened)
        return opened

    def check(self) -> None:
        """Raise failures that nobody looked at."""
        forgotten = [outcome for window in self._opened for outcome in window.forgotten()]
        self._opened.clear()
        if forgotten:
            raise UncollectedError(forgotten)
