"""The drill `replacement`: the primary goes for good, and `twinbus pair replace` moves the pair to another namespace.

Receivers have worked on everything before it goes, so that whatever is missing in the end was lost by the move. One
client is not restarted: it diverts to the old backlog until the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from twinbus.drill.acting import until
from twinbus.drill.brokers import Broker
from twinbus.drill.ending import Ending
from twinbus.drill.moving_home import Command
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.scenarios.disaster import LISTED_MAX, backlog_of
from twinbus.drill.stage import Stage

NEW = "replacement"
DATACENTER = "east"
MOVED_S = 1.0


async def replacement(stage: Stage) -> Ending:
    """Lost, moved, and everything accounted for."""
    course = stage.course
    broker = Broker(NEW, stage.directory, "", "--datacenter", DATACENTER)
    try:
        async with PairedAct(stage, replace(OPTIONS, enable_syphon=False)) as act:
            await asyncio.gather(act.at_ease(), broker.start())
            file, entities = _described(stage, act), await _exported(stage)
            await _lose(stage, act)
            await act.failed_over()
            await asyncio.sleep(stage.plan.outage_s)
            before = set(course.diverted)
            moving = Command(["pair", "replace", "--pair", str(file), "--yes"], stage.directory / "replace.log")
            await moving.run("--with", broker.connection_string, "--entities", str(entities))
            left = await backlog_of(stage, act) & before
            course.mark("back")
            course.say(f"the pair is moved; {len(before):,} messages had been diverted")
            await act.restarted(file, "restarted-")
            course.say("a client is restarted with the new description, and one is not")
            await act.flowing()
            await act.calm(MOVED_S)
            await act.traffic.enough()
            code = await moving.run()  # Once more, for what came late.
            if await until(lambda: course.diverted <= course.received.keys()):
                course.mark("drained")
            late = course.diverted - before
            course.say(f"{len(late):,} messages were diverted later, to the old backlog")
            at_last = await backlog_of(stage, act)
    finally:
        await broker.stop()
    return act.ending(
        f"moved to the replacement: {len(before)} messages that had been diverted, and {len(late)} that came late",
        broken=untrue(before, late, left, at_last, moving.said() if code else ""),
    )


def untrue(
    before: Collection[str], late: Collection[str], left: Collection[str], at_last: Collection[str], said: str
) -> tuple[str, ...]:
    """Which of the claims do not hold; `said` is what a command that should have succeeded said."""
    claims = {
        "nothing had been diverted before the move": not before,
        "nothing came late, so that a client that was not restarted was not rehearsed": not late,
        f"left behind by the move: {_ids(left)}": bool(left),
        f"in the old backlog at last: {_ids(at_last)}": bool(at_last),
        f"the move, run once more, did not end well: {said}": bool(said),
    }
    return tuple(words for words, is_so in claims.items() if is_so)


def _ids(messages: Collection[str]) -> str:
    return ", ".join(sorted(messages)[:LISTED_MAX])


def _described(stage: Stage, act: PairedAct) -> Path:
    """The file that describes the pair, as the clients of the drill reach it."""
    lines = []
    for site in (stage.primary, stage.secondary):
        lines += [f"[{site.name}]", f'connection_string = "{site.wired.connection_string}"', f'name = "{site.name}"']
    options = act.options
    lines += ["[options]", f"backlog_queue_count = {options.backlog_queue_count}", "enable_syphon = true"]
    lines += ['state_directory = ""', f"attempt_timeout = {options.seconds('attempt_timeout')}"]
    path = stage.directory / "pair.toml"
    path.write_text("\n".join([*lines, ""]))
    path.chmod(0o600)
    return path


async def _exported(stage: Stage) -> Path:
    """What a careful operator has: the entities of the primary, written down while it was there."""
    path = stage.directory / "entities.json"
    target = stage.primary.direct.connection_string
    await Command(["entity", "list", "--rules", "--json", "--connection-string", target], path).run()
    return path


async def _lose(stage: Stage, act: PairedAct) -> None:
    """Senders hold for an instant and receivers finish, and the primary is gone when they go on."""
    await act.traffic.hold_sending()
    await until(lambda: not act.traffic.missing())
    await stage.primary.go_away()
    act.traffic.go_on_sending()
