"""The traffic of a drill: messages sent at a steady rate to a queue, a session queue and a topic, received and counted.

Knows no scenario, and no more of a client than that it makes senders and receivers as the SDK does. What failed is sent
again under its id until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from twinbus.drill.course import Course
from twinbus.drill.history import SendLog
from twinbus.model.extras import needing

with needing("azure.servicebus"):
    from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
    from azure.servicebus.exceptions import ServiceBusError

SESSIONS = 5
SESSION_RECEIVERS = 3  # One that asks for a message at a time is slower than the others.
WAIT_S = 1.0  # How long a receiver waits for messages.
SESSION_WAIT_S = 0.2  # How long a session that gives nothing more is kept from the others.
AGAIN_S = 0.1  # Before a message that failed is sent again, and before a receiver is made anew.
FLOOD_LOT = 50  # Messages in one send of a flood.
STOP_S = 5.0
LOOK_S = 0.02  # Between two looks at whether something is over.
SETTLE_S = 60.0  # How long everything may take to arrive after the last send.
SECOND_COPY_S = 1.0  # A second copy would have come by then.


class Destination(NamedTuple):
    """Where messages go, and from where they are received."""

    path: str
    subscription: str | None = None  # Then it is a topic.
    sessions: bool = False


DESTINATIONS = (Destination("orders"), Destination("carts", sessions=True), Destination("events", "audit"))


@dataclass(frozen=True, slots=True)
class Pace:
    """How the traffic flows."""

    rate: float = 50.0  # Messages in a second, over all destinations.
    seed: int = 0
    id_prefix: str = ""  # Of message ids, where others use the same entities' namespaces.


class Traffic:
    """Senders and receivers of one drill."""

    def __init__(
        self, course: Course, log: SendLog, pace: Pace, destinations: tuple[Destination, ...] = DESTINATIONS
    ) -> None:
        self._course = course
        self._log = log
        self._pace = pace
        self._destinations = destinations
        self._random = random.Random(pace.seed)
        self._enough = asyncio.Event()
        self._going = asyncio.Event()
        self._going.set()
        self._under_way = 0  # Sends whose outcome is not known yet.
        self._at_work = 0  # Receivers that are open.
        self.session_of: dict[str, str] = {}  # Of messages that have one.
        self._reading = asyncio.Event()
        self._reading.set()
        self._stopped = False
        self._senders: list[asyncio.Task[None]] = []
        self._receivers: list[asyncio.Task[None]] = []
        self.time_to_live: Callable[[int], timedelta | None] = lambda number: None  # Of a message, by its number.

    # Sending

    def send_by(self, client: Any, who: str = "") -> None:
        """Send through a client's senders, until `enough`; `who` begins the ids where there are several clients."""
        for destination in self._destinations:
            sender = _sender(client, destination)
            self._senders.append(asyncio.create_task(self._send(sender, destination, who)))

    async def flood(self, client: Any, count: int, who: str = "flood-") -> set[str]:
        """Send so many beside the steady flow, as fast as it goes, each lot again until it is acknowledged; their ids.

        Not to sessions: those are worked on one message after the other, which would take long.
        """
        sent: set[str] = set()
        flooded = [destination for destination in self._destinations if not destination.sessions]
        for destination in flooded:
            sender = _sender(client, destination)
            numbers = range(count // len(flooded))
            for start in range(0, len(numbers), FLOOD_LOT):
                lot = [self._message(destination, who, number) for number in numbers[start : start + FLOOD_LOT]]
                while not await self._send_lot(sender, destination.path, lot) and not self._enough.is_set():
                    await asyncio.sleep(AGAIN_S)
                sent.update(str(message.message_id) for message in lot)
        return sent

    async def enough(self) -> None:
        """Send no more. What was begun gets its outcome, or the count would not be right."""
        self._enough.set()
        self.go_on_sending()
        await asyncio.gather(*self._senders)

    async def hold_sending(self) -> None:
        """Begin no more sends for now; when this returns, what was begun has its outcome."""
        self._going.clear()
        while self._under_way:
            await asyncio.sleep(LOOK_S)

    def go_on_sending(self) -> None:
        """Send again."""
        self._going.set()

    async def _send(self, sender: Any, destination: Destination, who: str) -> None:
        pause_s = len(self._destinations) / self._pace.rate
        number = 0
        while not self._enough.is_set():
            lot = [self._message(destination, who, number)]
            while not await self._send_lot(sender, destination.path, lot) and not self._enough.is_set():
                await asyncio.sleep(AGAIN_S)
            number += 1
            await asyncio.sleep(pause_s)

    def _message(self, destination: Destination, who: str, number: int) -> ServiceBusMessage:
        message_id = f"{self._pace.id_prefix}{who}{destination.path}-{number:06}"
        session = f"session-{self._random.randrange(SESSIONS)}" if destination.sessions else None
        if session is not None:
            self.session_of[message_id] = session
        return ServiceBusMessage(
            f"message {number}",
            message_id=message_id,
            session_id=session,
            time_to_live=self.time_to_live(number),
        )

    async def _send_lot(self, sender: Any, path: str, lot: list[ServiceBusMessage]) -> bool:
        while not self._going.is_set():  # Who was woken may be held again before its turn comes.
            await self._going.wait()
        self._under_way += 1
        try:
            return await self._attempt(sender, path, lot)
        finally:
            self._under_way -= 1

    async def _attempt(self, sender: Any, path: str, lot: list[ServiceBusMessage]) -> bool:
        ids = [str(message.message_id) for message in lot]
        self._course.attempted.update(ids)
        for message_id in ids:
            self._log.attempted(message_id, path, time.time())
        try:
            await sender.send_messages(lot if len(lot) > 1 else lot[0])
        except ServiceBusError as error:
            for message_id in ids:
                self._log.failed(message_id, time.time(), str(error))
            self._course.failed += 1
            return False
        for message_id in ids:
            self._log.acknowledged(message_id, time.time(), message_id in self._course.diverted)
        self._course.acknowledged.update(ids)
        return True

    # Receiving

    def receive_by(self, make: Callable[[Destination, dict[str, Any]], Any]) -> None:
        """Receive for ever through receivers that `make` makes, given a destination and the SDK's settings."""
        for destination in self._destinations:
            for _ in range(SESSION_RECEIVERS if destination.sessions else 1):
                self._receivers.append(asyncio.create_task(self._receive(make, destination)))

    def pause_receiving(self) -> None:
        """Work on nothing more for now, so that messages stay where they are."""
        self._reading.clear()

    async def stilled(self) -> None:
        """After `pause_receiving`: wait until the last receiver has finished what it had begun."""
        while self._at_work:
            await asyncio.sleep(LOOK_S)

    def go_on_receiving(self) -> None:
        """Work again."""
        self._reading.set()

    async def _receive(self, make: Callable[[Destination, dict[str, Any]], Any], destination: Destination) -> None:
        """A receiver that breaks is made anew."""
        while not self._stopped:
            await self._reading.wait()
            self._at_work += 1
            try:
                with suppress(ServiceBusError, OSError):
                    await self._read(make, destination)
            finally:
                self._at_work -= 1
            await asyncio.sleep(AGAIN_S)

    async def _read(self, make: Callable[[Destination, dict[str, Any]], Any], destination: Destination) -> None:
        settings: dict[str, Any] = {}
        if destination.sessions:
            settings = {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": 2}
        async with make(destination, settings) as receiver:
            wait_s = WAIT_S  # A session that was just handed out has something to give.
            while self._reading.is_set():
                messages = await receiver.receive_messages(max_message_count=100, max_wait_time=wait_s)
                for message in messages:
                    self._course.received[str(message.message_id)] += 1  # The work.
                    await receiver.complete_message(message)
                if destination.sessions and not messages:
                    return  # Another session may have what this one has not.
                if destination.sessions:
                    wait_s = SESSION_WAIT_S

    async def settle(self, condemned: frozenset[str] = frozenset()) -> None:
        """Wait until everything that was acknowledged has come, or cannot be expected to come any more."""
        deadline = time.monotonic() + SETTLE_S
        while self.missing() - condemned and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        await asyncio.sleep(SECOND_COPY_S)

    def missing(self) -> set[str]:
        """What was acknowledged and has not come."""
        return self._course.acknowledged - set(self._course.received)

    async def stop(self) -> None:
        """End all of it. Who has not ended after a while is told again: closing may wait long for what is gone."""
        self._stopped = True
        self._reading.clear()
        left = {*self._senders, *self._receivers}
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=STOP_S)


def _sender(client: Any, destination: Destination) -> Any:
    make = client.get_queue_sender if destination.subscription is None else client.get_topic_sender
    return make(destination.path)
