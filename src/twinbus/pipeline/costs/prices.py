"""Prices: dated tables outside the code, read from TOML, and what a quantity costs by their steps.

The tables that come with the package are in `price_tables`; what was used is counted by `metering`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.pipeline.costs.metering import MODELS, STAGES, Model
from twinbus.pipeline.errors import PipelineError

DEFAULT = "2026-11"
MONTH_HOURS = 744
GB = 1_000_000_000
MILLION = 1_000_000


class Step(NamedTuple):
    """From a quantity on, until the next step begins, each one costs this."""

    above: Decimal
    each: Decimal


class Charge(NamedTuple):
    """One line of a bill."""

    what: str
    quantity: Decimal
    unit: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Tier:
    """What a tier of the service charges for; what the table does not say is None, and not charged."""

    name: str
    source: str
    confirmed: bool
    base_per_hour: Decimal | None = None
    base_per_month: Decimal | None = None
    unit_per_hour: Decimal | None = None  # Of a messaging unit, for each namespace.
    operations: tuple[Step, ...] = ()
    connections: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Relay:
    """What hybrid connections cost."""

    source: str
    confirmed: bool
    listener_per_month: Decimal
    gb_included: Decimal  # For each listener.
    per_gb: Decimal


@dataclass(frozen=True, slots=True)
class Egress:
    """What bytes cost that leave a region, and which stages are taken to do so."""

    source: str
    confirmed: bool
    per_gb: Decimal
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prices:
    """A price table of one date and currency."""

    name: str
    as_of: str
    currency: str
    model: Model  # How who made these prices counted.
    remark: str
    tiers: Mapping[str, Tier]
    default_tier: str
    relay: Relay | None = None
    egress: Egress | None = None

    def tier(self, name: str | None = None) -> Tier:
        """A tier by name, or the table's usual one."""
        found = self.tiers.get(name or self.default_tier)
        if found is None:
            raise PipelineError(f"The prices of '{self.name}' have no tier '{name}', only {', '.join(self.tiers)}.")
        return found


class Month(NamedTuple):
    """What one month used."""

    operations: int
    hours: int  # For which the namespaces were there.
    connections: Decimal  # The hourly peaks' sum, over the hours of a month.
    namespaces: int = 1
    listeners: int = 0
    relayed_bytes: int = 0
    stage_bytes: Mapping[str, int] = {}


def shipped() -> list[str]:
    """The names of the tables that come with the package."""
    found = resources.files("twinbus.pipeline.costs").joinpath("price_tables")
    return sorted(entry.name.removesuffix(".toml") for entry in found.iterdir() if entry.name.endswith(".toml"))


def load(which: str | Path = DEFAULT) -> Prices:
    """A table by the name of one that comes with the package, or by its file."""
    if str(which) in shipped():
        text = resources.files("twinbus.pipeline.costs").joinpath("price_tables", f"{which}.toml").read_text()
        return parse(text, str(which))
    try:
        return parse(Path(which).read_text(), Path(which).stem)
    except OSError as problem:
        raise PipelineError(
            f"'{which}' is no file of prices that can be read ({problem.strerror}), and none of {', '.join(shipped())}."
        ) from None


def parse(text: str, name: str) -> Prices:
    """A table from its text; a PipelineError names what it lacks or what nobody knows."""
    try:
        document = tomllib.loads(text, parse_float=Decimal)
        return _prices(document, name)
    except tomllib.TOMLDecodeError as problem:
        raise PipelineError(f"The prices of '{name}' are not valid TOML: {problem}.") from None
    except KeyError as problem:
        raise PipelineError(f"The prices of '{name}' lack {problem}.") from None
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise PipelineError(f"The prices of '{name}' make no sense: {problem}") from None


def _prices(document: dict[str, Any], name: str) -> Prices:
    _known(document, {"as_of", "currency", "model", "remark", "default_tier", "tier", "relay", "egress"}, "the table")
    if document["model"] not in MODELS:
        raise ValueError(f"model is one of {', '.join(MODELS)}, not '{document['model']}'.")
    tiers = {key: _tier(key, given) for key, given in document["tier"].items()}
    if document["default_tier"] not in tiers:
        raise ValueError(f"default_tier '{document['default_tier']}' is not among the tiers.")
    return Prices(
        name=name,
        as_of=str(document["as_of"]),
        currency=str(document["currency"]),
        model=MODELS[document["model"]],
        remark=str(document.get("remark", "")),
        tiers=tiers,
        default_tier=document["default_tier"],
        relay=_relay(document["relay"]) if "relay" in document else None,
        egress=_egress(document["egress"]) if "egress" in document else None,
    )


