"""How bills and estimates look at the prompt: tables for people, an object on each line for scripts.

What is in them is `twinbus.pipeline`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING

from twinbus.cli.output import Output, Table
from twinbus.cli.showing import clean
from twinbus.model.duration import format_duration

if TYPE_CHECKING:
    from twinbus.pipeline.costs.cost import Bill
    from twinbus.pipeline.costs.metering import Model
    from twinbus.pipeline.costs.prices import Prices
    from twinbus.pipeline.costs.whatif import Estimate


def show_bill(output: Output, found: Bill, by: Sequence[str]) -> None:
    """The operations by what was asked for, then what they cost."""
    from twinbus.pipeline.costs.cost import remarks, sheets

    if output.as_json:
        _bill_records(output, found, by)
        return
    for place, sheet in enumerate(sheets(found, by)):
        if place:
            output.line()
        Table(output, sheet.headings, sheet.numbers).rows([[clean(cell) for cell in row] for row in sheet.rows])
    for text in remarks(found):
        output.remark(clean(text))


def _bill_records(output: Output, found: Bill, by: Sequence[str]) -> None:
    for what in by:
        names = ("namespace", "entity") if what == "entity" else (what,)
        for share in found.by(what):
            told = dict(zip(names, share.key, strict=True))
            output.record({"by": what, **told, **{name: getattr(share, name) for name in share._fields[1:]}})
    for line in found.lines:
        amounts = {"quantity": float(line.charge.quantity), "amount": float(line.charge.amount)}
        output.record({"month": line.month, "for": line.charge.what, "unit": line.charge.unit, **amounts})
    output.record(
        {
            "total": float(found.total),
            "currency": found.prices.currency,
            "model": found.model.name,
            "operations": found.operations,
            "prices": found.prices.name,
            "tier": found.tier.name,
            "confirmed": found.tier.confirmed,
        }
    )


def show_estimates(
    output: Output, estimates: Sequence[Estimate], model: Model, prices: Prices, tier: str | None, units: int
) -> None:
    """Each set-up with its operations, what it adds to the unpaired one, and what it costs."""
    from twinbus.pipeline.costs.cost import amount

    plain = estimates[0].operations
    totals = [sum((line.amount for line in found.charges(prices, tier, units)), Decimal(0)) for found in estimates]
    if output.as_json:
        for found, total in zip(estimates, totals, strict=True):
            items = {item.what: {"operations": item.operations, "bytes": item.bytes} for item in found.items}
            told = {"shape": found.shape, "model": model.name, "operations": found.operations, "bytes": found.bytes}
            money = {"amount": float(total), "currency": prices.currency}
            output.record({**told, **money, "setting": asdict(found.setting), "items": items})
        return
    headings = ["SET-UP", "OUTAGE", "QUEUES", "PING", "OPERATIONS", "MORE", "BYTES", prices.currency]
    table = Table(output, headings, numbers=headings[1:])
    rows = []
    for found, total in zip(estimates, totals, strict=True):
        setting = found.setting
        about = ["", "", ""]
        if found.shape in ("paired", "active"):
            about[0] = format_duration(setting.outage_s * 1000) if setting.outage_s else ""
        if found.shape == "paired":
            about[1:] = [str(setting.backlog_queues), format_duration(setting.ping_interval_s * 1000)]
        numbers = [f"{found.operations:,}", f"{found.operations - plain:+,}", f"{found.bytes:,}", amount(total)]
        rows.append([found.shape, *about, *numbers])
    table.rows(rows)
    _show_items(output, next(found for found in estimates if found.shape == "paired"))
    period = format_duration(estimates[0].setting.period_s * 1000)
    output.remark(f"Over {period}, counted as {model.name}: {model.source}.")
    chosen = prices.tier(tier)
    doubt = "" if chosen.confirmed else ", not confirmed by the seller"
    output.remark(f"Prices of {prices.as_of}, tier {chosen.name}{doubt}: {chosen.source}.")


def _show_items(output: Output, paired: Estimate) -> None:
    """Where the operations of a pair come from."""
    output.line()
    table = Table(output, ["PAIRED", "OPERATIONS", "BYTES"], numbers=["OPERATIONS", "BYTES"])
    table.rows([[item.what, f"{item.operations:,}", f"{item.bytes:,}"] for item in paired.items if any(item[1:])])
