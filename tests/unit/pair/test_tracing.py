"""Spans around what a pair does: what they say, whom they link to, and that nothing happens without OpenTelemetry."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from twinbus.client import messages
from twinbus.client.diverting import divert, restore
from twinbus.client.errors import ClientError
from twinbus.pair import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return made


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_span_has_the_attributes_of_the_conventions(exporter: InMemorySpanExporter) -> None:
    with tracing.span("send", "orders", kind="CLIENT", count=2, at=("contoso", 5671)) as span:
        span.say(diverted=True)
    made = only(exporter)
    assert (made.name, made.kind) == ("send orders", trace.SpanKind.CLIENT)
    assert made.attributes == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
        "server.address": "contoso",
        "server.port": 5671,
        "twinbus.diverted": True,
    }


def test_a_subscription_is_told_apart_from_its_topic(exporter: InMemorySpanExporter) -> None:
    with tracing.span("complete", "events/Subscriptions/audit", type_="settle", message_id="m"):
        pass
    attributes = dict(only(exporter).attributes or {})
    assert attributes["messaging.destination.name"] == "events"
    assert attributes["messaging.destination.subscription.name"] == "audit"
    assert attributes["messaging.message.id"] == "m"


@pytest.mark.parametrize(
    ("properties", "links"),
    [
        ({"traceparent": PARENT}, 1),
        ({"Diagnostic-Id": PARENT}, 1),
        ({"Diagnostic-Id": PARENT, "traceparent": PARENT}, 1),
        ({"traceparent": "not one"}, 0),
        ({"Diagnostic-Id": "|legacy.id."}, 0),
        ({"traceparent": f"00-{'0' * 32}-{'0' * 16}-00"}, 0),
        ({"traceparent": 5}, 0),
        ({}, 0),
    ],
)
def test_links_lead_to_whoever_sent_the_message(
    exporter: InMemorySpanExporter, properties: dict[str, Any], links: int
) -> None:
    with tracing.span("syphon", "backlog", payloads=[messages.build(b"x", properties=properties), b"\x00garbage"]):
        pass
    found = only(exporter).links
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in found] == [PARENT[3:-3]] * links


def test_the_senders_context_survives_the_way_through_the_backlog() -> None:
    payload = messages.build(b"x", message_id="m", properties={"traceparent": PARENT, "Diagnostic-Id": PARENT})
    home = restore(divert(payload, "orders", lambda: "id")).payload
    assert messages.read(home).properties == {"traceparent": PARENT, "Diagnostic-Id": PARENT}


def test_an_error_that_leaves_and_one_that_is_answered_are_both_told(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"), tracing.span("send", "orders"):
        raise ValueError("no")
    with tracing.span("send", "orders") as span:
        span.fail(ClientError("amqp:not-found", "there is no such entity"))
    left, answered = exporter.get_finished_spans()
    assert (left.attributes or {})["error.type"] == "ValueError"
    assert (answered.attributes or {})["error.type"] == "amqp:not-found"
    assert left.status.status_code is answered.status.status_code is StatusCode.ERROR


def test_a_root_belongs_to_no_trace_under_way(exporter: InMemorySpanExporter) -> None:
    with trace.get_tracer("app").start_as_current_span("outer"), tracing.span("send", "orders", root=True):
        pass
    inner, outer = exporter.get_finished_spans()
    assert inner.parent is None
    assert inner.context.trace_id != outer.context.trace_id


@pytest.mark.parametrize("is_imported", [False, True])
async def test_without_opentelemetry_nothing_happens(monkeypatch: pytest.MonkeyPatch, is_imported: bool) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)  # Imported, as libraries do, and never set up.
    if not is_imported:
        monkeypatch.delitem(sys.modules, "opentelemetry.trace")

    class Receiver:
        scope = "orders"

        @tracing.settles("complete")
        async def complete_message(self, message: str) -> str:
            return f"completed {message}"

    assert not tracing.is_on()
    with tracing.span("send", "orders", payloads=[b"never read"]) as span:
        span.say(diverted=True)
        span.fail(ValueError())
    tracing.current().say(diverted=True)
    assert await Receiver().complete_message("m") == "completed m"
