"""One outage, as those see it who watch: the client's metrics, its spans beside the SDK's, and the broker's page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

from support.pair_scene import QUICK, Scene, until
from twinbus.faults.proxy import Mode
from twinbus.model.metrics import PAIR
from twinbus.pair.aio import Ledger, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.metrics import PairMetrics
from twinbus.pair.sdk.clients.sync import PairedServiceBusClient as SyncClient


class Traces:
    """What was exported."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str, **attributes: Any) -> ReadableSpan:
        """The only span of a name that has these attributes of ours."""
        wanted = {f"twinbus.{key}": value for key, value in attributes.items()}
        (found,) = [span for span in self.named(name) if wanted.items() <= dict(span.attributes or {}).items()]
        return found

    def children(self, parent: ReadableSpan) -> list[ReadableSpan]:
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if span.parent is not None and span.parent.span_id == parent.context.span_id]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """An application that uses OpenTelemetry, and has told the SDK to use it, too."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    settings.tracing_implementation.set_value("opentelemetry")
    yield Traces(exporter)
    settings.tracing_implementation.unset_value()


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.trace_id for link in span.links}


def value(registry: CollectorRegistry, name: str, scene: Scene, **labels: str) -> float | None:
    return registry.get_sample_value(f"twinbus_{name}", {"pair": scene.name, **labels})


async def test_an_outage_is_seen_in_metrics_and_in_one_trace(scene: Scene, traces: Traces, tmp_path: Path) -> None:
    queue = scene.queue()
    options = {**QUICK, "backlog_queue_count": 1, "failover_interval": 0, "enable_syphon": True, "poll": 1}
    registry = CollectorRegistry()
    client = PairedServiceBusClient.from_connection_strings(
        scene.connection_string(),
        scene.secondary.connection_string(),
        SendAvailabilityOptions(**options),
        primary_name=scene.name,
        outbox=tmp_path / "outbox.db",
    )
    async with Ledger(tmp_path / "ledger.db") as ledger, client:
        registry.register(PairMetrics(client, ledger))
        assert {family.name for family in registry.collect()} == {metric.name.removesuffix("_total") for metric in PAIR}
        (backlog,) = client.status().backlog_queues
        with trace.get_tracer("app").start_as_current_span("place order") as order:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("a", message_id="a"))
                scene.proxy.set(Mode.REFUSE)
                scene.proxy.reset()
                await sender.send_messages(ServiceBusMessage("b", message_id="b"))
        assert value(registry, "pair_state", scene, state="failed_over") == 1
        assert value(registry, "pair_failovers_total", scene) == 1
        assert value(registry, "pair_diverted_messages_total", scene) == 1
        assert scene.secondary.metrics()[
            f'twinbus_backlog_messages{{namespace="fabrikam",primary="{scene.name}"}}'
        ] == pytest.approx(1)

        scene.proxy.set(Mode.PASS)
        await until(lambda: value(registry, "syphon_moved_total", scene) == 1, "the message is brought home")
        await until(lambda: value(registry, "pair_state", scene, state="healthy") == 1, "sends go to the primary")
        assert (value(registry, "pair_pings_total", scene) or 0) >= 1
        assert (value(registry, "pair_ping_seconds_count", scene) or 0) >= 1

        received: dict[str | None, Any] = {}
        async with client.get_queue_receiver(queue, ledger=ledger) as receiver:
            while len(received) < 2:
                for message in await receiver.receive_messages(2, max_wait_time=5):
                    received[message.message_id] = message.application_properties
                    await receiver.complete_message(message)
        assert value(registry, "ledger_handed_total", scene) == 2

    trace_id = order.get_span_context().trace_id
    # What the SDK wrote into the messages is still there, also after the way through backlog and syphon.
    for properties in received.values():
        written = properties[b"traceparent"].decode()
        assert int(written.split("-")[1], 16) == trace_id
        assert properties[b"Diagnostic-Id"].decode() == written

    healthy = traces.one(f"send {queue}", diverted=False)
    diverted = traces.one(f"send {queue}", diverted=True)
    for span in (healthy, diverted):
        assert (span.kind, span.parent and span.parent.span_id) == (SpanKind.INTERNAL, order.get_span_context().span_id)
        assert (
            dict(span.attributes or {}).items()
            >= {
                "messaging.system": "servicebus",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": queue,
                "server.address": "127.0.0.1",
            }.items()
        )
    assert (healthy.attributes or {})["messaging.message.id"] == "a"
    # The SDK's own span of the call is inside of ours.
    assert SpanKind.CLIENT in {child.kind for child in traces.children(healthy) if child.name == "ServiceBus.send"}
    assert "twinbus.pair.failover.engaged" in {event.name for event in diverted.events}

    kept = traces.one(f"send {backlog}", diverted=True, destination=queue)
    assert kept in traces.children(diverted)
    assert (kept.kind, linked(kept)) == (SpanKind.CLIENT, {trace_id})

    ping = traces.named(f"ping {queue}")[-1]
    assert (ping.parent, ping.kind) == (None, SpanKind.CLIENT)

    (moved,) = [span for span in traces.named(f"syphon {backlog}") if (span.attributes or {}).get("twinbus.moved") == 1]
    assert (moved.parent, linked(moved)) == (None, {trace_id})
    assert moved.context.trace_id != trace_id
    assert (moved.attributes or {})["messaging.batch.message_count"] == 1
    sent = traces.one(f"send {queue}", syphon=True)
    assert sent in traces.children(moved)
    assert linked(sent) == {trace_id}

    settled = [span for span in traces.named(f"complete {queue}") if (span.attributes or {}).get("twinbus.ledger")]
    assert {(span.attributes or {})["messaging.message.id"] for span in settled} == {"a", "b"}
    assert {(span.attributes or {})["messaging.operation.type"] for span in settled} == {"settle"}


async def test_the_sync_client_keeps_its_spans_together_across_threads(scene: Scene, traces: Traces) -> None:
    queue = scene.queue()
    options = SendAvailabilityOptions(**{**QUICK, "backlog_queue_count": 1, "failover_interval": 0})

    def send() -> str:
        with (
            SyncClient.from_connection_strings(
                scene.connection_string(), scene.secondary.connection_string(), options, primary_name=scene.name
            ) as client,
            client.get_queue_sender(queue) as sender,
        ):
            sender.send_messages(ServiceBusMessage("m"))
            return client.status().backlog_queues[0]

    scene.proxy.set(Mode.REFUSE)
    backlog = await asyncio.to_thread(send)
    diverted = traces.one(f"send {queue}", diverted=True, backlog_queue=backlog)
    assert traces.one(f"send {backlog}", diverted=True) in traces.children(diverted)
