"""Every metric that Twinbus exposes, told once: its name, kind, labels and meaning, and the values that one can have.

The broker's page (`admin.metrics`) and a paired client's collector (`pair.metrics`) take them from here, and a test
compares them with docs/metrics.md; who counts what is theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

Number = int | float
Labels = tuple[tuple[str, str], ...]


class Histogram(NamedTuple):
    """Measurements by size: how many were within each bound and above the one before, and how many were beyond all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # One more than there are bounds.
    sum: float


class Spread:
    """A histogram in the making. Written by one thread, read by anybody."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One more measurement."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def histogram(self) -> Histogram:
        """All measurements so far."""
        return Histogram(self._bounds, tuple(self._counts), self._sum)


Value = Number | Histogram
Samples = Mapping[Labels, Value]
# By name, `twinbus_` included.
Numbers = Mapping[str, Samples]


class Metric(NamedTuple):
    """One metric. A counter's name ends in `_total`, and a name says its unit where it has one."""

    name: str
    kind: str  # counter, gauge or histogram.
    labels: tuple[str, ...]
    meaning: str


def _of(kind: str, labels: str, **meanings: str) -> tuple[Metric, ...]:
    return tuple(Metric(f"twinbus_{name}", kind, tuple(labels.split()), text) for name, text in meanings.items())


BROKER: tuple[Metric, ...] = (
    *_of(
        "counter",
        "namespace",
        messages_received_total="Messages that senders handed over: accepted and rejected ones.",
        messages_accepted_total="Messages that senders were told are safe.",
        messages_rejected_total="Messages that were refused.",
        messages_stored_total="Messages that commits took from clients, duplicates and pings included.",
        messages_delivered_total="Messages handed out to receivers, again and again if need be.",
        messages_completed_total="Messages that receivers completed.",
        messages_abandoned_total="Messages that receivers gave back.",
        messages_deferred_total="Messages that receivers deferred.",
        messages_deadlettered_total="Messages that went to a dead-letter queue, for whatever reason.",
        messages_expired_total="Messages whose time to live was over.",
        messages_duplicate_dropped_total="Messages that duplicate detection accepted and dropped.",
        messages_presettled_dropped_total="Refused messages whose senders did not want to hear of it.",
        lock_expired_total="Locks whose time was over before their messages were settled.",
    ),
    *_of("counter", "namespace kind", billable_operations_total="Operations in units of 64 KB, by kind."),
    *_of("counter", "namespace reason", refusals_total="Requests that were refused, by fault."),
    *_of("counter", "namespace reason", auth_failures_total="Keys and tokens that were not good, or not enough."),
    *_of(
        "counter",
        "namespace",
        connections_total="AMQP connections that were opened.",
        protocol_errors_total="AMQP connections given up because of what the client sent.",
        rest_requests_total="Requests for messages over HTTP.",
        relay_requests_total="HTTP requests that were relayed.",
        relay_sockets_total="WebSockets that were relayed.",
        synced_commits_total="Commits that waited for the disk.",
    ),
    *_of(
        "gauge",
        "namespace",
        open_connections="AMQP connections.",
        open_links="AMQP links.",
        pending_bytes="Bytes of messages that wait for a commit.",
        queues="Queues, backlog queues included.",
        topics="Topics.",
        hybrid_connections="Hybrid connections of the relay.",
        relay_listeners="Listeners at the relay.",
        relay_connections="Connections through the relay.",
        oldest_message_age_seconds="Age of the oldest active message, backlog queues left out; 0 if there is none.",
        disk_free_bytes="Free space where the namespace is kept; not for stores in PostgreSQL.",
        disk_free_limit_bytes="Below this, /healthz/disk fails; not for stores in PostgreSQL.",
    ),
    *_of("gauge", "namespace state", messages="Messages by state, in all entities; locked ones are active, too."),
    *_of(
        "gauge",
        "namespace primary",
        backlog_messages="Messages in backlog queues that wait to be brought home, by primary.",
        backlog_oldest_seconds="Age of the oldest of them; 0 if there is none.",
        backlog_deadletter_messages="Messages that the syphon could not bring home, by primary.",
    ),
    *_of(
        "gauge",
        "namespace store",
        store_up="1 if the messaging store takes commands.",
        journal_waiting_rows="Transactions that are not in a file yet; only where the journal is exported.",
        journal_export_failing="1 if the journal cannot be exported; only where it is exported.",
    ),
    *_of("gauge", "namespace store state", store_state="1 for the state that the messaging store is in."),
    *_of("histogram", "namespace store", commit_fsync_seconds="How long commits took that waited for the disk."),
    *_of("gauge", "namespace datacenter", namespace_info="1; names the datacenter."),
    *_of("gauge", "version python", build_info="1; names what is running."),
    *_of(
        "gauge",
        "",
        event_loop_lag_seconds="The longest that the event loop was late within the last minute.",
        clock_drift_seconds="How far the machine's clock is ahead of the broker's, which was set at its start.",
        certificate_expires_timestamp_seconds="When the TLS certificate ends; only where one is used.",
    ),
    # Only where --entity-metrics asks for them.
    *_of("gauge", "namespace entity state", entity_messages="Messages by state, in one entity."),
    *_of(
        "gauge",
        "namespace entity",
        entity_oldest_message_age_seconds="Age of the entity's oldest active message; 0 if there is none.",
    ),
)

PAIR: tuple[Metric, ...] = (
    *_of(
        "gauge",
        "pair state",
        pair_state="1 for the worst state that an entity is in: healthy, suspect, failed_over or refused.",
        pair_ill_entities="Entities in each state but healthy; a fragment of a partitioned one counts as one.",
    ),
    *_of(
        "counter",
        "pair",
        pair_failovers_total="Failovers of entities that took effect.",
        pair_diverted_messages_total="Messages that a backlog queue took instead of the primary.",
        pair_pings_total="Pings of entities that had failed over.",
        pair_pings_failed_total="Pings that failed.",
        syphon_moved_total="Messages that this process brought home.",
        syphon_deadlettered_total="Messages that could not be brought home for good.",
        syphon_duplicates_total="Messages that were sent to the primary and could not be completed: they come twice.",
        outbox_sent_total="Messages that left the outbox.",
        ledger_suppressed_total="Copies that the ledger kept from being handed out again.",
        ledger_handed_total="Copies that the ledger let pass.",
    ),
    *_of("counter", "pair entity", pair_entity_pings_total="Pings of each entity that had failed over."),
    *_of("histogram", "pair", pair_ping_seconds="How long pings took, whether they succeeded or not."),
    *_of(
        "gauge",
        "pair",
        pair_failed_over_seconds="How long the entity that failed over first has been so; 0 if none has.",
        pair_resting_queues="Backlog queues that are left out because they failed.",
        outbox_messages="Messages in the outbox that wait to be sent.",
        outbox_oldest_seconds="Age of the oldest of them; 0 if there is none.",
        outbox_set_aside_messages="Messages in the outbox that nobody will take; they wait for a decision.",
    ),
)

MEANINGS = {metric.name: metric for metric in (*BROKER, *PAIR)}
