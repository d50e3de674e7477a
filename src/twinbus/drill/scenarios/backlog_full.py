"""The drill `backlog-full`: while the primary is away there is no room in one backlog queue, and then in none.

A full queue leaves the rotation and senders notice nothing. When all are full they get an error that says so, and try
again until there is room.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.client import upkeep
from twinbus.client.atom import Administration
from twinbus.drill.acting import until
from twinbus.drill.ending import Ending
from twinbus.drill.paired import PairedAct
from twinbus.drill.stage import Stage
from twinbus.model.disturbance import Disturbance
from twinbus.pair.backlog import queues as backlog

FAULT = Disturbance.STORE_FULL.value
CLEAR = "No backlog queue takes"  # What senders are told.


@dataclass(slots=True)
class Phase:
    """What happened while so much was full."""

    acknowledged: int = 0
    queues: set[str] = field(default_factory=set)  # That took something.
    errors: list[str] = field(default_factory=list)


async def backlog_full(stage: Stage) -> Ending:
    """The time of the plan is shared by four phases: all have room, one has none, none has any, all have it again."""
    async with PairedAct(stage) as act, stage.secondary.administered() as administration:
        queues = [backlog.path(stage.primary.name, index) for index in range(act.options.backlog_queue_count)]
        places = await upkeep.places(administration)
        full = queues[stage.plan.seed % len(queues)]
        await act.at_ease()
        await stage.primary.go_away()
        await act.failed_over()
        before = await _phase(stage, act)
        await _fill(administration, places[full])
        stage.course.say(f"'{full}' is full")
        one = await _phase(stage, act)
        await _fill(administration, sorted({place for queue in queues for place in places[queue]}))
        stage.course.say("all backlog queues are full")
        every = await _phase(stage, act, lambda: stage.course.failed)
        await upkeep.lift_faults(administration, FAULT)
        stage.course.say("there is room again")
        after = await _phase(stage, act)
        act.traffic.go_on_sending()
        await stage.primary.come_back()
        await act.home()
        await act.calm()
    apart = len({places[queue][0] for queue in queues}) == len(queues)
    return act.ending(
        f"while all were full, senders were refused {len(every.errors)} times",
        broken=(*(() if apart else ("the backlog queues share stores",)), *untrue(full, before, one, every, after)),
    )


def untrue(full: str, before: Phase, one: Phase, every: Phase, after: Phase) -> tuple[str, ...]:
    """Which of the claims about the phases do not hold."""
    unclear = [text for text in every.errors if CLEAR not in text]
    claims = {
        "nothing was diverted before": not before.acknowledged,
        "nothing was diverted while one queue was full": not one.acknowledged,
        f"'{full}' took messages while it was full": full in one.queues,
        f"senders were told of one queue that was full: {one.errors[:1]}": bool(one.errors),
        f"{every.acknowledged} messages were acknowledged while all queues were full": bool(every.acknowledged),
        "senders were not told that all queues were full": not every.errors,
        f"senders were told something else: {unclear[:1]}": bool(unclear),
        "nothing was diverted when there was room again": not after.acknowledged,
    }
    return tuple(words for words, is_so in claims.items() if is_so)


async def _phase(stage: Stage, act: PairedAct, outcomes: Callable[[], int] | None = None) -> Phase:
    """Let a quarter of the time pass, and more where nothing has an outcome yet.

    Sends are held when it ends, so that each belongs to one phase.
    """
    outcomes = outcomes or (lambda: len(stage.course.acknowledged))
    had = outcomes()
    act.traffic.go_on_sending()
    began, acknowledged, diversions = time.time(), len(stage.course.acknowledged), len(act.diversions)
    await asyncio.sleep(stage.plan.outage_s / 4)
    await until(lambda: outcomes() > had)
    await act.traffic.hold_sending()
    return Phase(
        len(stage.course.acknowledged) - acknowledged,
        {diverted.queue for diverted in act.diversions[diversions:]},
        list(errors_since(stage.directory / "sent.jsonl", began)),
    )


def errors_since(log: Path, began: float) -> Iterable[str]:
    """What senders were told since then."""
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "failed" in entry and entry["at"] >= began:
            yield entry["why"]


async def _fill(administration: Administration, stores: Iterable[int]) -> None:
    for number in stores:
        await upkeep.begin_fault(administration, FAULT, store=number)
