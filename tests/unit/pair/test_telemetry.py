"""Changes of state as events: in structured logs, and in a span of OpenTelemetry that is recording."""

from __future__ import annotations

import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from twinbus.pair.route import health_board
from twinbus.pair.route.health import Event, Policy
from twinbus.pair.route.health_board import HealthBoard, Scope


@pytest.fixture
def board() -> HealthBoard:
    return HealthBoard(Policy(failover_interval=10, ping_interval=5), lambda: 100.0)


def test_a_change_is_logged_with_a_plain_document(board: HealthBoard, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "twinbus.pair.route.health_board"):
        board.record(Scope("orders", 3), Event.FAILED, "no answer", key="k")
        board.record(Scope("orders", 3), Event.SENT)

    documents = [record.twinbus for record in caplog.records]  # type: ignore[attr-defined]
    assert documents[0] == {
        "event": "pair.suspected",
        "entity": "orders",
        "fragment": 3,
        "before": "healthy",
        "after": "suspect",
        "reason": "no answer",
    }
    assert (documents[1]["event"], documents[1]["after"]) == ("pair.failover.ended", "healthy")
    json.dumps(documents)


def test_a_recording_span_gets_an_event(board: HealthBoard) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("test").start_as_current_span("place order"):
        board.record(Scope("orders"), Event.FAILED, "no answer")
    board.record(Scope("orders"), Event.SENT)  # Outside of any span.

    (span,) = exporter.get_finished_spans()
    (event,) = span.events
    assert event.name == "twinbus.pair.suspected"
    assert dict(event.attributes or {}) == {
        "twinbus.entity": "orders",
        "twinbus.before": "healthy",
        "twinbus.after": "suspect",
        "twinbus.reason": "no answer",
    }


def test_without_opentelemetry_nothing_is_missed(board: HealthBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(health_board.sys.modules, "opentelemetry.trace")

    assert board.record(Scope("orders"), Event.FAILED, "no answer").reason == "no answer"
