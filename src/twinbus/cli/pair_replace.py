"""`twinbus pair replace`: a pair whose primary is lost for good, moved to another namespace.

The move is made by `twinbus.pair.replacement`; here it is described, agreed to, watched and judged.
"""

from __future__ import annotations

import asyncio
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli import interruption
from twinbus.cli.connection import JsonOption
from twinbus.cli.entity import described_in
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.pairing import described
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean, counted

if TYPE_CHECKING:
    from twinbus.pair.description import NamespaceDescription
    from twinbus.pair.replacement.plan import Described
    from twinbus.pair.replacement.replacing import Found, Replacement
    from twinbus.pair.syphon.home import Progress

LOOK_S = 0.2
VARIABLES = ("TWINBUS_PRIMARY", "TWINBUS_SECONDARY")

FileOption = Annotated[
    Path,
    typer.Option("--pair", envvar="TWINBUS_PAIR", help="The pair, by its TOML description.", show_default=False),
]
WithOption = Annotated[
    str | None,
    typer.Option(
        "--with",
        envvar="TWINBUS_REPLACEMENT",
        show_default=False,
        help="The namespace that takes the place, by connection string. Without it, an earlier move goes on.",
    ),
]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for."""

    file: Path
    new: NamespaceDescription | None
    table: dict[str, Any]  # The new namespace as the file describes it.
    swap: bool
    force: bool
    yes: bool
    dry_run: bool


@command
async def replace(
    pair: FileOption,
    new: WithOption = None,
    http: Annotated[
        str | None, typer.Option("--with-http", help="Where that namespace is administered, if not at the usual place.")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--with-ca", help="Authorities to trust for that namespace.")] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="The secondary becomes the primary, and that namespace the secondary.")
    ] = False,
    entities: Annotated[
        Path | None,
        typer.Option("--entities", help="Entities of the lost primary, as `entity list --rules --json` prints them."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if the primary still answers: two primaries will be alive.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Move a pair whose primary is lost for good: queues made, the description rewritten, the backlog drained."""
    with interruption.at_once():  # The SDK takes half a second, and few commands need it.
        from twinbus.pair.description import NamespaceDescription
        from twinbus.pair.errors import ReplacementError
        from twinbus.pair.replacement.plan import Described
        from twinbus.pair.replacement.replacing import Replacement

    _refuse_environment(pair)
    table: dict[str, Any] = {"connection_string": new}
    if http is not None:
        table["http"] = http
    if ca is not None:
        table["ca"] = os.path.relpath(ca, pair.parent)
    wanted = [Described(*each) for each in described_in(entities)] if entities else []
    description = described(pair, None, None)
    try:
        place = None if new is None else NamespaceDescription(new, http=http, ca=ca)
        request = Request(pair, place, table, swap, force, yes, dry_run)
        async with Replacement(description, place, swap=swap) as run:
            await _move(run, request, wanted, Output(json))
    except ReplacementError as problem:
        raise PromptError(clean(str(problem))) from None
    except ValueError as problem:
        raise PromptError(f"--with: {clean(str(problem))}") from None


def _refuse_environment(file: Path) -> None:
    """What the environment says goes before the file, so that a new file would change nothing."""
    given = [name for name in os.environ if name.startswith(VARIABLES) and os.environ[name]]
    if given:
        raise PromptError(
            f"The pair is described by the environment ({', '.join(sorted(given))}), which goes before '{file}', and"
            " which no command can change. Unset it, describe the pair in the file, and start again."
        )


async def _move(run: Replacement, request: Request, wanted: list[Described], output: Output) -> None:
    with progress_bar("looking into the backlog", None) as bar:
        found = await run.look(wanted, force=request.force, on_page=lambda count: bar.advance(bar.task_ids[0], count))
    summary = document(run, found)
    if not output.as_json:
        _show(output, run, request, found)
    if request.dry_run:
        if output.as_json:
            output.record(summary)
        return
    confirm(f"Move the pair in '{request.file}'?", request.yes)
    await run.make(found)
    summary["old_description"] = None if run.goes_on else str(_write(request, found, output))
    done = await _drained(run, found)
    remaining = await run.remaining(found)
    summary |= {"moved": dict(done.moved), "dead": done.dead, "left": sum(remaining.values()), "problem": done.problem}
    if output.as_json:
        output.record(summary)
    _judge(output, found, done, remaining)


