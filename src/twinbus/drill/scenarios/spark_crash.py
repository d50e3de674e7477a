"""The drill `spark-crash`: as `syphon-crash`, but the backlog is brought home by Spark, whose driver is killed.

The driver, its Java machine and its workers die at once; nothing is recovered from a checkpoint, because there is none:
what is still to be moved is known by the secondary alone.
"""

from __future__ import annotations

from dataclasses import replace

from twinbus.drill.ending import Ending
from twinbus.drill.moving_home import Command, described_for_a_command, killed_again_and_again
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.scenarios.syphon_crash import backlog, crashed
from twinbus.drill.stage import Stage

KILLS = 2
BACKLOG = 900
RATE_LIMIT = 150  # Messages a second, so that there is time to kill it.


async def spark_crash(stage: Stage) -> Ending:
    """An outage, a backlog, and Spark, killed twice."""
    async with PairedAct(stage, replace(OPTIONS, enable_syphon=False)) as act:
        await backlog(stage, act, BACKLOG)
        async with described_for_a_command(stage, act.options, 0.0) as pair:
            words = ["pipeline", "syphon", "--drain", "--pair", str(pair), "--rate-limit"]
            log = stage.directory / "syphon.log"
            command = Command([*words, str(RATE_LIMIT)], log)
            last = Command([*words, str(RATE_LIMIT * 10)], log)
            try:
                lives = await killed_again_and_again(stage, command, KILLS)
                stage.course.say("it is started once more, and left alone")
                await last.start()
                code = await last.ended()
                await act.home()
            finally:
                await command.kill()
                await last.kill()
        await act.calm(1.0)
    ending = crashed(act, lives, "twinbus pipeline syphon")
    broken = () if code == 0 else (f"at last it ended with {code}: {last.said()[-500:]}",)
    return replace(ending, broken=(*ending.broken, *broken))
