"""The drill `blackhole`: connections to the primary stay and new ones are taken, but nothing answers, until it heals.

Nothing tells a sender that the primary is gone but time. What was swallowed arrives when it heals, beside the copies
that were diverted meanwhile: that none of it is worked on twice is the ledger's doing.
"""

from __future__ import annotations

from dataclasses import replace

from twinbus.drill.ending import Ending
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.stage import Stage
from twinbus.faults.proxy import Mode

ATTEMPT_S = 2.5  # Nobody waits longer for an answer.


async def blackhole(stage: Stage) -> Ending:
    """Silent for the time of the plan."""
    async with PairedAct(stage, replace(OPTIONS, attempt_timeout=ATTEMPT_S)) as act:
        await act.at_ease()
        stage.primary.proxy.set(Mode.BLACKHOLE)
        stage.primary.is_gone("the primary answers nothing any more")
        await act.silence()
        stage.primary.proxy.set(Mode.PASS)
        stage.primary.is_back("the primary answers again")
        await act.home()
        await act.calm()
    return act.ending(broken=() if stage.course.diverted else ("no message was diverted",))
