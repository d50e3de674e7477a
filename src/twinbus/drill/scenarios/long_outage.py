"""The drill `outage --for 3d`: an outage of days, on clocks that are moved while traffic flows.

Over days tokens end and are renewed, locks in the backlog run out, messages outlive their time to live, and what was
done before the outage must still be known after it. Tokens go by real time, so that they get a short life here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from twinbus.drill.acting import PATIENCE_S, until
from twinbus.drill.ending import Ending, untrue
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.stage import Stage
from twinbus.drill.tokens import Signer, paired_with
from twinbus.pair import Ledger

STEPS = 12  # In so many the clocks are moved.
STEP_S = 0.8
UNREAD = 60  # Messages that nobody reads before the outage.
AGAIN = 10  # Messages that are worked on before it, and sent once more in it.
SENT_AGAIN = "again-"
LIFE_MAX = timedelta(milliseconds=2**32 - 1)  # What the header of an AMQP message can say.
TOKEN_LIFE_S = 10.0  # What lives shorter the SDK does not renew before its end.
DEAD_LETTERS = "/$deadletterqueue"
LOOK_S = 0.2


@dataclass(slots=True)
class MovedClock:
    """The machine's clock, set forward."""

    ahead_ms: int = 0

    def now_ms(self) -> int:
        """The present instant."""
        return time.time_ns() // 1_000_000 + self.ahead_ms


def lives(lasting: timedelta) -> tuple[timedelta, timedelta | None, None]:
    """Times to live: shorter than an outage that lasts so long, longer if a header can say it, and for ever."""
    longer = min(lasting * 10, LIFE_MAX)
    return min(lasting / 10, timedelta(days=1)), longer if longer > lasting * 1.5 else None, None


