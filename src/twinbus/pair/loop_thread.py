"""An event loop in a thread of its own, for synchronous applications.

What runs there is decided by those who start it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have work done there, and wait for it; what runs there itself would wait for ever."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "A listener of a paired client runs in the thread that would do this, and must not wait."
            )
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have work done there."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="twinbus-pair", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do one last thing there, and end."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self.run(last())
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
