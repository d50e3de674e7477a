"""Has messages taken by their destinations: sent, waited for, sent again within a time, set aside or given up.

Nothing is reported as sent before a broker has acknowledged it. The ways are `routes`'; which messages go together is
told by `outgoing`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twinbus.client.diverting import divert
from twinbus.client.errors import NOT_TAKEN, ClientError, is_refusal
from twinbus.client.messages import with_properties
from twinbus.client.mover import failures
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.writing.outgoing import Outgoing, Round
from twinbus.pipeline.writing.sink_options import FAIL, SinkOptions

PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
REFUSED = "RefusedByDestination"
DESCRIPTION_MAX = 1024


class Route(Protocol):
    """A way to the destinations. It raises a PipelineError for what no second attempt can change."""

    async def ready(self, path: str) -> int | None:
        """Open the way to an entity; the largest message that it takes, if that is known."""

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Send once; a ClientError says which messages were not taken."""


class NotReadyError(Exception):
    """The way to an entity cannot be opened at present."""


@dataclass(slots=True)
class Sent:
    """What was acknowledged, by destination, and what was set aside."""

    messages: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    set_aside: int = 0

    def add(self, other: Sent) -> None:
        """Count what another has counted."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.set_aside += other.set_aside


class Delivery:
    """Delivers the messages of one task. Time and waiting may be given, for tests."""

    def __init__(
        self,
        route: Route,
        options: SinkOptions,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._route = route
        self._options = options
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._sleep = sleep
        self._setting_aside = asyncio.Lock()

    async def send(self, messages: Round) -> Sent:
        """Have every message of a round taken; destinations beside each other, each in the order of its rows."""
        sent = Sent()
        async with asyncio.TaskGroup() as group:
            for path, some in messages.items():
                group.create_task(self._to(path, some, sent))
        return sent

    async def _to(self, path: str, messages: list[Outgoing], sent: Sent) -> None:
        until = self._now() + self._options.send_timeout_s
        pause_s, left = PAUSE_S, messages
        while True:
            failed = await self._attempt(path, left)
            for at, message in enumerate(left):
                if at not in failed:
                    sent.messages[path] += 1
                    sent.bytes += len(message.payload)
            refused = [(left[at], str(error)) for at, error in failed.items() if is_refusal(error)]
            if refused:
                await self._refused(path, refused, sent)
            waiting = {at: error for at, error in failed.items() if not is_refusal(error)}
            reason = next((error.text for error in waiting.values()), "")
            left = [left[at] for at in waiting]
            if not left:
                return
            left_s = until - self._now()
            if left_s <= 0:
                raise PipelineError(
                    f"'{path}' did not take {len(left)} of {len(messages)} messages within"
                    f" {self._options.send_timeout_s:g} s (sendTimeout): {reason}"
                )
            await self._sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _attempt(self, path: str, messages: list[Outgoing]) -> dict[int, ClientError]:
        """What was not taken, by position."""
        try:
            largest = await self._route.ready(path)
        except NotReadyError as problem:
            return dict.fromkeys(range(len(messages)), ClientError(NOT_TAKEN, str(problem)))
        for message in messages:
            if largest is not None and len(message.payload) > largest:
                raise PipelineError(
                    f"Row {message.row} (message '{message.message_id}') is too large for '{path}': encoded it has"
                    f" {len(message.payload):,} bytes, and at most {largest:,} are taken."
                )
        return await failures(self._route.send(path, [message.payload for message in messages]), len(messages))

    async def _refused(self, path: str, refused: list[tuple[Outgoing, str]], sent: Sent) -> None:
        aside = self._options.dead_letter_queue
        first, reason = refused[0]
        if self._options.on_unroutable == FAIL or aside is None or path == aside:
            more = f" ({len(refused) - 1} more were refused)" if len(refused) > 1 else ""
            raise PipelineError(
                f"'{path}' refuses row {first.row} (message '{first.message_id}') for good: {reason}{more}"
            )
        kept = [_set_aside(message, why) for message, why in refused]
        count = Sent()
        async with self._setting_aside:
            await self._to(aside, kept, count)
        sent.set_aside += count.messages.total()
        sent.bytes += count.bytes


def _set_aside(message: Outgoing, reason: str) -> Outgoing:
    """As a backlog queue would keep it, which knows where it was to go; and why it did not get there."""
    told = {REASON: REFUSED, DESCRIPTION: reason[:DESCRIPTION_MAX]}
    return message._replace(payload=with_properties(divert(message.payload, message.path), told))
