"""Work that may wait for a disk, on a thread that does not keep the process from ending.

The event loop awaits what comes of it; which work that is, is the caller's business.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


def on_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Begin at once on a thread of its own; the future has the result, or what was raised."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_do, args=(work, loop, future), name=name, daemon=True).start()
    return future


class Worker:
    """One thread that does one thing after the other. Made and used by an event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do it when everything before it is done."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._asked.put((work, future))
        return future

    def end(self) -> None:
        """Finish what was asked for, and no more."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            _do(asked[0], self._loop, asked[1])


def _do(work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    try:
        result = work()
    except BaseException as problem:
        _tell(loop, _fail, future, problem)
    else:
        _tell(loop, _finish, future, result)


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[..., None], *values: object) -> None:
    if not loop.is_closed():  # Else nobody is left to hear of it.
        loop.call_soon_threadsafe(tell, *values)


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], problem: BaseException) -> None:
    if not future.done():
        future.set_exception(problem)
