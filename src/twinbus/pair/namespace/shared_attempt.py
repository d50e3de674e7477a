"""An attempt that is made once for all who want it at the same time: what comes of it counts for all of them.

When a namespace is gone, every entity that failed over wants to know whether it is back, and each would dial by
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twinbus.client.errors import ClientError

T = TypeVar("T")

LASTS_S = 0.5  # So long its outcome counts for those who come later.
# Behind a load balancer without a backend an attempt hangs, also when the backend is there again: another one is begun.
AGAIN_S = 1.0


class SharedAttempt(Generic[T]):
    """Used on one loop."""

    def __init__(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._attempt = attempt
        self._latest: asyncio.Task[T] | None = None
        self._ended_at = 0.0

    async def get(self) -> T:
        """What comes of the attempt that is under way, or that has just ended, or of a new one."""
        now = asyncio.get_running_loop().time()
        latest = self._latest
        if latest is None or not self._counts(latest, now):
            latest = self._latest = asyncio.create_task(self._first())
            latest.add_done_callback(self._ended)
        try:
            return await asyncio.shield(latest)
        except ClientError as error:
            raise error.but(definite=error.definite) from None

    def _counts(self, latest: asyncio.Task[T], now: float) -> bool:
        return not latest.done() or (not latest.cancelled() and now - self._ended_at < LASTS_S)

    async def _first(self) -> T:
        """Whatever comes first of attempts that are begun one after the other."""
        attempts: set[asyncio.Task[T]] = set()
        try:
            while True:
                attempts.add(asyncio.create_task(self._attempt()))
                done, _ = await asyncio.wait(attempts, timeout=AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return done.pop().result()
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    def _ended(self, attempt: asyncio.Task[T]) -> None:
        if attempt is self._latest:
            self._ended_at = attempt.get_loop().time()
        if not attempt.cancelled():
            attempt.exception()  # Those who waited may have given up; that it failed is then nobody's concern.

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if self._latest is not None:
            self._latest.cancel()
