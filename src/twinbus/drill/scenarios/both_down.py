"""The drill `both-down`: both namespaces are gone, senders go on by their outbox, and everything arrives in the end.

The pair keeps the order of sessions. That the outbox took messages and is empty in the end, and that no session's order
is lost, are claims of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from twinbus.drill.acting import until
from twinbus.drill.ending import Ending
from twinbus.drill.order import overtaken
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.stage import Stage

APART_S = 1.5  # Between the failover and the end of the secondary, and between the returns of the two.
EMPTY_S = 60.0


async def both_down(stage: Stage) -> Ending:
    """The primary goes first and the secondary then; which one comes back first, the seed says."""
    file = stage.directory / "outbox.db"
    async with PairedAct(stage, replace(OPTIONS, ordered=True), outbox=file) as act:
        course = stage.course
        assert act.client.outbox is not None
        await act.at_ease()
        await stage.primary.go_away()
        await act.failed_over()
        await asyncio.sleep(APART_S)
        await stage.secondary.go_away()
        await act.traffic.hold_sending()  # What it has taken before is told to its senders.
        before = set(course.acknowledged)
        act.traffic.go_on_sending()
        await asyncio.sleep(stage.plan.outage_s)
        await until(lambda: course.acknowledged > before)
        meanwhile = course.acknowledged - before
        course.say(f"{len(meanwhile)} messages were acknowledged while both were gone")
        first, second = (stage.primary, stage.secondary)[:: -1 if stage.plan.seed % 2 else 1]
        await first.come_back()
        await asyncio.sleep(APART_S)
        await second.come_back()
        is_empty = await act.client.outbox.wait_until_empty_async(EMPTY_S)
        await act.home()
        await act.calm()
    assert act.traffic.session_of
    late = overtaken(course.received, act.traffic.session_of)
    return act.ending(
        f"queued in the outbox: {len(act.queued)}, of them {len(act.queued & course.diverted)} came by the backlog",
        broken=untrue(meanwhile, act.queued, is_empty, late),
    )


def untrue(meanwhile: set[str], queued: set[str], is_empty: bool, late: Collection[str]) -> tuple[str, ...]:
    """Which of the claims do not hold; `meanwhile` was acknowledged when there was nothing but the outbox."""
    elsewhere = sorted(meanwhile - queued)
    claims = {
        "nothing was acknowledged while both namespaces were gone": not meanwhile,
        f"acknowledged while both were gone, and not in the outbox: {', '.join(elsewhere)}": bool(elsewhere),
        "the outbox did not become empty": not is_empty,
        f"arrived after younger ones of their sessions: {', '.join(sorted(late))}": bool(late),
    }
    return tuple(words for words, is_so in claims.items() if is_so)
