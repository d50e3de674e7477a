"""The drill `outage`: the primary is killed under its senders, comes back, and everything reaches its destination.

What failed is sent again under its id, and no destination detects duplicates: that nothing is worked on twice is the
ledger's doing.
"""

from __future__ import annotations

import asyncio

from twinbus.drill.ending import Ending
from twinbus.drill.paired import PairedAct
from twinbus.drill.scenarios.long_outage import long_outage
from twinbus.drill.stage import Stage
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Toward

LOST_ANSWER_S = 0.5  # Between two answers that are lost.


async def outage(stage: Stage) -> Ending:
    """Away for the time of the plan, and back; on brokers of its own, days pass quickly."""
    if stage.plan.moves_clocks and stage.primary.broker is not None:
        return await long_outage(stage)
    async with PairedAct(stage) as act:
        await act.at_ease()
        for _ in range(stage.plan.lost_answers):
            await asyncio.sleep(LOST_ANSWER_S)
            stage.primary.proxy.cut(Says.DISPOSITION, Toward.CLIENT)
        if stage.plan.lost_answers:
            await act.at_ease()
        await stage.primary.go_away()
        await asyncio.sleep(stage.plan.outage_s)
        if stage.plan.outage_s > act.options.seconds("failover_interval"):
            await act.failed_over()  # On a busy machine that may take longer than planned.
        await stage.primary.come_back()
        await act.home()
        await act.calm()
    return act.ending()
