"""What a broker tells those who watch it: metrics under their names, small checks, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from prometheus_client.parser import text_string_to_metric_families

from support.broker import SOON_S, BrokerProcess, wait_for
from twinbus.model.metrics import BROKER

pytestmark = pytest.mark.feature("metrics-health-logs")

# Only where they are used.
SELDOM = {
    "twinbus_journal_waiting_rows",
    "twinbus_journal_export_failing",
    "twinbus_certificate_expires_timestamp_seconds",
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--entity-metrics", "--log-format", "json", "--stores", "2", "--test-clock")
    with BrokerProcess(tmp_path_factory.mktemp("watched"), options=options) as broker:
        broker.create_queue("orders")
        broker.create_queue("contoso/x-servicebus-transfer/0")
        yield broker


def ask(broker: BrokerProcess, path: str, **body: str) -> None:
    status, text = broker.request("POST", f"/$api/{path}", json.dumps(body))
    assert status == 200, text


def lines(broker: BrokerProcess) -> list[dict[str, object]]:
    return [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]


def test_metrics_have_the_names_types_and_labels_of_the_table(watched: BrokerProcess) -> None:
    _, page = watched.request("GET", "/metrics")
    found = {family.name: family for family in text_string_to_metric_families(page) if family.name[:8] == "twinbus_"}
    table = {metric.name.removesuffix("_total"): metric for metric in BROKER if metric.name not in SELDOM}
    assert found.keys() == table.keys()
    for name, metric in table.items():
        assert (found[name].type, found[name].documentation) == (metric.kind, metric.meaning)
        assert {label for sample in found[name].samples for label in sample.labels} - {"le"} == set(metric.labels), name
    assert "process_open_fds" in page


def test_what_happens_to_messages_is_counted(watched: BrokerProcess) -> None:
    with ServiceBusClient.from_connection_string(watched.connection_string()) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(f"m{number}") for number in range(3)])
        with client.get_queue_sender("contoso/x-servicebus-transfer/0") as sender:
            sender.send_messages(ServiceBusMessage("diverted"))
        with client.get_queue_receiver("orders", max_wait_time=SOON_S) as receiver:
            first, second = receiver.receive_messages(1) + receiver.receive_messages(1)
            receiver.complete_message(first)
            receiver.dead_letter_message(second)
    with (
        ServiceBusClient.from_connection_string(watched.connection_string(key="wrong"), retry_total=0) as stranger,
        pytest.raises(ServiceBusError),
        stranger.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("m"))
    ask(watched, "clock", advance="PT100S")

    expected = {
        'twinbus_messages_received_total{namespace="compat"}': 4,
        'twinbus_messages_accepted_total{namespace="compat"}': 4,
        'twinbus_messages_stored_total{namespace="compat"}': 4,
        'twinbus_messages_delivered_total{namespace="compat"}': 2,
        'twinbus_messages_completed_total{namespace="compat"}': 1,
        'twinbus_messages_deadlettered_total{namespace="compat"}': 1,
        'twinbus_messages{namespace="compat",state="active"}': 2,
        'twinbus_messages{namespace="compat",state="deadletter"}': 1,
        'twinbus_entity_messages{entity="orders",namespace="compat",state="active"}': 1,
        'twinbus_backlog_messages{namespace="compat",primary="contoso"}': 1,
        'twinbus_billable_operations_total{kind="send",namespace="compat"}': 4,
        'twinbus_billable_operations_total{kind="settle",namespace="compat"}': 2,
    }
    wait_for(lambda: expected.items() <= watched.metrics().items(), "the counts")
    found = watched.metrics()
    assert found['twinbus_backlog_oldest_seconds{namespace="compat",primary="contoso"}'] >= 100
    assert found['twinbus_oldest_message_age_seconds{namespace="compat"}'] >= 100
    assert watched.metric("twinbus_auth_failures_total") >= 1
    assert watched.metric("twinbus_commit_fsync_seconds_count") == watched.metric("twinbus_synced_commits_total")


def test_a_store_that_is_down_is_told_by_its_check_and_readiness_waits_for_the_last(watched: BrokerProcess) -> None:
    # The event loop is late where a machine is busy, as tests make it; and then its check says so.
    told = json.loads(watched.request("GET", "/healthz")[1])
    assert {name for name, found in told.items() if found["status"] == "ok"} | {"loop"} == told.keys()
    ask(watched, "stores/1/down", reason="a test")
    status, text = watched.request("GET", "/healthz/store")
    told = json.loads(text)
    assert (status, told["status"], told["reason"]) == (503, "failing", "store 1 of 'compat' is down.")
    assert told["since"]
    assert watched.request("GET", "/readyz")[0] == 200
    ask(watched, "stores/0/down", reason="a test")
    assert watched.request("GET", "/readyz")[0] == 503
    for store in (0, 1):
        ask(watched, f"stores/{store}/up")
    assert watched.request("GET", "/healthz/store")[0] == 200
    events = [(line["event"], line.get("store")) for line in lines(watched)]
    assert ("store.down", 1) in events
    assert ("store.up", 1) in events


def test_counters_do_not_fall_when_a_store_goes_and_comes(watched: BrokerProcess) -> None:
    names = ("twinbus_messages_stored_total", "twinbus_synced_commits_total", "twinbus_commit_fsync_seconds_count")
    before = {name: watched.metric(name) for name in names}
    for store in (0, 1):
        ask(watched, f"stores/{store}/down", reason="a test")
        ask(watched, f"stores/{store}/up")
    assert all(watched.metric(name) >= count for name, count in before.items())


def test_a_refusal_is_a_line_of_json_with_its_tracking_id_and_no_secret(watched: BrokerProcess) -> None:
    unsigned = {"Authorization": "SharedAccessSignature sr=x&sig=c2VjcmV0&se=1&skn=x"}
    status, text = watched.request("GET", "/orders%0Aforged?api-version=2021-05", headers=unsigned)
    assert status == 401
    assert "c2VjcmV0" not in watched.log
    found = [
        line for line in lines(watched) if line["event"] == "auth.refused" and str(line["entity"]).startswith("ord")
    ]
    assert found[-1]["entity"] == "orders\\nforged"
    assert str(found[-1]["tracking_id"]) in text
    assert {"time", "level", "logger", "message", "namespace", "status", "reason"} <= found[-1].keys()
    assert watched.key not in watched.log
