"""The drill `active`: every message is sent to both namespaces, and one of them is killed and comes back.

Senders notice nothing, receivers go on with the other copies, and of everything that is there twice the ledger lets one
through. Nothing is diverted, because there is no backlog.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from twinbus.drill.acting import until
from twinbus.drill.ending import Ending, untrue
from twinbus.drill.replicated import ReplicatedAct
from twinbus.drill.stage import PRIMARY, SECONDARY, Stage


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen beside the verdict."""

    failed: int  # Sends.
    meanwhile: int  # Received while the primary was away.
    second: int  # Messages that both namespaces took.
    suppressed: int  # Copies.
    healed: bool  # Both took a message after the primary's return.

    def broken(self) -> tuple[str, ...]:
        """The claims that do not hold."""
        left = self.second - self.suppressed
        return untrue(
            {
                f"{self.failed} sends failed, though one namespace was always there": self.failed == 0,
                "nothing was received while the primary was away": self.meanwhile > 0,
                "no message was taken by both namespaces, so that nothing was rehearsed": self.second > 0,
                "after its return the primary got no copy": self.healed,
                # A copy that was worked on in vain, because its completion was lost, is suppressed too.
                f"{left} of {self.second} second copies were not suppressed": left <= 0,
            }
        )


async def active(stage: Stage) -> Ending:
    """Away for the time of the plan, and back."""
    course = stage.course
    async with ReplicatedAct(stage, "active") as act:
        await act.calm()
        await act.flowing()
        await stage.primary.go_away()
        await asyncio.sleep(stage.plan.outage_s)
        await until(lambda: bool(act.of(SECONDARY) & course.received.keys()))
        meanwhile = act.of(SECONDARY) & course.received.keys()
        await stage.primary.come_back()
        await act.calm()
        await until(lambda: "healed" in course.marks)
        await act.traffic.enough()
        await until(lambda: act.ledger.metrics()["suppressed"] >= len(act.both()))
    found = Found(
        failed=course.failed,
        meanwhile=len(meanwhile),
        second=len(act.both()),
        suppressed=act.ledger.metrics()["suppressed"],
        healed="healed" in course.marks,
    )
    return act.ending(
        f"taken by both {found.second:,}, by the secondary alone {len(act.of(SECONDARY)):,},"
        f" by the primary alone {len(act.of(PRIMARY)):,}",
        f"received while the primary was away {found.meanwhile:,}; second copies suppressed {found.suppressed:,}",
        broken=found.broken(),
    )