def document(run: Replacement, found: Found) -> dict[str, Any]:
    """For scripts."""
    plan = found.plan
    return {
        "goes_on": run.goes_on,
        "primary": found.primary.name,
        "replaced": [each._asdict() for each in found.replaced],
        "create": [each.path for each in plan.create],
        "create_as_plain_queue": {each.name: {"requires_session": each.requires_session} for each in plan.guess},
        "stay": plan.stay,
        "backlog_queues": found.seen.queues,
        "waiting": {each.path: each.count for each in found.seen.waiting.values()},
        "for_others": found.for_others,
        "remarks": plan.remarks,
    }


def _show(output: Output, run: Replacement, request: Request, found: Found) -> None:
    """What is there, and what would be done, in words."""
    seen, plan, would = found.seen, found.plan, "would " if request.dry_run else "will "
    host, port = run.home.address
    lost = found.replaced[-1]
    names = ", ".join(clean(str(each)) for each in seen.waiting.values())
    output.line(f"The lost primary is '{clean(lost.name)}' at {clean(lost.reached_at)}.")
    output.line(f"{counted(seen.count)} in {counted(seen.queues, 'backlog queue')}{f': {names}' if names else ''}.")
    new = f"'{clean(found.primary.name)}' at {host}:{port}"
    output.line(f"{new} is the primary now" if run.goes_on else f"{would}make {new} the primary")
    for each in plan.create:
        output.line(f"{would}create '{clean(each.path)}' as described")
    for queue in plan.guess:
        sessions = " with sessions" if queue.requires_session else ""
        output.line(f"{would}create the plain queue '{clean(queue.name)}'{sessions}")
    for path in plan.stay:
        output.line(f"{would}leave '{clean(path)}' as it is")
    if not run.goes_on:
        output.line(f"{would}rewrite '{request.file}', and leave the old one next to it")
    for remark in plan.remarks:
        output.remark(clean(remark))
    for namespace, count in found.for_others.items():
        output.remark(f"{counted(count)} meant for another namespace ({clean(namespace)}) stay in the backlog.")


def _write(request: Request, found: Found, output: Output) -> Path:
    """Before the backlog is drained: clients that start from now on use the new primary."""
    from twinbus.pair import replaced
    from twinbus.pair.replacement import file

    before: Mapping[str, Any] = tomllib.loads(request.file.read_text(encoding="utf-8"))
    after = file.moved(before, request.table, replaced.to_text(found.replaced), swap=request.swap)
    try:
        old = file.write(request.file, file.to_toml(after))
    except OSError as problem:
        raise PromptError(f"'{request.file}' cannot be rewritten: {problem.strerror}.") from None
    output.remark(f"'{request.file}' describes the new pair; the old description is '{old}'.")
    role = "secondary" if request.swap else "primary"
    if "connection_string" not in before.get(role, {}):
        output.remark(f"The new {role}'s connection string stands in the file itself: move it to where yours are.")
    output.remark("Restart clients and syphons with the new description: those that run divert to the old backlog.")
    return old


async def _drained(run: Replacement, found: Found) -> Progress:
    expected = found.seen.count - sum(found.for_others.values())
    draining = asyncio.create_task(run.drain(found))
    try:
        with progress_bar("bringing the backlog home", expected) as bar:
            while not draining.done():
                await asyncio.wait([draining], timeout=LOOK_S)
                bar.update(bar.task_ids[0], completed=run.progress.ended)
        return await draining
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)


def _judge(output: Output, found: Found, done: Progress, remaining: dict[str, int]) -> None:
    """It is done when nothing is left and nothing died."""
    each = ", ".join(f"{clean(path)} {count:,}" for path, count in sorted(done.moved.items()))
    if not output.as_json:
        output.line(f"moved {done.moved.total():,}{f' ({each})' if each else ''}, dead {done.dead:,}")
    for (queue, said), count in done.dead_letters.items():
        output.remark(f"{counted(count)} dead in '{clean(queue)}': {clean(said)}")
    problems = []
    if done.dead:
        problems.append(f"{counted(done.dead)} went to the dead letters of the backlog queues: see `twinbus dlq list`.")
    left = sum(remaining.values()) - sum(found.for_others.values())
    if left > 0:
        why = clean(done.problem) if done.problem else "clients with the old description divert, or a syphon has them"
        problems.append(
            f"{counted(left)} left in the old backlog: {why}."
            " Restart the clients, and run the command again without --with."
        )
    if problems:
        raise PromptError(" ".join(problems))
