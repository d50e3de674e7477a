"""Bills: shares add up, months are charged by themselves, and what is shown is harmless on a page."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.costs.cost import BY, amount, as_html, bill, quantity, remarks, sheets
from twinbus.pipeline.costs.metering import MESSAGES, MODELS, OPERATIONS, STAGES_IN, STAGES_OUT, Hour, Meter
from twinbus.pipeline.costs.prices import load
from twinbus.pipeline.errors import PipelineError

PRICES = load("2026-11")
METERS = st.builds(
    lambda namespace, entity, day, what, times, size: Meter(namespace, entity, day, *what, times, times, size),
    st.sampled_from(["contoso", "fabrikam"]),
    st.sampled_from(["orders", "events"]),
    st.sampled_from(["2026-11-30", "2026-12-01"]),
    st.sampled_from([("send", "sent"), ("receive", "delivered"), ("settle", ""), ("own", ""), ("send", "moved")]),
    st.integers(1, 50_000_000),
    st.integers(0, 10**12),
)


@given(st.lists(METERS), st.sampled_from(list(MODELS.values())))
def test_shares_by_anything_add_up_to_the_whole(meters: list[Meter], model: object) -> None:
    found = bill(meters, [], model, PRICES)  # type: ignore[arg-type]
    for what in BY:
        shares = found.by(what)
        assert sum(share.bytes_in for share in shares) == sum(m.bytes for m in meters if m.stage in STAGES_IN)
        assert sum(share.bytes_out for share in shares) == sum(m.bytes for m in meters if m.stage in STAGES_OUT)
        if what != "stage":
            assert sum(share.messages for share in shares) == sum(m.billed(MESSAGES) for m in meters)
            assert sum(share.operations for share in shares) == sum(m.billed(OPERATIONS) for m in meters)
    assert found.total == sum((line.charge.amount for line in found.lines), Decimal(0))


def test_every_month_has_its_own_allowance() -> None:
    meters = [Meter("contoso", "orders", day, "send", "sent", 1, 14_000_000, 0) for day in ("2026-11-30", "2026-12-01")]
    found = bill(meters, [], "operations", PRICES)
    charged = [(line.month, line.charge.amount) for line in found.lines if line.charge.what == "operations"]
    assert charged == [("2026-11", Decimal("0.80")), ("2026-12", Decimal("0.80"))]


def test_a_namespace_costs_from_its_first_hour_to_its_last_and_connections_by_the_hour() -> None:
    hours = [Hour("contoso", "2026-11-16 00:00:00", 744_000), Hour("fabrikam", "2026-11-16 09:00:00", 744_000)]
    found = {line.charge.what: line.charge for line in bill([], hours, "operations", PRICES).lines}
    assert found["base"].quantity == 10
    assert found["connections"].quantity == 2000
    assert found["connections"].amount == 30


def test_a_relay_counts_once_however_often_its_listener_came_back() -> None:
    meters = [Meter("contoso", "door", f"2026-11-{day}", "listener", "", 9, 9, 0) for day in (16, 17)]
    found = {line.charge.what: line.charge for line in bill(meters, [], "operations", PRICES).lines}
    assert found["relay listeners"].quantity == 1


def test_nothing_costs_nothing() -> None:
    assert bill([], [], "messages", load("2014-08")).total == 0


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(PipelineError, match="messages or operations"):
        bill([], [], "guesses", PRICES)
    with pytest.raises(PipelineError, match="entity"):
        bill([], [], "messages", PRICES).by("colour")


def test_a_page_gets_no_markup_from_an_entity_and_the_doubts_about_prices() -> None:
    found = bill([Meter("contoso", "<script>", "2026-11-16", "send", "sent", 1, 1, 10)], [], "messages", PRICES)
    page = as_html(found, ["entity"])
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Not confirmed by the seller" in page
    assert any("for counting as operations" in text for text in remarks(found))


def test_sheets_have_a_cell_for_every_heading_and_a_total() -> None:
    meters = [Meter("contoso", "orders", "2026-11-16", "send", "sent", 1234, 1234, 99_999)]
    for sheet in sheets(bill(meters, [], "operations", PRICES), BY):
        assert {len(row) for row in sheet.rows} == {len(sheet.headings)}
    assert sheet.rows[-1][1] == "total"


def test_small_amounts_are_not_shown_as_nothing() -> None:
    assert [amount(Decimal(text)) for text in ("0", "0.000004", "0.01", "1234.5")] == [
        "0.00",
        "0.000004",
        "0.01",
        "1,234.50",
    ]
    assert [quantity(Decimal(text)) for text in ("5", "1234567", "0.25")] == ["5", "1,234,567", "0.250"]
