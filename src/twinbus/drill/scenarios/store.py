"""The drill `store`: one of the primary's messaging stores is down, and only what lies on it fails over.

The destinations lie on different stores. That those on the others divert nothing is a claim of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from twinbus.client import upkeep
from twinbus.drill.ending import Ending
from twinbus.drill.paired import PairedAct
from twinbus.drill.stage import Stage
from twinbus.pair.backlog.diversion import Diverted


async def store(stage: Stage) -> Ending:
    """Down for the time of the plan; which one, the seed says."""
    paths = [destination.path for destination in stage.destinations]
    async with PairedAct(stage) as act, stage.primary.administered() as administration:
        places = await upkeep.places(administration)
        number = places[paths[stage.plan.seed % len(paths)]][0]
        on_it = [path for path in paths if number in places[path]]
        await act.at_ease()
        before = len(act.diversions)
        await upkeep.take_down(administration, number, "a drill")
        stage.primary.is_gone(f"store {number} of the primary is down, and {', '.join(on_it)} with it")
        await asyncio.sleep(stage.plan.outage_s)
        await act.diverting(on_it, before)
        await upkeep.bring_up(administration, number)
        stage.primary.is_back(f"store {number} is up")
        await act.home()
        await act.calm()
    others = [path for path in paths if path not in on_it]
    return act.ending(broken=strayed(on_it, others, act.diversions[before:]))


def strayed(on_it: list[str], others: list[str], diversions: Iterable[Diverted]) -> tuple[str, ...]:
    """What went otherwise than it should: entities on the store divert, and no other one does."""
    counts = Counter(diverted.path for diverted in diversions for _ in diverted.message_ids)
    broken = [f"all destinations lie on one store: {', '.join(on_it)}"] if not others else []
    for path in (*on_it, *others):
        if path in on_it and not counts[path]:
            broken.append(f"'{path}' lies on the store that was down, and diverted nothing")
        if path in others and counts[path]:
            broken.append(f"'{path}' lies on another store, and diverted {counts[path]} messages")
    return tuple(broken)
