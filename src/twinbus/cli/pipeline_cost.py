"""`twinbus pipeline cost`: what a run cost by its journals, and what it would cost otherwise.

Counting and reckoning are done in `twinbus.pipeline`; with numbers given at the prompt no Spark is started.
"""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output
from twinbus.cli.pipeline_cost_showing import show_bill, show_estimates
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean
from twinbus.cli.values import Duration, Instant, parse_duration, parse_instant


class By(StrEnum):
    """What the operations are shown by."""

    ENTITY = "entity"
    DAY = "day"
    KIND = "kind"
    STAGE = "stage"
    NAMESPACE = "namespace"


class Counting(StrEnum):
    """The two documented ways of counting."""

    MESSAGES = "messages"
    OPERATIONS = "operations"


def _option(name: str, text: str, **more: Any) -> Any:
    return typer.Option(name, help=text, show_default=False, **more)


def _number(name: str, text: str) -> Any:
    return typer.Option(name, min=0, help=text)


def _duration(name: str, text: str) -> Any:
    return _option(name, text, parser=parse_duration, metavar="DURATION")


def _instant(name: str, text: str) -> Any:
    return _option(name, text, parser=parse_instant, metavar="TIME")


AGAIN = "may be given several times."
JournalOption = Annotated[
    list[Path] | None, _option("--journal", "A directory of exported journal, one for each namespace.", metavar="DIR")
]
ByOption = Annotated[list[By] | None, _option("--by", f"Show the operations by this; kind and stage; {AGAIN}")]
ModelOption = Annotated[Counting | None, _option("--model", "How operations are counted; as the prices have it.")]
PricesOption = Annotated[str, typer.Option("--prices", help="A price table that comes along, or your own TOML file.")]
TierOption = Annotated[str | None, _option("--tier", "The tier of the service; the table's usual one.")]
UnitsOption = Annotated[int, _number("--messaging-units", "Messaging units of each premium namespace.")]
SinceOption = Annotated[Instant | None, _instant("--since", "Only what was done from then on; 2h is two hours ago.")]
UntilOption = Annotated[Instant | None, _instant("--until", "Only what was done before then; 2h is two hours ago.")]
WhatIfOption = Annotated[
    bool, typer.Option("--what-if", help="Compare unpaired, paired, passive and active, for the journals' traffic.")
]
MessagesOption = Annotated[int | None, _option("--messages", "What if so many messages are sent; no journal.", min=0)]
SizeOption = Annotated[int, _number("--size", "What if a message has so many bytes.")]
DeliveriesOption = Annotated[int, _number("--deliveries", "What if each message is received so often.")]
PollsOption = Annotated[int, _number("--polls", "What if the application's receivers ask so often in vain.")]
PeriodOption = Annotated[Duration | None, _duration("--period", "What if it goes on so long; 30d, or as the journals.")]
OutageOption = Annotated[list[Duration] | None, _duration("--outage", f"What if the primary is down so long; {AGAIN}")]
DivertedOption = Annotated[int | None, _option("--diverted", "What if so many messages are diverted.", min=0)]
QueuesOption = Annotated[
    list[int] | None, _option("--backlog-queues", f"What if there are so many backlog queues; 10; {AGAIN}", min=0)
]
PingOption = Annotated[
    list[Duration] | None, _duration("--ping-interval", f"What if pings are so far apart; 1m; {AGAIN}")
]
PollOption = Annotated[Duration | None, _duration("--poll", "What if a syphon's receive lasts so long; by the model.")]
EntitiesOption = Annotated[int | None, _option("--entities", "What if so many entities are sent to; 1.", min=0)]
ClientsOption = Annotated[int, _number("--clients", "What if so many clients send.")]
SyphonsOption = Annotated[int, _number("--syphons", "What if so many syphons run.")]
ProbeOption = Annotated[bool, typer.Option("--probe", help="What if probes are sent instead of pings, as to Azure.")]


@command
async def cost(
    journal: JournalOption = None,
    by: ByOption = None,
    model: ModelOption = None,
    prices: PricesOption = "2026-11",
    tier: TierOption = None,
    messaging_units: UnitsOption = 1,
    since: SinceOption = None,
    until: UntilOption = None,
    what_if: WhatIfOption = False,
    messages: MessagesOption = None,
    size: SizeOption = 1024,
    deliveries: DeliveriesOption = 1,
    polls: PollsOption = 0,
    period: PeriodOption = None,
    outage: OutageOption = None,
    diverted: DivertedOption = None,
    backlog_queues: QueuesOption = None,
    ping_interval: PingOption = None,
    poll: PollOption = None,
    entities: EntitiesOption = None,
    clients: ClientsOption = 1,
    syphons: SyphonsOption = 1,
    probe: ProbeOption = False,
    master: MasterOption = None,
    conf: SettingOption = None,
    json: JsonOption = False,
) -> None:
    """Billable operations and bytes by the journals, and what they cost; or what it would cost otherwise."""
    from twinbus.pipeline.costs import metering, whatif
    from twinbus.pipeline.costs import prices as price_tables
    from twinbus.pipeline.costs.cost import bill
    from twinbus.pipeline.errors import PipelineError

    if (messages is None) == (not journal):
        raise PromptError("Name journals with --journal, or with --messages the traffic that you have in mind.")
    output = Output(json)
    paired = whatif.Setting(clients=clients, syphons=syphons, diverted=diverted, probe=probe, poll_s=_seconds(poll))
    try:
        table = price_tables.load(prices)
        chosen = metering.MODELS[model.value] if model else table.model
        if messages is None:
            with session("twinbus pipeline cost", master, conf) as spark:
                meters, hours = metering.meter(spark, journal or [], _moment(since), _moment(until))
            if not what_if:
                shown = [choice.value for choice in by] if by else ["kind", "stage"]
                show_bill(output, bill(meters, hours, chosen, table, tier=tier, units=messaging_units), shown)
                return
            traffic = whatif.Traffic.metered(meters)
            paired = whatif.as_it_was(paired, meters, hours)
        else:
            traffic = whatif.Traffic.imagined(messages, size, deliveries, polls)
        traffic, paired = whatif.lasting(traffic, paired, _seconds(period), messages is None)
        paired = paired if entities is None else replace(paired, entities=entities)
        tried = whatif.settings_of(paired, backlog_queues or [], _all_s(ping_interval), _all_s(outage))
        show_estimates(output, whatif.compare(traffic, tried, chosen), chosen, table, tier, messaging_units)
    except PipelineError as problem:
        raise PromptError(clean(str(problem))) from None


def _seconds(duration: Duration | None) -> int | None:
    return None if duration is None else max(1, int(duration) // 1000)


def _all_s(durations: list[Duration] | None) -> list[int]:
    return [int(duration) // 1000 for duration in durations or []]


def _moment(at: Instant | None) -> int | None:
    """A duration is a time ago: what is metered is over."""
    if at is None:
        return None
    return int(time.time() * 1000) - int(at) if at.relative else int(at)
