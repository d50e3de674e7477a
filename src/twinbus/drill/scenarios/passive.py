"""The drill `passive`: a message goes to the active namespace, to the other one only while the active one is down.

The roles change only when the other one has taken a message: for a while neither does, and they stay. What was shut in
the dead namespace arrives when that is back, later than what followed it. Without a fault each message is one send.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp

from twinbus.drill.acting import until
from twinbus.drill.ending import Ending, untrue
from twinbus.drill.replicated import ReplicatedAct
from twinbus.drill.stage import PRIMARY, Site, Stage
from twinbus.faults.proxy import Mode

UNREAD_S = 0.7  # Nobody reads for so long before the primary dies.
NEITHER_S = 1.5  # Neither namespace takes anything for so long.


class Billed(NamedTuple):
    """The sends before anything failed: how many they were at least and at most, and what the namespaces counted."""

    least: int
    most: int
    at_the_primary: int
    at_the_backup: int


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen beside the verdict."""

    billed: Billed
    refused: int  # Sends that failed while neither namespace took anything.
    too_early: int  # Roles that changed while neither namespace took anything.
    stayed: list[str]  # Entities whose roles never changed.
    shut_in: int  # Messages in the dead primary.
    arrived: int  # Of these, after its return.

    def broken(self) -> tuple[str, ...]:
        """The claims that do not hold."""
        least, most, sends, at_the_backup = self.billed
        return untrue(
            {
                "nothing was sent before something failed": most > 0,
                f"without a fault {least} to {most} sends were billed as {sends}": least <= sends <= most,
                f"without a fault the backup billed {at_the_backup} sends": at_the_backup == 0,
                "no send failed while neither namespace took anything": self.refused > 0,
                f"{self.too_early} roles changed though nobody had taken anything": self.too_early == 0,
                f"not at the secondary: {', '.join(self.stayed)}": not self.stayed,
                "nothing was shut in the dead primary, so that nothing was rehearsed": self.shut_in > 0,
                f"{self.shut_in - self.arrived} that were shut in did not arrive": self.arrived == self.shut_in,
            }
        )


async def passive(stage: Stage) -> Ending:
    """The active namespace is killed, at first together with the way to the other one."""
    course = stage.course
    async with ReplicatedAct(stage, "passive") as act:
        await act.calm()
        await act.flowing()
        least = len(course.acknowledged)
        sends = await _billed_sends(stage.primary)
        most, at_the_backup = len(course.attempted), await _billed_sends(stage.secondary)
        act.traffic.pause_receiving()
        await asyncio.sleep(UNREAD_S)
        await until(lambda: bool(act.of(PRIMARY) - course.received.keys()))
        stage.secondary.proxy.set(Mode.REFUSE)
        await stage.primary.go_away()
        await asyncio.sleep(NEITHER_S)
        await until(lambda: course.failed > 0)
        too_early, refused = len(act.swaps), course.failed
        course.say("the way to the secondary is open again")
        stage.secondary.proxy.set(Mode.PASS)
        act.traffic.go_on_receiving()
        await until(lambda: len({swap.path for swap in act.swaps}) == len(stage.destinations))
        await asyncio.sleep(stage.plan.outage_s)
        shut_in = act.of(PRIMARY) - course.received.keys()
        course.say(f"{len(shut_in):,} messages are shut in the dead primary")
        stayed = {where.path for where in stage.destinations} - {swap.path for swap in act.swaps}
        await stage.primary.come_back()
        await act.calm()
    arrived = len(shut_in & course.received.keys())
    billed = Billed(least, most, sends, at_the_backup)
    found = Found(billed, refused, too_early, sorted(stayed), len(shut_in), arrived)
    return act.ending(
        f"without a fault: {sends:,} sends billed at the primary, {at_the_backup:,} at the backup",
        f"shut in the dead primary and received after its return {arrived:,}",
        f"while neither namespace took anything, {refused:,} sends failed and {too_early} roles changed",
        broken=found.broken(),
    )


async def _billed_sends(site: Site) -> int:
    """What a namespace's own counter says."""
    assert site.broker is not None
    async with aiohttp.ClientSession() as session, session.get(f"{site.broker.http_address}/metrics") as answer:
        page = await answer.text()
    found = re.search(r'^twinbus_billable_operations_total\{[^}]*kind="send"[^}]*\} ([\d.e+]+)$', page, re.MULTILINE)
    if found is None:
        raise ValueError(f"the {site.name} does not tell what it bills")
    return int(float(found[1]))
