"""The drill `disaster`: the primary goes for good, and what only it held is lost, by name, and nothing else.

Receivers rest before it goes, so that there is something to lose. It may come back after all, with its old disk or
with an empty one (`Plan.returns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from twinbus.drill.acting import until
from twinbus.drill.ending import Ending
from twinbus.drill.order import overtaken
from twinbus.drill.paired import PairedAct
from twinbus.drill.stage import Stage
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Toward
from twinbus.pair.backlog import queues as backlog

UNREAD_S = 2.0  # Messages are sent for so long, and nobody receives them.
UNSEEN_S = 0.3  # Between the look at the primary and its end.
LISTED_MAX = 1000


async def disaster(stage: Stage) -> Ending:
    """Gone, and with it what nobody else has; `returns` says what comes back later."""
    returns = stage.plan.returns
    async with PairedAct(stage) as act:
        await act.at_ease()
        await _leave_unread(stage, act)
        worked_on, broken = await _look(stage, act)
        await asyncio.sleep(UNSEEN_S)
        only_there = await _lose(stage, act)
        await asyncio.sleep(stage.plan.outage_s)
        await act.failed_over()
        if returns is None:
            broken += await _look_at_backlog(stage, act, only_there)
        else:
            if returns == "empty" and stage.primary.broker is not None:
                stage.primary.broker.lose_disk()
            await stage.primary.come_back()
            await act.home()
            await act.calm()
        act.condemned = frozenset() if returns == "old" else only_there
    if not only_there:
        broken += ("nothing was only in the primary, so that nothing was at stake",)
    if returns == "old":
        broken += unseen(worked_on, act.suppressed())
    return act.ending(*_told(stage, only_there), broken=broken)


async def _leave_unread(stage: Stage, act: PairedAct) -> None:
    """Receivers rest, while messages arrive. Of the last that was worked on the primary is not told, and has it yet."""
    act.traffic.pause_receiving()
    stage.primary.proxy.cut(Says.DISPOSITION, Toward.BROKER)
    await act.traffic.stilled()
    stage.course.say("receivers rest")
    await asyncio.sleep(UNREAD_S)
    await until(lambda: bool(act.traffic.missing() - stage.course.diverted))


async def _look(stage: Stage, act: PairedAct) -> tuple[frozenset[str], tuple[str, ...]]:
    """What the primary holds that was worked on; and what it should hold and does not, or the other way round."""
    await act.traffic.hold_sending()
    course = stage.course
    paths = [
        place.path if place.subscription is None else f"{place.path}/Subscriptions/{place.subscription}"
        for place in stage.destinations
    ]
    found = await stage.primary.browse(*paths)
    held = {message for ids in found.values() for message in ids}
    worked_on = frozenset(held & course.received.keys())
    expected = course.acknowledged - course.received.keys() - course.diverted
    broken = missing_or_unknown("the primary", held, expected, course.attempted)
    act.traffic.go_on_sending()
    return worked_on, broken


async def _lose(stage: Stage, act: PairedAct) -> frozenset[str]:
    """Take the primary away under its senders; what only it had."""
    course = stage.course
    await stage.primary.go_away()
    # What was under way gets its outcome. After that, nobody can be told any more that the primary keeps something.
    await act.traffic.hold_sending()
    # Nor can anything leave the backlog any more.
    only_there = frozenset(course.acknowledged - course.received.keys() - await backlog_of(stage, act))
    course.say(f"{len(only_there)} messages that were acknowledged were only there")
    act.traffic.go_on_sending()
    act.traffic.go_on_receiving()
    return only_there


async def _look_at_backlog(stage: Stage, act: PairedAct, only_there: frozenset[str]) -> tuple[str, ...]:
    """What was diverted must be found there, for the day on which there is a primary again."""
    await act.traffic.enough()
    act.kept = await backlog_of(stage, act)
    course = stage.course
    course.say(f"the backlog keeps {len(act.kept)} messages")
    return missing_or_unknown(
        "the backlog", act.kept, course.diverted - course.received.keys() - only_there, course.attempted
    )


async def backlog_of(stage: Stage, act: PairedAct) -> frozenset[str]:
    """The ids of what is in the backlog queues of the primary."""
    queues = [backlog.path(stage.primary.name, index) for index in range(act.options.backlog_queue_count)]
    found = await stage.secondary.browse(*queues)
    return frozenset(message for ids in found.values() for message in ids)


def missing_or_unknown(
    where: str, found: Collection[str], expected: Iterable[str], attempted: Collection[str]
) -> tuple[str, ...]:
    """What is not in a place where it must be, and what is there that nobody sent, in words."""
    missing = sorted(set(expected) - set(found))
    unknown = sorted(set(found) - set(attempted))
    return tuple(
        f"{where} {says}: {', '.join(ids)}"
        for says, ids in (("does not have what it should", missing), ("has what nobody sent", unknown))
        if ids
    )


def unseen(worked_on: frozenset[str], suppressed: Collection[str]) -> tuple[str, ...]:
    """Each that was worked on and is still on the old disk comes again, and only the ledger keeps it from more work."""
    silent = sorted(worked_on - set(suppressed))
    return (f"worked on before, on the old disk, and not seen again: {', '.join(silent)}",) if silent else ()


def _told(stage: Stage, only_there: frozenset[str]) -> list[str]:
    ids = ", ".join(sorted(only_there)[:LISTED_MAX])
    if stage.plan.returns != "old":
        return [f"lost with the primary, since only it held them ({len(only_there)}): {ids}"]
    late = overtaken(stage.course.received)
    return [
        f"came back with the old disk ({len(only_there)}): {ids}",
        f"arrived after younger ones: {len(late)}",
    ]
