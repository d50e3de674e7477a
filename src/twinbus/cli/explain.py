"""`twinbus explain`: one message's journey over both namespaces, with times, and where it is now.

What is known of it is found in `twinbus.pipeline.proof.explain`, from files and without Spark.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.evidence import (
    JournalsOption,
    LedgersOption,
    OfflineOption,
    ResidentsOption,
    SendLogsOption,
    evidence_of,
    namespaces,
    readable,
)
from twinbus.cli.output import Output, Table
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean
from twinbus.model.extras import require

if TYPE_CHECKING:
    from twinbus.pipeline.proof.evidence import Evidence
    from twinbus.pipeline.proof.explain import Journey


@command
async def explain(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="The message.", show_default=False)],
    journal: JournalsOption = None,
    residents: ResidentsOption = None,
    send_log: SendLogsOption = None,
    ledger: LedgersOption = None,
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Tell one message's journey: sent, diverted, brought home, delivered, settled; and where it is now."""
    output = Output(json)
    evidence = evidence_of(journal, residents, send_log, ledger)
    asked = not offline and bool(pair or primary or secondary)
    if not asked and not evidence.journals and not evidence.send_logs:
        raise PromptError("Name journals with --journal, or a pair that can be asked with --pair or --primary.")
    require("pyarrow", *(["azure.servicebus"] if asked else []))
    with readable():
        from twinbus.pipeline.proof import explain as telling

        if asked:
            journey = await _asked(evidence, message_id, pair, primary, secondary, output)
        else:
            journey = telling.explain(evidence, message_id)
    if json:
        output.record(_document(journey))
    else:
        _show(output, journey)
    if not journey.events and not journey.standing:
        raise typer.Exit(1)


async def _asked(
    evidence: Evidence, message_id: str, pair: Path | None, primary: str | None, secondary: str | None, output: Output
) -> Journey:
    """With the journals up to now, and a look at every place where a copy should be."""
    from twinbus.pipeline.proof import explain as telling
    from twinbus.pipeline.proof.gathering import export

    async with namespaces(pair, primary, secondary) as asked:
        exported = await export(asked, needed=not evidence.journals)
        evidence = replace(evidence, journals=[*evidence.journals] or exported.directories)
        for name in exported.without:
            output.remark(f"'{clean(name)}' has no journal: nothing is known of what happened there.")
        journey = telling.explain(evidence, message_id)
        for namespace in asked:
            await telling.look(namespace, journey)
    return journey


def _show(output: Output, journey: Journey) -> None:
    from twinbus.pipeline.proof.report import moment

    output.line(clean(journey.message_id))
    table = Table(output, ["WHEN", "NAMESPACE", "WHERE", "WHAT", "DETAIL"])
    table.rows(
        [
            ["" if event.at_us is None else moment(event.at_us), *(clean(text) for text in event[1:])]
            for event in journey.events
        ]
    )
    output.line()
    output.line(clean(journey.summary()))


def _document(journey: Journey) -> dict[str, Any]:
    from twinbus.pipeline.proof.report import moment

    return {
        "message_id": journey.message_id,
        "summary": journey.summary(),
        "acknowledged": journey.acknowledged,
        "attempts": journey.attempts,
        "deliveries": journey.deliveries,
        "completed": dict(journey.completed),
        "suppressed": dict(journey.suppressed),
        "brought_home": journey.moves,
        "events": [
            {**event._asdict(), "at": None if event.at_us is None else f"{moment(event.at_us).replace(' ', 'T')}Z"}
            for event in journey.events
        ],
        "standing": [copy._asdict() for copy in journey.standing],
    }
