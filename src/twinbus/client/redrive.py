"""Dead letters brought back to their queue, lot by lot, by the mover.

Which of them stay is decided here. Which queue, and what people see of it, is left to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from twinbus.client import messages
from twinbus.client.endpoint import to_its_end
from twinbus.client.errors import ClientError
from twinbus.client.messages import Message
from twinbus.client.mover import Ready, move
from twinbus.client.receiver import ReceivedMessage
from twinbus.model.message import Outcome

LOT = 100
# So many are held on one link; brokers hand out no more than a few thousand that are not settled.
HELD_MAX = 2_000
# A dead-letter queue that shows nothing for so long has nothing that is free; less when its last was seen already.
SILENCE_S = 2.0
SILENCE_AT_END_S = 0.2
# The broker's clock may be so far from ours.
CLOCKS_DIFFER_MS = 5_000

OTHER_REASON = "another reason"
DUPLICATE = "would be taken for a duplicate"

Leave = Callable[[Message], str | None]


class DeadLetters(Protocol):
    """Where dead letters come from: a receiver of a dead-letter queue."""

    async def receive(self, max_count: int, timeout_s: float | None = None) -> list[ReceivedMessage]: ...

    async def settle(self, messages: Sequence[ReceivedMessage], outcome: Outcome = Outcome.COMPLETE) -> None: ...


class Queue(Protocol):
    """Where they go: a sender."""

    async def send(self, payloads: Sequence[bytes]) -> None: ...


class _Dead(NamedTuple):
    number: int
    received: ReceivedMessage


@dataclass(slots=True)
class Redriven:
    """What became of the dead letters that were looked at."""

    moved: int = 0
    left: Counter[str] = field(default_factory=Counter)  # Why, and how many.
    refused: list[int] = field(default_factory=list)  # Sequence numbers of what the queue did not take.
    doubled: list[int] = field(default_factory=list)  # Of what may be in both places now.
    seen_to: int = 0  # The highest number that was looked at.
    error: ClientError | None = None


def leaving(reason: str | None, duplicate_window_ms: int | None, now_ms: int) -> Leave:
    """Decides which dead letters stay: those with another reason, and those that the queue would not keep.

    A queue that detects duplicates accepts an id that it has seen within its window, and throws the message away.
    """

    def leave(message: Message) -> str | None:
        if reason is not None and (message.dead_letter_reason or "").lower() != reason.lower():
            return OTHER_REASON
        if duplicate_window_ms is not None:
            age_ms = now_ms - (message.enqueued_at_ms or 0)
            if age_ms <= duplicate_window_ms + CLOCKS_DIFFER_MS:
                return DUPLICATE
        return None

    return leave


class Redrive:
    """One run over a dead-letter queue. `until` is the highest number in it when the run began.

    What comes back dead during the run has a higher number, and is left for the next run. What is to stay is held
    until the end, or it would come again and again; since a link holds only so many, another one is opened in time.
    """

    def __init__(
        self,
        open_source: Callable[[], Awaitable[DeadLetters]],
        destination: Queue,
        *,
        until: int,
        leave: Leave,
        new_id: Callable[[], str] | None = None,
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.result = Redriven()
        self._open_source = open_source
        self._destination = destination
        self._until = until
        self._leave = leave
        self._new_id = new_id
        self._progress = progress
        self._known: set[int] = set()
        self._held: list[tuple[DeadLetters, list[ReceivedMessage]]] = []

    async def run(self, limit: int | None = None) -> Redriven:
        """Moves all that is wanted, at most `limit`."""
        result = self.result
        try:
            while result.error is None and (limit is None or result.moved < limit):
                if not self._held or len(self._held[-1][1]) >= HELD_MAX:
                    self._held.append((await self._open_source(), []))
                source, held = self._held[-1]
                most = LOT if limit is None else min(LOT, limit - result.moved)
                lot = await source.receive(most, SILENCE_S if result.seen_to < self._until else SILENCE_AT_END_S)
                chosen = self._choose(lot, held)
                if chosen is None:
                    break
                if chosen:
                    await to_its_end(self._move(source, chosen))
        finally:
            for source, held in self._held:
                # A lock that is lost meanwhile is given back already.
                with suppress(ClientError):
                    await to_its_end(source.settle(held, Outcome.RELEASE))
        return result

    def _choose(self, lot: list[ReceivedMessage], held: list[ReceivedMessage]) -> list[_Dead] | None:
        """What of a lot is to be moved, the rest being held; None when there is nothing new any more."""
        chosen: list[_Dead] = []
        is_news = False
        for received in lot:
            message = messages.read(received.payload)
            number = message.sequence_number
            is_new = number <= self._until and number not in self._known
            why = self._leave(message)
            if is_new and why is None:
                chosen.append(_Dead(number, received))
            else:
                held.append(received._replace(payload=b""))
            if is_new:
                is_news = True
                self._known.add(number)
                self.result.seen_to = max(self.result.seen_to, number)
                if why is not None:
                    self.result.left[why] += 1
        return chosen if is_news else None

    async def _move(self, source: DeadLetters, chosen: list[_Dead]) -> None:
        result = self.result
        moved = await move(_Letters(source, self._new_id), _OneQueue(self._destination), chosen)
        if waiting := [dead.received for held in moved.waiting.values() for dead in held]:
            with suppress(ClientError):
                await source.settle(waiting, Outcome.RELEASE)
        result.moved += len(moved.done)
        result.doubled += [dead.number for dead in moved.doubled]
        for dead, error in moved.failed:
            (result.refused if error.definite else result.doubled).append(dead.number)
        result.error = next((error for _, error in moved.failed), moved.problem)
        self._progress(moved.moved.total())


class _Letters:
    """The dead letters of one receiver, as the mover sees them."""

    def __init__(self, receiver: DeadLetters, new_id: Callable[[], str] | None) -> None:
        self._receiver = receiver
        self._new_id = new_id

    def restore(self, held: _Dead) -> Ready:
        """There is one queue for all of them."""
        return Ready("", messages.again(held.received.payload, self._new_id() if self._new_id else None))

    async def complete(self, held: Sequence[_Dead]) -> None:
        """They are dead letters no more."""
        await self._receiver.settle([dead.received for dead in held])

    async def set_aside(self, held: _Dead, reason: str, description: str) -> None:
        """Among the dead letters it is aside already."""
        await self._receiver.settle([held.received], Outcome.RELEASE)


class _OneQueue:
    """A sender, as the mover sees it."""

    def __init__(self, sender: Queue) -> None:
        self._sender = sender

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """To the one queue."""
        await self._sender.send(payloads)
