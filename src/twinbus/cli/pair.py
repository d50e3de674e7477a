"""`twinbus pair`: the backlog queues of a pair made, and the pair looked at from outside.

Both are done by `twinbus.pair`; here they are started and shown.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output, Table
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption, described
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean

if TYPE_CHECKING:
    from twinbus.pair.pairing import Paired
    from twinbus.pair.survey import HalfFound, PairFound, QueueFound

pair = typer.Typer(no_args_is_help=True, help="Make the backlog queues of two paired namespaces, and look at the pair.")


@pair.command("create")
@command
async def create(
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    json: JsonOption = False,
) -> None:
    """Make the backlog queues that are missing in the secondary; those that are there stay as they are."""
    from twinbus.pair import ordered_queues, pairing  # The SDK takes half a second, and few commands need it.
    from twinbus.pair.errors import PairingError

    description = described(pair, primary, secondary)
    first, second = description.halves()
    try:
        count = description.options.backlog_queue_count
        paired = await pairing.pair(first, second, count, description.primary.name)
        if description.options.ordered:
            before = await ordered_queues.found(second, paired.primary)
            paired.queues += await ordered_queues.have(second, paired.primary, count)
            paired.created += [queue for queue in paired.queues if "-ordered/" in queue and queue not in before]
    except PairingError as problem:
        raise PromptError(clean(str(problem))) from None
    finally:
        await first.close()
        await second.close()
    output = Output(json)
    if json:
        output.record({**asdict(paired), "existing": _existing(paired)})
    else:
        _tell(output, paired)
    if paired.missing:
        raise typer.Exit(1)


async def show_pair(output: Output, file: Path) -> None:
    """How the pair in a file stands, for people."""
    from twinbus.pair.survey import survey

    _show(output, await survey(described(file, None, None)))


def _existing(paired: Paired) -> list[str]:
    return [queue for queue in paired.queues if queue not in paired.created]


def _tell(output: Output, paired: Paired) -> None:
    for queue in paired.created:
        output.line(f"Created '{clean(queue)}'.")
    existing = _existing(paired)
    if existing:
        one = len(existing) == 1
        output.line(f"{len(existing):,} {'was' if one else 'were'} there already.")
    for queue, differences in paired.differing.items():
        output.remark(f"'{clean(queue)}' is used, and is not as documented: {clean('; '.join(differences))}.")
    for queue, stuck in paired.surplus.items():
        holds = f"; {stuck:,} messages are stuck in it" if stuck else ""
        output.remark(f"'{clean(queue)}' is surplus, and nobody uses it{holds}.")
    for queue, why in paired.missing.items():
        output.remark(f"'{clean(queue)}' could not be made: {clean(why)}")


@pair.command("status")
@command
async def status(
    check: Annotated[bool, typer.Option("--check", help="End with exit code 1 if there is a warning.")] = False,
    entities: Annotated[
        bool,
        typer.Option("--entities", help="Say which entities are missing in one namespace, or differ (replication)."),
    ] = False,
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    json: JsonOption = False,
) -> None:
    """Show how a pair stands: both namespaces, the backlog queues, who is alive, and what needs attention."""
    from twinbus.pair.survey import survey

    description = described(pair, primary, secondary)
    found = await survey(description)
    if entities:
        from twinbus.pair.replication_survey import differences

        found.warnings += await differences(description, found)
    output = Output(json)
    if json:
        output.record(_document(found))
    else:
        _show(output, found)
    if check and found.warnings:
        raise typer.Exit(1)


def _document(found: PairFound) -> dict[str, Any]:
    """For scripts: the clients once, and not again under each namespace."""
    whole = asdict(found)
    for half in ("primary", "secondary"):
        del whole[half]["clients"]
    return whole


def _show(output: Output, found: PairFound) -> None:
    halves = Table(output, ["HALF", "NAMESPACE", "DATACENTER", "ADDRESS", "STATE"])
    halves.rows([_half_row(half) for half in (found.primary, found.secondary)])
    if found.queues is not None:
        output.line()
        queues = Table(output, ["BACKLOG QUEUE", "STATE", "MESSAGES", "DEAD"], numbers=["MESSAGES", "DEAD"])
        queues.rows([_queue_row(queue) for queue in found.queues])
    output.line()
    if found.clients is None:
        output.line("Neither namespace tells which clients are alive.")
    elif not found.clients:
        output.line("No paired client and no syphon is alive.")
    else:
        clients = Table(output, ["ALIVE", "HOST", "PROCESS", "SEEN", "SYPHON", "DIVERTED", "ILL"], numbers=["DIVERTED"])
        clients.rows([_client_row(record) for record in found.clients])
    for warning in found.warnings:
        output.remark(f"warning: {clean(warning)}")


def _half_row(half: HalfFound) -> list[str]:
    state = "reachable" if half.reachable else "not reachable"
    return [half.role, clean(half.name or "-"), clean(half.datacenter or "-"), clean(half.address), state]


def _queue_row(queue: QueueFound) -> list[str]:
    return [clean(queue.name), queue.state, f"{queue.messages:,}", f"{queue.dead:,}"]


def _client_row(record: dict[str, Any]) -> list[str]:
    """What a client says of itself; it may say anything."""
    state = record["state"]
    syphon = state.get("syphon")
    pumped = "-"
    if isinstance(syphon, dict):
        pumped = f"moved {syphon.get('moved')}, dead {syphon.get('dead')}"
        if syphon.get("problem"):
            pumped += f": {syphon['problem']}"
    ill = state.get("ill")
    told = ", ".join(f"{path} {word}" for path, word in ill.items()) if isinstance(ill, dict) else ""
    diverted = str(state.get("diverted", "-"))
    row = [record["kind"], record["host"], str(record["process"]), record["seen_at"], pumped, diverted, told or "-"]
    return [clean(cell) for cell in row]