class Days:
    """The outage and what it leaves behind."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clock = MovedClock()
        lasting = timedelta(seconds=stage.plan.outage_s)
        self.keep = lasting + timedelta(days=1)
        self._lives = lives(lasting)  # Of messages in turn.
        self.signers = (
            Signer(stage.primary.direct.connection_string, TOKEN_LIFE_S),
            Signer(stage.secondary.direct.connection_string, TOKEN_LIFE_S),
        )

    def act(self) -> PairedAct:
        """Senders whose tokens live shortly, and a ledger that keeps what it knows for longer than the outage."""
        make = partial(paired_with, credentials=self.signers)
        act = PairedAct(self.stage, OPTIONS, make=make, clock=self.clock, keep=self.keep)
        act.traffic.time_to_live = lambda number: self._lives[number % len(self._lives)]
        return act

    @property
    def signed(self) -> int:
        """How many tokens were signed so far."""
        return sum(signer.signed for signer in self.signers)

    def is_short_lived(self, message_id: str) -> bool:
        """Whether a message does not live as long as the outage lasts."""
        return int(message_id.rpartition("-")[2]) % len(self._lives) == 0

    async def prepare(self, act: PairedAct) -> None:
        """Have messages worked on that will be sent once more in the outage, and others wait unread when it begins."""
        sent = await act.traffic.flood(act.client, AGAIN, SENT_AGAIN)
        await until(lambda: sent <= self.stage.course.received.keys())
        act.traffic.pause_receiving()
        await act.traffic.stilled()
        await act.traffic.flood(act.client, UNREAD)

    async def pass_by(self) -> None:
        """Let the time of the plan pass, in steps."""
        course = self.stage.course
        by_ms = int(self.stage.plan.outage_s * 1000 / STEPS)
        for step in range(STEPS):
            await asyncio.sleep(STEP_S)
            for site in (self.stage.primary, self.stage.secondary):
                await site.advance(by_ms)
            self.clock.ahead_ms += by_ms
            if step % 4 == 3:
                course.say(f"{timedelta(milliseconds=self.clock.ahead_ms)} have passed")
        forgotten = await asyncio.to_thread(self._trim)
        course.say(f"the ledger has forgotten {forgotten:,} messages")

    def _trim(self) -> int:
        """As a process of its own would, with the same settings."""
        with Ledger(self.stage.directory / "ledger.db", clock=self.clock, keep=self.keep) as ledger:
            return ledger.trim()

    async def dead_letters(self, expected: Collection[str]) -> frozenset[str]:
        """What has expired in the primary; what is expected gets some time."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := await self._dead()) >= set(expected) and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_S)
        return found

    async def _dead(self) -> frozenset[str]:
        paths = [
            f"{where.path}{DEAD_LETTERS}"
            if where.subscription is None
            else f"{where.path}/Subscriptions/{where.subscription}{DEAD_LETTERS}"
            for where in self.stage.destinations
        ]
        return frozenset(each for ids in (await self.stage.primary.browse(*paths)).values() for each in ids)


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen beside the verdict; messages by their ids."""

    unread: frozenset[str]  # They waited in the dead primary.
    short: frozenset[str]  # Of all messages, those that do not live as long as the outage lasts.
    dead: frozenset[str]  # In the primary's dead letters after its return.
    diverted: frozenset[str]
    received: frozenset[str]
    twice: frozenset[str]  # Worked on before the outage, and sent again in it.
    suppressed: frozenset[str]
    failed: int  # Sends, while they were diverted.
    signed: int  # Tokens, in the outage and after it.

    @property
    def expired(self) -> frozenset[str]:
        """What must have expired: it waited, and its time to live went on. In the backlog that of others does not."""
        return self.unread & self.short

    def broken(self) -> tuple[str, ...]:
        """The claims that do not hold."""
        late, early = self.expired - self.dead, self.dead - self.short
        return untrue(
            {
                "nothing expired in the primary, so that nothing was rehearsed": bool(self.expired),
                f"should have expired and did not: {_some(late)}": not late,
                f"expired and should not: {_some(early)}": not early,
                "no short-lived message was diverted, so that nothing was rehearsed": bool(self.diverted & self.short),
                f"diverted and not received: {_some(self.diverted - self.received)}": self.diverted <= self.received,
                f"{self.failed} sends failed while they were diverted": self.failed == 0,
                "nothing was sent again in the outage, so that nothing was rehearsed": bool(self.twice),
                f"not suppressed after the days: {_some(self.twice - self.suppressed)}": self.twice <= self.suppressed,
                "no token was renewed": self.signed > 0,
            }
        )


def _some(ids: frozenset[str]) -> str:
    return ", ".join(sorted(ids)[:10])


async def long_outage(stage: Stage) -> Ending:
    """Days without the primary."""
    course, days = stage.course, Days(stage)
    async with days.act() as act:
        await act.calm()
        await days.prepare(act)
        await stage.primary.go_away()
        await until(stage.all_failed_over)
        failed, signed = course.failed, days.signed
        # As somebody does whose answers were lost.
        twice = await act.traffic.flood(act.client, AGAIN, SENT_AGAIN)
        await days.pass_by()
        unread = frozenset(course.acknowledged - course.diverted - course.received.keys())
        failed = course.failed - failed
        await stage.primary.come_back()
        dead = await days.dead_letters(list(filter(days.is_short_lived, unread)))
        act.kept = frozenset(filter(days.is_short_lived, unread & dead))
        act.traffic.go_on_receiving()
        await act.home()
        await act.calm()
    found = Found(
        unread=unread,
        short=frozenset(filter(days.is_short_lived, course.attempted)),
        dead=dead,
        diverted=frozenset(course.diverted),
        received=frozenset(course.received),
        twice=frozenset(twice),
        suppressed=act.suppressed(),
        failed=failed,
        signed=days.signed - signed,
    )
    return act.ending(
        f"{timedelta(seconds=stage.plan.outage_s)} passed on moved clocks; {found.signed:,} tokens of"
        f" {TOKEN_LIFE_S:g} s were signed meanwhile",
        f"unread in the dead primary {len(unread):,}; {len(found.expired):,} of them expired, and are dead letters",
        f"time to live shorter than the outage, but diverted and so received: {len(found.diverted & found.short):,}",
        f"worked on before the outage, sent again in it, suppressed after it: {len(found.twice & found.suppressed):,}",
        broken=found.broken(),
    )
