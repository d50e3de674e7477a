"""`twinbus ledger`: what a ledger knows, shown, exported for reconciling, and trimmed.

The work is done in `twinbus.pair`; how moments are shown is `showing`'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output, Table
from twinbus.cli.pairing import require_for
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean, counted, iso, moment

if TYPE_CHECKING:
    from twinbus.pair.ledger.storage import Record

ledger = typer.Typer(
    name="ledger", help="What was handed out and worked on: look at it, export it, forget it.", no_args_is_help=True
)
WhereArgument = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER", help="The ledger's file, or the address of its PostgreSQL database.", show_default=False
    ),
]
ScopeOption = Annotated[
    str | None,
    typer.Option("--scope", show_default=False, help="Only one queue, or one topic/subscriptions/name."),
]


@ledger.command("show")
@command
async def show(
    where: WhereArgument,
    tag: Annotated[str | None, typer.Option("--tag", show_default=False, help="Only this message.")] = None,
    scope: ScopeOption = None,
    json: JsonOption = False,
) -> None:
    """How many messages of each queue and subscription are known, in which state; or all about one."""
    output = Output(json)
    counts: Counter[tuple[str, str]] = Counter()
    suppressed: Counter[str] = Counter()
    since: dict[str, int] = {}
    with _readable(where):
        for record in _records(where, scope):
            if tag is not None:
                if record.tag == tag:
                    _show_one(output, record)
                continue
            counts[record.scope, _state(record)] += 1
            suppressed[record.scope] += record.suppressed
            since[record.scope] = min(record.at_ms, since.get(record.scope, record.at_ms))
    if tag is not None:
        return
    states = ("claimed", "deferred", "done", "dead-lettered")
    rows = [(name, [counts[name, state] for state in states]) for name in sorted(since)]
    if json:
        for name, numbers in rows:
            told = {"scope": name, **dict(zip(states, numbers, strict=True))}
            output.record({**told, "suppressed": suppressed[name], "since": iso(since[name])})
        return
    headings = ["CLAIMED", "DEFERRED", "DONE", "DEAD-LETTERED", "SUPPRESSED"]
    table = Table(output, ["SCOPE", *headings, "SINCE"], numbers=headings)
    table.rows(
        [
            [clean(name), *(f"{number:,}" for number in numbers), f"{suppressed[name]:,}", moment(since[name])]
            for name, numbers in rows
        ]
    )


@ledger.command("export")
@command
async def export(where: WhereArgument, scope: ScopeOption = None) -> None:
    """Write every message that is known, one JSON object on each line."""
    output = Output(True)
    with _readable(where):
        for record in _records(where, scope):
            output.record(record.document())


@ledger.command("trim")
@command
async def trim(
    where: WhereArgument,
    days: Annotated[float, typer.Option("--days", min=0, help="Keep what is younger than this.")] = 7.0,
    json: JsonOption = False,
) -> None:
    """Forget what is older; safe beside the receivers that use the ledger."""
    from datetime import timedelta

    with _readable(where):
        from twinbus.pair.ledger.ledger import Ledger

        with Ledger(where, keep=timedelta(days=days)) as opened:
            removed = opened.trim()
    if json:
        Output(True).record({"forgotten": removed})
    else:
        Output().line(f"{counted(removed)} forgotten")


def _records(where: str, scope: str | None) -> Iterator[Record]:
    from twinbus.pair.ledger.ledger import records  # The SDK takes half a second, and few commands need it.

    return records(where, None if scope is None else scope.lower())


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """A command about a ledger does not make one by mistake, and says what is wrong with it."""
    require_for(where)
    from twinbus.model.errors import BusError
    from twinbus.pair.errors import LedgerError
    from twinbus.pair.ledger.ledger import is_postgres

    if not is_postgres(where) and not Path(where).is_file():
        raise PromptError(f"There is no ledger {where}.")
    try:
        yield
    except (BusError, LedgerError) as error:
        raise PromptError(clean(str(error))) from None


def _show_one(output: Output, record: Record) -> None:
    if output.as_json:
        output.record(record.document())
        return
    output.facts(
        {
            "scope": clean(record.scope),
            "tag": clean(record.tag),
            "state": _state(record),
            "copy": f"{clean(record.namespace)} {record.sequence_number}",
            "handed out": moment(record.at_ms),
            "suppressed": f"{record.suppressed:,}",
        }
    )


def _state(record: Record) -> str:
    return record.state.name.lower().replace("_", "-")
