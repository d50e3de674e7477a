"""Dead letters brought back to their queue: send, wait for the acknowledgement, then complete, lot by lot.

Whoever is killed in between leaves a message in both places, never in none; its id tells the copies apart. Which
queue, and what people see of it, is left to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from twinbus.client import messages
from twinbus.client.endpoint import to_its_end
from twinbus.client.errors import ClientError
from twinbus.client.messages import Message
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


class Source(Protocol):
    """Where dead letters come from."""

    async def receive(self, max_count: int, timeout_s: float | None = None) -> list[ReceivedMessage]: ...

    async def settle(self, messages: Sequence[ReceivedMessage], outcome: Outcome = Outcome.COMPLETE) -> None: ...


class Destination(Protocol):
    """Where they go."""

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
        open_source: Callable[[], Awaitable[Source]],
        destination: Destination,
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
        self._held: list[tuple[Source, list[ReceivedMessage]]] = []

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

    async def _move(self, source: Source, chosen: list[_Dead]) -> None:
        result = self.result
        new_id = self._new_id
        payloads = [messages.again(dead.received.payload, new_id() if new_id else None) for dead in chosen]
        failed = await _failures(self._destination.send(payloads), len(chosen))
        sent = [dead for position, dead in enumerate(chosen) if position not in failed]
        undone = await _failures(source.settle([dead.received for dead in sent]), len(sent)) if sent else {}
        if failed:
            with suppress(ClientError):
                await source.settle([chosen[position].received for position in failed], Outcome.RELEASE)
        result.moved += len(sent) - len(undone)
        result.doubled += [sent[position].number for position in undone]
        for position, error in failed.items():
            (result.refused if error.definite else result.doubled).append(chosen[position].number)
        result.error = next(iter((failed | undone).values()), None)
        self._progress(len(sent))


async def _failures(work: Coroutine[Any, Any, None], count: int) -> dict[int, ClientError]:
    """Which of `count` messages failed, and why, by position."""
    try:
        await work
    except ClientError as error:
        return error.failed or dict.fromkeys(range(count), error)
    return {}