def _tier(name: str, given: dict[str, Any]) -> Tier:
    amounts = ("base_per_hour", "base_per_month", "unit_per_hour")
    _known(given, {"source", "confirmed", "operations", "connections", *amounts}, f"tier '{name}'")
    return Tier(
        name=name,
        source=given["source"],
        confirmed=bool(given["confirmed"]),
        operations=_steps(given.get("operations", ()), "per_million", MILLION),
        connections=_steps(given.get("connections", ()), "per_month", 1),
        **{key: Decimal(given[key]) for key in amounts if key in given},
    )


def _relay(given: dict[str, Any]) -> Relay:
    _known(given, {"source", "confirmed", "listener_per_month", "gb_included", "per_gb"}, "relay")
    amounts = {key: Decimal(given[key]) for key in ("listener_per_month", "gb_included", "per_gb")}
    return Relay(source=given["source"], confirmed=bool(given["confirmed"]), **amounts)


def _egress(given: dict[str, Any]) -> Egress:
    _known(given, {"source", "confirmed", "per_gb", "stages"}, "egress")
    _known(dict.fromkeys(given["stages"]), set(STAGES), "the stages of egress")
    return Egress(given["source"], bool(given["confirmed"]), Decimal(given["per_gb"]), tuple(given["stages"]))


def _known(given: Mapping[str, Any], names: set[str], where: str) -> None:
    if strange := sorted(given.keys() - names):
        raise ValueError(f"{where} has '{strange[0]}', and nobody knows what that is.")


def _steps(given: Sequence[Mapping[str, Any]], price: str, lot: int) -> tuple[Step, ...]:
    for entry in given:
        _known(entry, {"above", price}, "a step")
    steps = tuple(Step(Decimal(entry["above"]), Decimal(entry[price]) / lot) for entry in given)
    if (steps and steps[0].above != 0) or list(steps) != sorted(steps, key=lambda step: step.above):
        raise ValueError("steps begin at 0 and rise.")
    return steps


def stepped(quantity: Decimal | int, steps: Sequence[Step]) -> Decimal:
    """What a quantity costs when each step holds for what is above it."""
    ends = [step.above for step in steps[1:]] + [None]
    return sum(
        (
            step.each * ((quantity if end is None else min(end, quantity)) - step.above)
            for step, end in zip(steps, ends, strict=True)
            if quantity > step.above
        ),
        Decimal(0),
    )


def charges(month: Month, prices: Prices, tier: Tier, messaging_units: int = 1) -> list[Charge]:
    """The lines of a month's bill."""
    hours = Decimal(month.hours)
    lines = []
    if tier.base_per_hour is not None:
        lines.append(Charge("base", hours, "hours", tier.base_per_hour * hours))
    if tier.base_per_month is not None:
        lines.append(Charge("base", Decimal(1), "months", tier.base_per_month))
    if tier.unit_per_hour is not None:
        used = hours * messaging_units * month.namespaces
        lines.append(Charge("messaging units", used, "unit-hours", tier.unit_per_hour * used))
    if tier.operations:
        operations = Decimal(month.operations)
        lines.append(Charge("operations", operations, "operations", stepped(operations, tier.operations)))
    if tier.connections:
        amount = stepped(month.connections, tier.connections)
        lines.append(Charge("connections", month.connections, "connection-months", amount))
    if prices.relay is not None and month.listeners:
        relay = prices.relay
        over = max(Decimal(0), Decimal(month.relayed_bytes) / GB - relay.gb_included * month.listeners)
        listeners = Decimal(month.listeners)
        lines.append(Charge("relay listeners", listeners, "listener-months", relay.listener_per_month * listeners))
        lines.append(Charge("relay traffic", over, "GB", relay.per_gb * over))
    if prices.egress is not None:
        left = Decimal(sum(month.stage_bytes.get(stage, 0) for stage in prices.egress.stages)) / GB
        lines.append(Charge("egress", left, "GB", prices.egress.per_gb * left))
    return lines
