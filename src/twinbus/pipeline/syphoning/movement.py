"""What one Spark task of the syphon does in a round: receive, send, wait for the acknowledgement, complete, again.

The steps are those of `pair.syphon`. A task ends when its queues give nothing more, when its
time is over, or when the primary is gone; it raises nothing that a broker said, it returns it. No Spark in here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.client.errors import TIMED_OUT, ClientError
from twinbus.pair import replaced
from twinbus.pair.description import PairDescription
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.syphon.drain import Drain, PassedOver
from twinbus.pair.syphon.home import Home, Progress
from twinbus.pair.syphon.missing import Seen
from twinbus.pair.syphon.ordered import OrderedPump
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
class Done(Progress):
    """What a task did in a round."""

    number: int = 0
    primary_gone: bool = False
    missing: Seen = field(default_factory=dict)  # Entities that the primary does not have, and since when.
    attempt: int = 0  # Above zero if an earlier attempt at this share was lost, with its count.


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
        self._primary, self._secondary = description.namespaces()
        self._share = share
        self._round_s = round_s
        self._stop_file = stop_file
        self._until = 0.0
        self._clock: Callable[[], float] = lambda: 0.0
        self._pace: Pace | None = None
        wait_s, taken = self._options.seconds("missing_entity_wait"), replaced.parse(self._options.replaces)
        self._home = Home(self._primary, wait_s, missing_seen=share.missing, replaced=taken)
        self._passed_over = PassedOver.to_the_end()  # Of the round.
        self._done = Done(number=share.number)

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
        self._done.missing = self._home.missing
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
        try:
            receiver = await self._secondary.receiver(queue)
            drain = Drain(receiver, self._home, self._passed_over, self._done)
            try:
                while limit := await self._allowed(lot_of(self._options)):
                    moved = await drain.step(limit, QUIET_S)
                    self._done.primary_gone |= moved.is_gone
                    if self._pace is not None:
                        self._pace.give_back(limit - moved.moved.total() - len(moved.set_aside))
                    if moved.is_gone or not moved.received:
                        return
            finally:
                await drain.close()
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

    # In order

    async def _keep_order(self, queue: str) -> None:
        """The sessions of one ordered queue. Each is locked by whoever holds it, so that its order is nobody else's."""
        home, quiet_s, progress = self._home, ORDERED_QUIET_S, Progress()
        if self._share.rate is not None:
            home, quiet_s = _Paced(self._primary, self._home, self._allowed), quiet_s + 2 / self._share.rate

        async def this_one() -> list[str]:
            return [queue]

        pause_s = self._options.seconds("syphon_pause")
        pump = OrderedPump(home, self._secondary, this_one, progress, poll_s=self._round_s, pause_s=pause_s)
        pump.start()
        ended, quiet_from = 0, self._clock()
        try:
            while not self._is_over():
                await asyncio.sleep(LOOK_S)
                if progress.ended > ended:
                    ended, quiet_from = progress.ended, self._clock()
                elif self._clock() - quiet_from > quiet_s:
                    break
        finally:
            await pump.stop()
        self._done.moved += progress.moved
        self._done.dead += progress.dead
        self._done.doubled += progress.doubled
        self._done.problems |= {where: why for where, why in progress.problems.items() if ROUND_OVER not in why}


class _Paced(Home):
    """The primary for messages that go one at a time: each send waits until one may go."""

    def __init__(self, primary: RemoteNamespace, home: Home, allowed: Callable[[int], Awaitable[int]]) -> None:
        super().__init__(primary, 0.0, replaced=home.replaced)
        self._missing = home._missing
        self._allowed = allowed

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """When one message may go."""
        if not await self._allowed(1):
            raise ClientError(TIMED_OUT, ROUND_OVER)
        await super().send(path, payloads)


def lot_of(options: SendAvailabilityOptions) -> int:
    """How many messages a receiver asks for at a time."""
    return options.syphon_batch * LOTS


def run(description: PairDescription, round_s: float, share: Share, stop_file: Path | None = None) -> Done:
    """A share's round, in a process of its own."""
    return asyncio.run(Mover(description, share, round_s, stop_file).run())
