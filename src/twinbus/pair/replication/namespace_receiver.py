"""One namespace's part of a receiver that reads two: the SDK's receiver, used by one caller at a time.

It fetches in short turns, so that a settlement need not wait long for a receive that finds
nothing, and rests after a failure. What is done with messages is in `receiver`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from twinbus.model.logged import EventLog
from twinbus.pair.sdk import received as receiving_sdk

_log = EventLog(__name__)

TURN_S = 0.5
REST_S = 0.5
REST_MAX_S = 5.0
CLOSE_S = 5.0  # To give back what nobody has seen; what is not given back by then waits for its lock.
T = TypeVar("T")


class NamespaceReceiver:
    """A receiver in one namespace, and what it has brought."""

    def __init__(self, namespace: str, make: Callable[[], Any], arrived: Callable[[], None], renews: bool) -> None:
        """`make` gives a receiver of the SDK; with `renews` a new one after each failure, since a session is lost."""
        self.namespace = namespace
        self.messages: deque[Any] = deque()
        self.problem: Exception | None = None
        self._make = make
        self._renews = renews
        self._arrived = arrived
        self._receiver: Any = None
        self._known: WeakSet[Any] = WeakSet()
        self._lock = asyncio.Lock()
        self._fetching: asyncio.Task[None] | None = None
        self._rest_s = REST_S
        self._rest_until = 0.0

    @property
    def receiver(self) -> Any:
        """The SDK's receiver, made when it is first needed."""
        if self._receiver is None:
            self.adopt(self._make())
        return self._receiver

    def adopt(self, receiver: Any) -> None:
        """Use a receiver that somebody opened."""
        self._receiver = receiver
        self._known.add(receiver)

    def brought(self, receiver: Any) -> bool:
        """Whether a receiver is or was this source's."""
        return receiver in self._known

    @property
    def is_fetching(self) -> bool:
        """Whether a fetch is under way."""
        return self._fetching is not None and not self._fetching.done()

    @property
    def rests_until(self) -> float:
        """When it may be asked again, by the loop's clock."""
        return self._rest_until

    def fetch(self, count: int, wait_s: float, at_once: bool = False) -> None:
        """Begin to fetch, unless that is under way, or the last one failed a moment ago."""
        loop = asyncio.get_running_loop()
        if self.is_fetching or (not at_once and loop.time() < self._rest_until):
            return
        self.problem = None
        self._fetching = loop.create_task(self._fetch(count, max(min(wait_s, TURN_S), 0.05)))

    async def _fetch(self, count: int, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with self._lock:
                await receiving_sdk.opened(self.receiver)
                found = await self.receiver.receive_messages(max_message_count=count, max_wait_time=wait_s)
        except Exception as error:
            self.problem = error
            self._rest_until = loop.time() + self._rest_s
            self._rest_s = min(self._rest_s * 2, REST_MAX_S)
            _log.info(
                "receive.failed", "receiving from {namespace} failed: {error}", namespace=self.namespace, error=error
            )
            if self._renews:
                await self._discard()
        else:
            self.messages.extend(found)
            self._rest_s, self._rest_until = REST_S, 0.0
        finally:
            self._arrived()

    async def _discard(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            with suppress(Exception):
                await receiver.close()

    async def idle(self, timeout_s: float | None = None) -> None:
        """Wait until no fetch is under way, or for so long."""
        if self._fetching is not None:
            await asyncio.wait([self._fetching], timeout=timeout_s)

    async def call(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Something else that the SDK's receiver does, between two turns of fetching."""
        async with self._lock:
            await receiving_sdk.opened(self.receiver)
            return await work(self.receiver)

    async def close(self) -> None:
        """End the turn under way, give back what nobody has seen, and close, all within a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.idle()
                async with self._lock:
                    while self.messages:
                        await self._give_back(self.messages.popleft())
        if self._fetching is not None:
            self._fetching.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._discard()

    async def _give_back(self, message: Any) -> None:
        """Through the receiver that brought it: no other has it locked."""
        with suppress(Exception):
            await receiving_sdk.give_back(receiving_sdk.receiver_of(message), message)
