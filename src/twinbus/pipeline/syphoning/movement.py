"""What one Spark task of the syphon does in a round: receive, send, wait for the acknowledgement, complete, again.

The steps are those of `pair.syphon` and `pair.ordered_syphon`. A task ends when its queues give nothing more, when its
time is over, or when the primary is gone; it raises nothing that a broker said, it returns it. No Spark in here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.client import Connection, ReceivedMessage, Sender
from twinbus.client.errors import TIMED_OUT, ClientError
from twinbus.pair import syphon
from twinbus.pair.description import PairDescription
from twinbus.pair.half import Half
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.ordered_syphon import OrderedPump
from twinbus.pipeline.syphoning.rounds import Share

# A task's lot is so many of the pump's: several processes at one broker share its commits, which are then too small.
LOTS = 3
QUIET_S = 0.15  # A queue that gives nothing for so long is left; the next round looks again.
ORDERED_QUIET_S = 0.6  # Longer than a session that gives nothing is held.
BURST_S = 0.1  # How much of its rate a task may use at once.
LOOK_S = 0.05
STOP_LOOK_S = 0.1
ROUND_OVER = "the round is over"


@dataclass(slots=True)
class Done:
    """What a task did in a round."""

    number: int = 0
    moved: Counter[str] = field(default_factory=Counter)  # By destination.
    dead: int = 0
    doubled: int = 0  # Sent, but not completed: they will be sent again under the same id.
    problems: dict[str, str] = field(default_factory=dict)  # What takes or gives nothing at present, and why.
    primary_gone: bool = False
    attempt: int = 0  # Above zero if an earlier attempt at this share was lost, with its count.

    @property
    def ended(self) -> int:
        """How many messages are no longer in the backlog queues."""
        return self.moved.total() + self.dead


class Pace:
    """How many messages may go now, so that there are never more than `rate` in a second. Time is an argument."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * BURST_S)
        self._saved = 0.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        """As many as may go, at most `wanted`; none if it is too early."""
        self._saved = min(self._most, self._saved + (now - self._at) * self._rate)
        self._at = now
        count = min(wanted, int(self._saved))
        self._saved -= count
        return count

    def give_back(self, count: int) -> None:
        """What was taken and not used."""
        self._saved += count

    def wait_s(self) -> float:
        """How long until one may go."""
        return max((1.0 - self._saved) / self._rate, 0.001)


