"""Price tables: those that come along can be read and say where they are from; steps; and what a table may not say."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.costs import prices
from twinbus.pipeline.costs.metering import MESSAGES, OPERATIONS
from twinbus.pipeline.costs.prices import Month, Step, charges, load, parse, shipped, stepped
from twinbus.pipeline.errors import PipelineError

ROOT = Path(__file__).parents[4]
STANDARD = load("2026-11").tier("standard")
SMALL = """
as_of = "2030-01-01"
currency = "EUR"
model = "operations"
default_tier = "plain"

[tier.plain]
source = "a contract"
confirmed = true
base_per_month = 5
operations = [{ above = 0, per_million = 2.5 }]
"""


@pytest.mark.parametrize("name", shipped())
def test_every_table_that_comes_along_says_when_and_where_it_is_from(name: str) -> None:
    table = load(name)
    assert table.as_of[:2] == "20"
    assert table.tier().operations or table.tier().unit_per_hour
    assert all(tier.source for tier in table.tiers.values())


def test_the_tables_are_put_into_the_package() -> None:
    assert "price_tables/*.toml" in (ROOT / "pyproject.toml").read_text()


def test_each_table_counts_as_its_seller_did() -> None:
    assert load("2014-08").model == MESSAGES
    assert load("2026-11").model == OPERATIONS


def test_what_nobody_confirmed_is_marked() -> None:
    assert not STANDARD.confirmed
    assert load("2014-08").tier().confirmed


def test_ten_thousand_devices_half_of_the_month_are_120_dollars() -> None:
    """The example of 'Service Bus pricing and billing': 10,000 for 12 of 24 hours are 5,000, and 1,000 are free."""
    connected = Decimal(10_000 * 12 * 31) / prices.MONTH_HOURS
    assert connected == 5000
    assert stepped(connected, STANDARD.connections) == Decimal(120)


def test_thirteen_million_operations_are_included_and_the_rest_gets_cheaper() -> None:
    assert stepped(13_000_000, STANDARD.operations) == 0
    assert stepped(14_000_000, STANDARD.operations) == Decimal("0.80")
    assert stepped(101_000_000, STANDARD.operations) == Decimal("0.80") * 87 + Decimal("0.50")
    dear, cheap = STANDARD.operations[1].each, STANDARD.operations[-1].each
    assert cheap / dear >= Decimal("0.2")  # "Discounts of up to 80 %".


def test_ten_thousand_messages_were_a_cent() -> None:
    assert stepped(10_000, load("2014-08").tier().operations) == Decimal("0.01")


STEPS = (Step(Decimal(0), Decimal(0)), Step(Decimal(10), Decimal(3)), Step(Decimal(20), Decimal(1)))


@given(st.integers(0, 40), st.integers(0, 40))
def test_steps_are_paid_one_after_the_other(first: int, second: int) -> None:
    one_by_one = sum(0 if number < 10 else 3 if number < 20 else 1 for number in range(first + second))
    assert stepped(first + second, STEPS) == one_by_one
    assert stepped(first, STEPS) <= stepped(first + second, STEPS)


def test_a_month_is_charged_for_what_its_tier_has() -> None:
    month = Month(operations=2_000_000, hours=10, connections=Decimal(3))
    table = parse(SMALL, "small")
    assert [(line.what, line.amount) for line in charges(month, table, table.tier())] == [
        ("base", Decimal(5)),
        ("operations", Decimal(5)),
    ]
    premium = load("2026-11").tier("premium")
    (line,) = charges(month._replace(namespaces=2), load("2026-11"), premium, messaging_units=4)
    assert (line.what, line.quantity) == ("messaging units", 80)


def test_a_relay_costs_by_listener_and_by_what_is_over_its_allowance() -> None:
    month = Month(operations=0, hours=1, connections=Decimal(0), listeners=2, relayed_bytes=12 * prices.GB)
    found = {line.what: line.amount for line in charges(month, load("2026-11"), STANDARD)}
    assert found["relay listeners"] == 10
    assert found["relay traffic"] == 1


def test_egress_is_paid_for_the_stages_that_the_table_names() -> None:
    month = Month(0, 1, Decimal(0), stage_bytes={"fetched": 2 * prices.GB, "delivered": 7 * prices.GB})
    table = load("2014-08")
    assert {line.what: line.amount for line in charges(month, table, table.tier())}["egress"] == Decimal("0.30")


def test_ones_own_table_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "contract.toml"
    path.write_text(SMALL)
    assert (load(path).name, load(str(path)).currency) == ("contract", "EUR")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("currency", "curency"), "curency"),
        (('currency = "EUR"', ""), "lack 'currency'"),
        (('"operations"', '"calls"'), "model is one of messages, operations, not 'calls'"),
        (('"plain"', '"fancy"'), "default_tier 'fancy'"),
        (("above = 0", "above = 7"), "steps begin at 0"),
        (("per_million = 2.5", "per_million = 'two'"), "make no sense"),
        (("[tier.plain]", "[tier.plain"), "not valid TOML"),
        (("base_per_month", "base_per_year"), "base_per_year"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_that_makes_no_sense_is_refused_with_the_reason(change: tuple[str, str], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        parse(SMALL.replace(*change), "small")


def test_a_table_that_is_not_there_is_refused_with_the_names_of_those_that_are() -> None:
    with pytest.raises(PipelineError, match="2014-08"):
        load("1999-12")


def test_a_tier_that_is_not_there_is_refused() -> None:
    with pytest.raises(PipelineError, match="basic, standard, premium"):
        load("2026-11").tier("golden")
