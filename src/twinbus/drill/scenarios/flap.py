"""The drill `flap`: the primary goes and comes back several times, for as long as the seed says.

Some absences are shorter than the failover interval and one is longer, so that senders fail over at least once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from twinbus.drill.ending import Ending
from twinbus.drill.paired import PairedAct
from twinbus.drill.stage import Stage
from twinbus.faults.proxy import Mode
from twinbus.pair import State
from twinbus.pair.route.health_board import Change

SHORT_ONES = (3, 5)  # So many absences beside the long one, at least and at most.
LONG_S = 3.0  # The long absence is so much longer than the failover interval.
SHORT_S = 0.3  # The least.
THERE_S = (0.5, 2.5)


class Flap(NamedTuple):
    """One absence, and how long the primary is there afterwards."""

    away_s: float
    there_s: float


async def flap(stage: Stage) -> Ending:
    """Again and again, for the time of the plan in sum."""
    async with PairedAct(stage) as act:
        flaps = drawn(stage.plan.seed, stage.plan.outage_s, act.options.seconds("failover_interval"))
        await act.at_ease()
        for number, (away_s, there_s) in enumerate(flaps, 1):
            stage.primary.proxy.set(Mode.REFUSE)
            stage.primary.is_gone(f"the primary is gone for {away_s:.1f} s")
            await asyncio.sleep(away_s)
            if away_s > act.options.seconds("failover_interval"):
                await act.failed_over()  # On a busy machine that may take longer than planned.
            stage.primary.proxy.set(Mode.PASS)
            if number < len(flaps):
                stage.course.say("the primary is back")
                await asyncio.sleep(there_s)
        stage.primary.is_back("the primary is back for good")
        if not stage.course.ill:
            stage.course.mark("healed")  # The last absence was so short that nobody noticed.
        await act.home()
        await act.calm()
    found = failovers(act.changes)
    told = f"the primary went {len(flaps)} times; failovers: {_words(found)}"
    return act.ending(told, broken=implausible(found, len(flaps)))


def drawn(seed: int, outage_s: float, failover_s: float) -> list[Flap]:
    """The absences of a seed."""
    chance = random.Random(seed)
    short = chance.randint(*SHORT_ONES)
    weights = [chance.random() for _ in range(short)]
    left_s = max(outage_s - failover_s - LONG_S, 0)
    absences = [max(left_s * weight / sum(weights), SHORT_S) for weight in weights]
    absences.insert(chance.randint(0, short), failover_s + LONG_S)
    return [Flap(away_s, chance.uniform(*THERE_S)) for away_s in absences]


def failovers(changes: Iterable[Change]) -> Counter[str]:
    """How often each entity failed over."""
    return Counter(change.scope.path for change in changes if change.after is State.FAILED_OVER)


def implausible(found: Counter[str], absences: int) -> tuple[str, ...]:
    """An entity fails over at most once in an absence; in the long one at least somebody does."""
    if not found:
        return ("nobody failed over",)
    return tuple(
        f"'{path}' failed over {times} times in {absences} absences"
        for path, times in found.items()
        if times > absences
    )


def _words(found: Counter[str]) -> str:
    return ", ".join(f"{path} {times}" for path, times in sorted(found.items())) or "none"
