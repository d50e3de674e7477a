"""The bill of a run: metered operations, by whatever one asks for, and what they cost by a price table.

Counting is done by `metering` and pricing by `prices`; here the two meet, for the command, the report and the drill.
"""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from twinbus.pipeline.costs import prices as price_tables
from twinbus.pipeline.costs.metering import (
    MESSAGES,
    MODELS,
    OPERATIONS,
    STAGES,
    STAGES_IN,
    STAGES_OUT,
    Hour,
    Meter,
    Model,
    meter,
)
from twinbus.pipeline.costs.prices import MONTH_HOURS, Charge, Month, Prices, Tier, charges
from twinbus.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY = ("entity", "day", "kind", "stage", "namespace")


class Line(NamedTuple):
    """What a month is charged for."""

    month: str
    charge: Charge


class Share(NamedTuple):
    """All that has one entity, day, kind, stage or namespace."""

    key: tuple[str, ...]
    times: int
    messages: int  # As the model of that name counts.
    operations: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Bill:
    """What was done and what it costs."""

    model: Model
    prices: Prices
    tier: Tier
    meters: tuple[Meter, ...]
    hours: tuple[Hour, ...]
    lines: tuple[Line, ...]

    @property
    def total(self) -> Decimal:
        """In the currency of the prices."""
        return sum((line.charge.amount for line in self.lines), Decimal(0))

    @property
    def operations(self) -> int:
        """All that is billed."""
        return sum(found.billed(self.model) for found in self.meters)

    def by(self, what: str) -> list[Share]:
        """Shares by entity (of a namespace), day, kind, stage or namespace."""
        if what not in BY:
            raise PipelineError(f"A bill is shown by {', '.join(BY)}, not by '{what}'.")
        groups: defaultdict[tuple[str, ...], list[Meter]] = defaultdict(list)
        for found in self.meters:
            if what != "stage" or found.stage:
                groups[_key(found, what)].append(found)
        order = {stage: place for place, stage in enumerate(STAGES)}
        return [_share(key, groups[key]) for key in sorted(groups, key=lambda key: (order.get(key[0], 0), key))]


def _key(found: Meter, what: str) -> tuple[str, ...]:
    return (found.namespace, found.entity) if what == "entity" else (str(getattr(found, what)),)


def _share(key: tuple[str, ...], meters: Sequence[Meter]) -> Share:
    return Share(
        key,
        sum(found.times for found in meters),
        sum(found.billed(MESSAGES) for found in meters),
        sum(found.billed(OPERATIONS) for found in meters),
        sum(found.bytes for found in meters if found.stage in STAGES_IN),
        sum(found.bytes for found in meters if found.stage in STAGES_OUT),
    )


