"""The drill `syphon-crash`: the process that brings the backlog home is killed in the midst, again and again.

A syphon that dies between sending a message and completing it leaves it in the backlog, and the next one sends it
again. No destination detects duplicates: that nothing is worked on twice is the ledger's doing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from twinbus.drill.acting import until
from twinbus.drill.ending import Ending
from twinbus.drill.moving_home import Command, Killed, described_for_a_command, killed_again_and_again
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.stage import Stage

KILLS = 4
BACKLOG = 800  # Messages beside the steady flow.
LATENCY_S = 0.04
BATCH = 10  # Small lots and a slow wire, so that there is time to kill it.


async def syphon_crash(stage: Stage) -> Ending:
    """An outage, a backlog, and a syphon that does not live long."""
    async with PairedAct(stage, replace(OPTIONS, enable_syphon=False)) as act:
        await backlog(stage, act, BACKLOG)
        async with described_for_a_command(stage, act.options, LATENCY_S, syphon_batch=BATCH) as pair:
            command = Command(["syphon", "--pair", str(pair)], stage.directory / "syphon.log")
            try:
                lives = await killed_again_and_again(stage, command, KILLS)
                await command.start()
                stage.course.say("it is started once more, and left alone")
                await act.home()
            finally:
                await command.stop()
        await act.calm(1.0)
    return crashed(act, lives, "twinbus syphon")


async def backlog(stage: Stage, act: PairedAct, count: int) -> None:
    """An outage that leaves so many messages and more in the backlog."""
    await act.calm()
    await stage.primary.go_away()
    await until(stage.all_failed_over)
    await act.traffic.flood(act.client, count)
    await asyncio.sleep(max(stage.plan.outage_s - (stage.course.now_s() - stage.course.marks["gone"]), 0.0))
    await stage.primary.come_back()
    await until(lambda: not stage.course.ill)
    stage.course.say(f"{len(stage.course.diverted):,} messages are in the backlog")


def crashed(act: PairedAct, lives: list[Killed], name: str) -> Ending:
    """The ending; a command that was not caught in the midst has not been rehearsed."""
    told = ", ".join(f"after {life.moved:,}" for life in lives)
    broken = tuple(
        f"{name} was not caught in the midst: {life.moved:,} moved, {life.left:,} left"
        for life in lives
        if not life.in_the_midst
    )
    return act.ending(f"{name} was killed {len(lives)} times in the midst: {told} messages", broken=broken)
