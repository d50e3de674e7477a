"""What-if: the figures that the documents give come out, and the set-ups relate to each other as they should."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.small_journal import Answers, moved, row
from twinbus.pipeline.costs.metering import MESSAGES, MODELS, OPERATIONS, Hour, Meter, Model, metering_sql
from twinbus.pipeline.costs.prices import load
from twinbus.pipeline.costs.whatif import (
    DAY_S,
    HOUR_S,
    Setting,
    Traffic,
    active,
    as_it_was,
    compare,
    lasting,
    paired,
    passive,
    settings_of,
    unpaired,
)

NOTHING = Traffic.imagined(0, 0)
BOTH = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
COUNTS = st.integers(0, 10_000)


@pytest.mark.parametrize(("period_s", "receives"), [(HOUR_S, 40), (DAY_S, 960), (30 * DAY_S, 28_800)])
def test_an_idle_syphon_with_ten_queues_receives_as_often_as_the_documents_say(period_s: int, receives: int) -> None:
    assert paired(NOTHING, Setting(period_s=period_s), MESSAGES).operations == receives


def test_the_client_of_2013_asked_every_two_minutes() -> None:
    assert paired(NOTHING, Setting(), OPERATIONS).operations == 216_000


@pytest.mark.parametrize(("model", "moved_costs", "plain"), [(MESSAGES, 4, 2), (OPERATIONS, 6, 3)])
def test_a_moved_message_is_charged_four_times_or_six(model: Model, moved_costs: int, plain: int) -> None:
    one = Traffic.imagined(1, 1024)
    assert unpaired(one, Setting(), model).operations == plain
    assert paired(one, Setting(diverted=1, syphons=0), model).operations == moved_costs


def test_message_size_counts_at_every_stage() -> None:
    large = Traffic.imagined(1, 96 * 1024)
    setting = Setting(diverted=1, syphons=0)
    assert paired(large, setting, MESSAGES).operations == 8
    assert paired(large, setting, OPERATIONS).operations == 10
    assert paired(large, setting, MESSAGES).bytes == 4 * 96 * 1024


@BOTH
@given(messages=COUNTS, size=st.integers(0, 300_000), deliveries=st.integers(0, 4), polls=COUNTS)
def test_active_replication_doubles(model: Model, messages: int, size: int, deliveries: int, polls: int) -> None:
    traffic = Traffic.imagined(messages, size, deliveries, polls)
    once, twice = unpaired(traffic, Setting(), model), active(traffic, Setting(), model)
    assert twice.operations == 2 * once.operations
    assert twice.bytes == 2 * once.bytes


@BOTH
@given(messages=COUNTS, size=st.integers(0, 300_000))
def test_passive_replication_costs_no_more_than_one_namespace_but_for_empty_receives(
    model: Model, messages: int, size: int
) -> None:
    traffic = Traffic.imagined(messages, size, polls=17)
    assert passive(traffic, Setting(), model).operations == unpaired(traffic, Setting(), model).operations + 17


@BOTH
@given(messages=st.integers(1, 10_000), outage_s=st.integers(0, 40 * DAY_S))
def test_an_outage_costs_each_message_in_it_a_second_way_and_saves_an_active_one_a_copy(
    model: Model, messages: int, outage_s: int
) -> None:
    traffic = Traffic.imagined(messages, 100)
    setting = Setting(outage_s=outage_s, syphons=0, entities=0)
    away = messages * min(outage_s, setting.period_s) // setting.period_s
    each = 2 if model is MESSAGES else 3
    plain = unpaired(traffic, setting, model).operations
    assert paired(traffic, setting, model).operations == plain + each * away
    assert active(traffic, setting, model).operations == 2 * plain - each * away


def test_every_client_pings_every_entity_once_an_interval() -> None:
    setting = Setting(outage_s=2 * HOUR_S, entities=5, clients=3, syphons=0)
    assert paired(NOTHING, setting, MESSAGES).operations == 5 * 3 * 120
    slower = Setting(outage_s=2 * HOUR_S, entities=5, clients=3, syphons=0, ping_interval_s=1800)
    assert paired(NOTHING, slower, MESSAGES).operations == 5 * 3 * 4


def test_a_probe_is_two_operations_and_one_message() -> None:
    setting = Setting(outage_s=600, syphons=0, probe=True)
    assert paired(NOTHING, setting, OPERATIONS).operations == 20
    assert paired(NOTHING, setting, MESSAGES).operations == 10


def test_every_syphon_asks_every_queue() -> None:
    setting = Setting(period_s=HOUR_S, backlog_queues=5, syphons=2, poll_s=60)
    assert paired(NOTHING, setting, MESSAGES).operations == 5 * 2 * 60


def test_the_application_in_metered_traffic_is_told_from_its_pair() -> None:
    rows = [step for number in range(3) for step in moved(f"m{number}", size=90_000)]
    rows += [row(operation, message_id="d", bytes=90_000) for operation in ("send", "receive", "complete")]
    rows += [row("receive", outcome="empty", count=7), row("send", outcome="ping", count=2), row("renew")]
    rows += [row("receive", "contoso/x-servicebus-transfer/1", outcome="empty", count=40, namespace="fabrikam")]
    meters = [Meter(*found) for found in Answers(rows).ask(metering_sql("journal"))]
    traffic = Traffic.metered(meters)

    assert (traffic.messages, traffic.send_units, traffic.deliveries, traffic.delivery_units) == (4, 8, 4, 8)
    assert (traffic.settles, traffic.polls, traffic.others) == (4, 7, 1)

    setting = as_it_was(Setting(syphons=0), meters, [Hour("contoso", "2026-11-16 00:00:00", 1)])
    assert (setting.period_s, setting.diverted, setting.pings, setting.entities) == (HOUR_S, 3, 2, 1)
    for model in MODELS.values():
        idle = sum(found.units for found in meters if found.kind == "empty_receive" and "transfer" in found.entity)
        assert paired(traffic, setting, model).operations == sum(found.billed(model) for found in meters) - idle


def test_metered_traffic_can_be_thought_to_go_on() -> None:
    traffic, setting = Traffic.imagined(10, 1), Setting(period_s=HOUR_S)
    longer, over = lasting(traffic, setting, DAY_S, metered=True)
    assert (longer.messages, over.period_s) == (240, DAY_S)
    same, over = lasting(traffic, setting, DAY_S, metered=False)
    assert (same.messages, over.period_s) == (10, DAY_S)


def test_every_combination_is_tried_and_what_changes_nothing_is_told_once() -> None:
    tried = settings_of(Setting(diverted=7), [5, 10], [60], [HOUR_S, DAY_S])
    assert len(tried) == 4
    assert {setting.diverted for setting in tried} == {None}
    shapes = [found.shape for found in compare(Traffic.imagined(1000, 1), tried, OPERATIONS)]
    assert shapes == ["unpaired", *["paired"] * 4, "passive", *["active"] * 2]


def test_an_estimate_is_priced_month_by_month() -> None:
    table = load("2026-11")
    traffic = Traffic.imagined(10_000_000, 100)
    month = unpaired(traffic, Setting(), OPERATIONS)
    amounts = {line.what: line.amount for line in month.charges(table)}
    assert amounts["operations"] == Decimal("0.80") * 17
    assert amounts["base"] == Decimal("0.0135") * 720
    longer = unpaired(traffic, Setting(period_s=62 * DAY_S), OPERATIONS)
    assert {line.what: line.amount for line in longer.charges(table)}["operations"] == Decimal("0.80") * 4
