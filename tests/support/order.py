"""A receiver that notes the order in which the messages of each session come, and a judgement of it.

Message ids are `SESSION.NUMBER`, numbered in the order in which the application sent them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from contextlib import suppress
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from support.pair_scene import Scene

AT_ONCE = 3


class SessionReader:
    """Reads a session queue of the primary, past the proxy, for the time of an `async with` block."""

    def __init__(self, scene: Scene, queue: str, by_session: bool = False, subscription: str | None = None) -> None:
        """`by_session` is for ids of other kinds, which are kept under the sessions they come in.

        With a subscription, `queue` is its topic.
        """
        self._scene = scene
        self._queue = queue
        self._subscription = subscription
        self._by_session = by_session
        self._tasks: list[asyncio.Task[None]] = []
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        self.ids: defaultdict[str, list[str]] = defaultdict(list)
        self._copies: set[int | None] = set()
        self._enough = False
        self.log: list[tuple[str, int | None, str]] = []  # In the order of receiving, with the broker's numbers.

    async def __aenter__(self) -> SessionReader:
        # Several, because one stays with its session for as long as that has messages, and others would wait.
        self._tasks = [asyncio.create_task(self._read()) for _ in range(AT_ONCE)]
        return self

    async def __aexit__(self, *args: object) -> None:
        self._enough = True
        while left := [task for task in self._tasks if not task.done()]:
            for task in left:  # The client may take a cancellation for a failure of its connection.
                task.cancel()
            await asyncio.wait(left, timeout=1)

    @property
    def count(self) -> int:
        """How many messages have come."""
        return sum(map(len, self.ids.values()))

    async def _read(self) -> None:
        while not self._enough:
            with suppress(ServiceBusError, OSError):
                async with ServiceBusClient.from_connection_string(
                    self._scene.primary.connection_string(), retry_total=0
                ) as client:
                    while not self._enough:
                        await self._read_session(client)
            await asyncio.sleep(0.1)

    async def _read_session(self, client: ServiceBusClient) -> None:
        wanted: dict[str, Any] = {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": 1}
        async with (
            client.get_queue_receiver(self._queue, **wanted)
            if self._subscription is None
            else client.get_subscription_receiver(self._queue, self._subscription, **wanted)
        ) as receiver:
            # One at a time: what arrives between two calls the client gives back, and then has later ones before it.
            while messages := await receiver.receive_messages(1, max_wait_time=0.2):
                for message in messages:
                    self._note(str(message.message_id), str(message.session_id), message.sequence_number)
                    await receiver.complete_message(message)

    def _note(self, message_id: str, session_id: str, number: int | None) -> None:
        """Before it is completed, as the answer to that may be lost; the same copy again is no second message."""
        if number in self._copies:
            return
        self._copies.add(number)
        self.log.append((session_id, number, message_id))
        self._scene.received[message_id] += 1
        self.ids[session_id].append(message_id)
        if not self._by_session:
            name, position = message_id.rsplit(".", 1)
            self.seen[name].append(int(position))

    def disorder(self) -> list[str]:
        """Where a session's messages came in another order than they were sent."""
        return [
            f"{name}: {later} after {earlier}"
            for name, numbers in self.seen.items()
            for earlier, later in itertools.pairwise(numbers)
            if later <= earlier
        ]
