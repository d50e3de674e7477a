"""`twinbus pair`: the backlog queues of a pair made, and the pair looked at from outside.

Both are done by `twinbus.pair`; here they are started and shown. How a pair is moved is in `pair_replace`.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output, Table
from twinbus.cli.pair_replace import replace
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption, described
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean, counted

if TYPE_CHECKING:
    from twinbus.pair.backlog.making import Paired
    from twinbus.pair.survey import NamespaceFound, PairFound, QueueFound

STRANDED = 3  # The exit code where messages are that nobody moves.

pair = typer.Typer(no_args_is_help=True, help="Make the backlog queues of two paired namespaces, and look at the pair.")
pair.command("replace")(replace)


@pair.command("create")
@command
async def create(
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    json: JsonOption = False,
) -> None:
    """Make the backlog queues that are missing in the secondary; those that are there stay as they are."""
    from twinbus.pair.backlog import making  # The SDK takes half a second, and few commands need it.
    from twinbus.pair.errors import PairingError
    from twinbus.pair.order import queues as ordered_queues

    description = described(pair, primary, secondary)
    first, second = description.namespaces()
    try:
        count = description.options.backlog_queue_count
        paired = await making.pair(first, second, count, description.primary.name, must_make=True)
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


async def look_at(file: Path) -> PairFound:
    """How the pair in a file stands."""
    from twinbus.pair.survey import survey

    return await survey(described(file, None, None))


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
    for queue, count in paired.extra.items():
        holds = f"; it has {counted(count)}" if count else ""
        output.remark(f"'{clean(queue)}' is extra: clients leave it alone, and a syphon empties it{holds}.")
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
        from twinbus.pair.replication.survey import differences

        found.warnings += await differences(description, found)
    output = Output(json)
    if json:
        output.record(document(found))
    else:
        show(output, found)
    if found.stranded:
        raise typer.Exit(STRANDED)
    if check and found.warnings:
        raise typer.Exit(1)


def document(found: PairFound) -> dict[str, Any]:
    """For scripts: the clients once, and not again under each namespace."""
    whole = asdict(found)
    for namespace in ("primary", "secondary"):
        del whole[namespace]["clients"]
    return whole


def show(output: Output, found: PairFound) -> None:
    """For people."""
    namespaces = Table(output, ["ROLE", "NAMESPACE", "DATACENTER", "ADDRESS", "STATE"])
    namespaces.rows([_half_row(namespace) for namespace in (found.primary, found.secondary)])
    if found.queues is not None:
        output.line()
        numbers = ["MESSAGES", "OLDEST", "DEAD"]
        queues = Table(output, ["BACKLOG QUEUE", "STATE", *numbers, "DRAINED BY"], numbers=numbers)
        queues.rows([_queue_row(queue) for queue in found.queues])
    output.line()
    if found.clients is None:
        output.line("Neither namespace tells which clients are alive.")
    elif not found.clients:
        output.line("No paired client and no syphon is alive.")
    else:
        clients = Table(output, ["ALIVE", "HOST", "PROCESS", "SEEN", "SYPHON", "DIVERTED", "ILL"], numbers=["DIVERTED"])
        clients.rows([_client_row(record) for record in found.clients])
    for note in found.notes:
        output.line(clean(note))
    for warning in found.warnings:
        output.remark(f"warning: {clean(warning)}")


def _half_row(namespace: NamespaceFound) -> list[str]:
    state = "reachable" if namespace.reachable else "not reachable"
    return [
        namespace.role,
        clean(namespace.name or "-"),
        clean(namespace.datacenter or "-"),
        clean(namespace.address),
        state,
    ]


def _queue_row(queue: QueueFound) -> list[str]:
    oldest = "-" if queue.oldest_s is None else f"{queue.oldest_s:,.0f} s"
    who = ", ".join(queue.drained_by) or "-"
    return [clean(queue.name), queue.state, f"{queue.messages:,}", oldest, f"{queue.dead:,}", clean(who)]


def _next_ping_s(record: dict[str, Any]) -> float | None:
    """Counted on from what the client last said; None while nothing is pinged."""
    ping = record["state"].get("ping")
    if not isinstance(ping, dict):
        return None
    try:
        passed_s = (datetime.now(UTC) - datetime.fromisoformat(record["seen_at"])).total_seconds()
        left_s, every_s = float(ping["next_in_s"]) - passed_s, float(ping["every_s"])
    except (KeyError, TypeError, ValueError):
        return None
    return left_s % every_s if left_s < 0 and every_s > 0 else max(left_s, 0.0)


def _client_row(record: dict[str, Any]) -> list[str]:
    """What a client says of itself; it may say anything."""
    state = record["state"]
    syphon = state.get("syphon")
    pumped = "-"
    if isinstance(syphon, dict):
        pumped = f"moved {syphon.get('moved')}, dead {syphon.get('dead')}"
        if syphon.get("waits_for"):
            pumped += f", waits for the {syphon['waits_for']}"
        if syphon.get("next_try_in_s") is not None:
            pumped += f", next try in {syphon['next_try_in_s']} s"
        if syphon.get("problem"):
            pumped += f": {syphon['problem']}"
    ill = state.get("ill")
    told = ", ".join(f"{path} {word}" for path, word in ill.items()) if isinstance(ill, dict) else ""
    next_ping_s = _next_ping_s(record)
    if next_ping_s is not None:
        told += f"; next ping in {next_ping_s:.0f} s"
    diverted = str(state.get("diverted", "-"))
    row = [record["kind"], record["host"], str(record["process"]), record["seen_at"], pumped, diverted, told or "-"]
    return [clean(cell) for cell in row]