class Mover:
    """One task in one round."""

    def __init__(
        self, description: PairDescription, share: Share, round_s: float, stop_file: Path | None = None
    ) -> None:
        """The round ends early when there is a `stop_file`."""
        self._options = description.options
        self._primary, self._secondary = description.halves()
        self._share = share
        self._round_s = round_s
        self._stop_file = stop_file
        self._until = 0.0
        self._clock: Callable[[], float] = lambda: 0.0
        self._pace: Pace | None = None
        self._blocked: set[str] = set()  # Destinations that take nothing at present; passed over in this round.
        self._done = Done(share.number)

    async def run(self) -> Done:
        """To the end of the round, or of what there is to do."""
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + self._round_s
        if self._share.rate is not None:
            self._pace = Pace(self._share.rate, self._clock())
        watching = asyncio.gather(self._give_up_silence(), self._heed(self._stop_file))
        try:
            await asyncio.gather(
                *(self._receive(queue) for queue in self._share.receivers),
                *(self._keep_order(queue) for queue in self._share.ordered),
            )
        finally:
            watching.cancel()
            closing = (self._primary.close(), self._secondary.close())
            await asyncio.gather(watching, *closing, return_exceptions=True)
        return self._done

    def _is_over(self) -> bool:
        return self._done.primary_gone or self._clock() >= self._until

    async def _give_up_silence(self) -> None:
        """A primary that takes bytes and answers nothing must not hold a round for as long as it likes."""
        silence_s = self._options.seconds("attempt_timeout")
        await asyncio.sleep(self._round_s + silence_s)
        self._done.primary_gone = True
        self._done.problems[self._primary.target.host] = f"the primary has not answered for {silence_s:g} s"
        await self._primary.close()  # Whoever waits for an answer is told that there will be none.

    async def _heed(self, stop_file: Path | None) -> None:
        """Whoever stops the driver does not want to wait for the end of the round."""
        while stop_file is not None:
            await asyncio.sleep(STOP_LOOK_S)
            if stop_file.exists():
                self._until = self._clock()
                return

    # Without order

    async def _receive(self, queue: str) -> None:
        """One receiver; others may be at the same queue, in this task and in others."""
        held: dict[str, list[ReceivedMessage]] = {}
        try:
            receiver = await self._secondary.receiver(queue)
            try:
                while limit := await self._allowed(lot_of(self._options)):
                    moved = await syphon.step(
                        receiver, self._primary, limit=limit, wait_s=QUIET_S, blocked=list(self._blocked)
                    )
                    self._count(moved, limit)
                    for path, waiting in moved.held.items():
                        held.setdefault(path, []).extend(waiting)
                    if moved.primary_gone or not moved.received:
                        return
            finally:
                await syphon.give_back(receiver, held)
                with suppress(ClientError):
                    await receiver.close()
        except ClientError as problem:
            self._done.problems[queue] = problem.text

    async def _allowed(self, wanted: int) -> int:
        """How many may be moved now; waits for the pace, and is none when the round is over."""
        while not self._is_over():
            if self._pace is None:
                return wanted
            if count := self._pace.take(wanted, self._clock()):
                return count
            await asyncio.sleep(min(self._pace.wait_s(), LOOK_S))
        return 0

    def _count(self, moved: syphon.Moved, limit: int) -> None:
        done = self._done
        done.moved += moved.moved
        done.dead += moved.dead
        done.doubled += moved.doubled
        done.primary_gone |= moved.primary_gone
        for path, error in moved.blocked.items():
            done.problems[path] = error.text
            self._blocked.add(path)
        if self._pace is not None:
            self._pace.give_back(limit - moved.moved.total() - moved.dead)

    # In order

    async def _keep_order(self, queue: str) -> None:
        """The sessions of one ordered queue. Each is locked by whoever holds it, so that its order is nobody else's."""
        primary, quiet_s = self._primary, ORDERED_QUIET_S
        if self._share.rate is not None:
            primary, quiet_s = _Paced(primary, self._allowed), quiet_s + 2 / self._share.rate

        async def this_one() -> list[str]:
            return [queue]

        pause_s = self._options.seconds("syphon_pause")
        pump = OrderedPump(primary, self._secondary, this_one, poll_s=self._round_s, pause_s=pause_s)
        pump.start()
        ended, quiet_from = 0, self._clock()
        try:
            while not self._is_over():
                await asyncio.sleep(LOOK_S)
                if pump.moved.total() + pump.dead > ended:
                    ended, quiet_from = pump.moved.total() + pump.dead, self._clock()
                elif self._clock() - quiet_from > quiet_s:
                    break
        finally:
            await pump.stop()
        self._done.moved += pump.moved
        self._done.dead += pump.dead
        self._done.doubled += pump.doubled
        if pump.problem is not None and ROUND_OVER not in pump.problem:
            self._done.problems[queue] = pump.problem


class _Paced(Half):
    """The primary for messages that go one at a time: whoever asks for a sender waits until one may go.

    It is the other half's in everything else, and is asked for nothing else.
    """

    def __init__(self, half: Half, allowed: Callable[[int], Awaitable[int]]) -> None:
        super().__init__(half.role, half.target)
        self._half = half
        self._allowed = allowed

    def fresh(self) -> AbstractAsyncContextManager[Connection]:
        """A connection of one's own."""
        return self._half.fresh()

    async def sender(self, path: str) -> Sender:
        """A sender to an entity, when one message may go."""
        if not await self._allowed(1):
            raise ClientError(TIMED_OUT, ROUND_OVER)
        return await self._half.sender(path)


def lot_of(options: SendAvailabilityOptions) -> int:
    """How many messages a receiver asks for at a time."""
    return options.syphon_batch * LOTS


def run(description: PairDescription, round_s: float, share: Share, stop_file: Path | None = None) -> Done:
    """A share's round, in a process of its own."""
    return asyncio.run(Mover(description, share, round_s, stop_file).run())