def cost(
    spark: SparkSession,
    journals: Sequence[Path | str],
    model: Model | str | None = None,
    prices: Prices | str | Path | None = None,
    *,
    tier: str | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Bill:
    """The bill for what the exported journals say was done; without a model, as the price table counts."""
    table = prices if isinstance(prices, Prices) else price_tables.load(prices or price_tables.DEFAULT)
    meters, hours = meter(spark, journals, since_ms, until_ms)
    return bill(meters, hours, model or table.model, table, tier=tier)


def bill(
    meters: Iterable[Meter],
    hours: Iterable[Hour],
    model: Model | str,
    prices: Prices,
    *,
    tier: str | None = None,
    units: int = 1,
) -> Bill:
    """The bill for what was metered, month by month; `units` are the messaging units of a premium namespace."""
    if isinstance(model, str):
        if model not in MODELS:
            raise PipelineError(f"Operations are counted by the model {' or '.join(MODELS)}, not '{model}'.")
        model = MODELS[model]
    readings, peaks = tuple(meters), tuple(hours)
    chosen = prices.tier(tier)
    lines = tuple(
        Line(month, charge)
        for month, used in sorted(_months(readings, peaks, model).items())
        for charge in charges(used, prices, chosen, units)
    )
    return Bill(model, prices, chosen, readings, peaks, lines)


def _months(meters: Sequence[Meter], hours: Sequence[Hour], model: Model) -> dict[str, Month]:
    found = {}
    for month in {reading.day[:7] for reading in meters} | {peak.hour[:7] for peak in hours}:
        readings = [reading for reading in meters if reading.day.startswith(month)]
        peaks = [peak for peak in hours if peak.hour.startswith(month)]
        stages: defaultdict[str, int] = defaultdict(int)
        for reading in readings:
            stages[reading.stage] += reading.bytes
        found[month] = Month(
            operations=sum(reading.billed(model) for reading in readings),
            hours=_covered([peak.hour for peak in peaks], month),
            connections=Decimal(sum(peak.connections for peak in peaks)) / MONTH_HOURS,
            namespaces=len({reading.namespace for reading in readings}),
            # The journal does not tell how long a listener stayed, nor that two were one: each relay counts as one.
            listeners=len({(one.namespace, one.entity) for one in readings if one.kind == "listener"}),
            relayed_bytes=stages["relayed"],
            stage_bytes=dict(stages),
        )
    return found


def _covered(hours: Sequence[str], month: str) -> int:
    """From the first hour in which something happened to the last one: namespaces cost also when they are idle."""
    if not hours:
        return 0
    first, last = (datetime.fromisoformat(text) for text in (min(hours), max(hours)))
    _, days = calendar.monthrange(int(month[:4]), int(month[5:7]))
    return min(int((last - first).total_seconds()) // 3600 + 1, days * 24)


class Sheet(NamedTuple):
    """A table for people: headings, rows of text, and which columns are numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]


def sheets(found: Bill, by: Sequence[str] = ("kind", "stage")) -> list[Sheet]:
    """The bill as tables, for the prompt and for a page."""
    told = [_shares(found, what) for what in by]
    rows = tuple(
        (line.month, line.charge.what, quantity(line.charge.quantity), line.charge.unit, amount(line.charge.amount))
        for line in found.lines
    )
    headings = ("MONTH", "FOR", "QUANTITY", "UNIT", found.prices.currency)
    total = ("", "total", "", "", amount(found.total))
    return [*told, Sheet("bill", headings, (*rows, total), ("QUANTITY", found.prices.currency))]


def _shares(found: Bill, what: str) -> Sheet:
    keys = ("NAMESPACE", "ENTITY") if what == "entity" else (what.upper(),)
    numbers = ("TIMES", "MESSAGES", "OPERATIONS", "BYTES IN", "BYTES OUT")
    rows = tuple((*share.key, *(f"{number:,}" for number in share[1:])) for share in found.by(what))
    return Sheet(f"by {what}", (*keys, *numbers), rows, numbers)


def remarks(found: Bill) -> list[str]:
    """What a reader of the bill has to know."""
    table = found.prices
    told = [f"Counted as {found.model.name}: {found.model.source}."]
    told.append(f"Prices of {table.as_of}, tier {found.tier.name}: {found.tier.source}.")
    unconfirmed = [] if found.tier.confirmed else [f"tier {found.tier.name}"]
    unconfirmed += [name for name in ("relay", "egress") if (part := getattr(table, name)) and not part.confirmed]
    if unconfirmed:
        told.append(
            f"Not confirmed by the seller: the prices of {', '.join(unconfirmed)}. Bring your own with --prices."
        )
    if table.model != found.model:
        told.append(f"These prices are for counting as {table.model.name}.")
    if table.remark:
        told.append(table.remark)
    return told


def in_short(found: Bill) -> dict[str, str]:
    """The bill in a few lines, each with its text, for a report that is about something else."""
    told = {share.key[0]: f"{share.operations:,}" for share in found.by("kind")}
    told["billable operations"] = f"{found.operations:,}"
    told[f"{found.prices.currency} by the prices of {found.prices.as_of}"] = amount(found.total)
    return told


def as_html(found: Bill, by: Sequence[str] = ("kind", "stage")) -> str:
    """The bill as a piece of a page, without styles of its own."""
    pieces = []
    for sheet in sheets(found, by):
        right = {place for place, heading in enumerate(sheet.headings) if heading in sheet.numbers}
        head = "".join(f"<th>{escape(heading.lower())}</th>" for heading in sheet.headings)
        body = "".join(
            "<tr>"
            + "".join(
                f'<td class="number">{escape(cell)}</td>' if place in right else f"<td>{escape(cell)}</td>"
                for place, cell in enumerate(row)
            )
            + "</tr>"
            for row in sheet.rows
        )
        pieces.append(
            f"<h3>{escape(sheet.title)}</h3><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
    return "".join(pieces) + "".join(f"<p>{escape(text)}</p>" for text in remarks(found))


def quantity(value: Decimal) -> str:
    """A quantity as people read it."""
    return f"{value:,.0f}" if value == value.to_integral_value() else f"{value:,.3f}"


def amount(value: Decimal) -> str:
    """An amount of money: two digits, or as many as a small one needs to be seen."""
    return f"{value:,.2f}" if value == 0 or value >= Decimal("0.01") else f"{value:.6f}"
