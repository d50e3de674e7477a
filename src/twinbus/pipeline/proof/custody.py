"""Who had each copy of each message, and how that ended: the journal's operations as a chain of views in SQL.

The text is Spark's SQL and DuckDB's alike. Which files the first views stand on is the caller's business, and what
follows from custody (lost, stuck, doubled, late, unbalanced) is in `judgement`.

A copy is known by namespace, entity (by number, since one that is made anew is another) and sequence number. It is
created once and ends once. A scheduled copy that becomes active gets a new number: the old one ends and the new one is
created as *renumbered*, which cancels out. A dead letter keeps its number, so it is the same copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from twinbus.model.address import BACKLOG_PART, ORDERED_BACKLOG_PART


class Way(NamedTuple):
    """One of the ways in which a copy is created or ends."""

    name: str
    condition: str
    meaning: str


_BY_FORWARDING = "client = 'forward' AND connection = ''"
_BY_REDRIVE = "client IN ('api', 'job') AND connection = 'http'"  # At the prompt, or as a job of the console.

# The first condition that holds is taken. Their places in these tables, counted from one, are the codes in the views.
CREATED = (
    Way("forwarded", f"operation = 'send' AND kind <> 'topic' AND {_BY_FORWARDING}", "came from another queue"),
    Way("redriven", f"operation = 'send' AND kind <> 'topic' AND {_BY_REDRIVE}", "came back from the dead letters"),
    Way("accepted", "operation = 'send' AND kind <> 'topic'", "taken from a sender"),
    Way("scheduled", "operation = 'schedule'", "taken from a sender, for later"),
    Way("fanned_out", "operation = 'copy'", "a topic's message, for a subscription"),
    Way("renumbered", "operation = 'activate'", "its time came"),
)
ENDED = (
    Way("forwarded", f"operation = 'complete' AND {_BY_FORWARDING}", "went to a queue of another store"),
    Way("published", "operation = 'complete' AND outcome = 'published'", "a topic's scheduled message, copied"),
    Way("completed", "operation = 'complete'", "by a receiver"),
    Way("received_deleted", "operation = 'receive_delete'", "handed out and removed"),
    Way("redriven", f"operation = 'forward' AND sub_queue <> '' AND {_BY_REDRIVE}", "went back to its queue"),
    Way("forwarded", "operation = 'forward'", "went to another queue"),
    Way("expired", "operation = 'ttl_expire' AND outcome = 'removed'", "its time to live was over"),
    Way("purged", "operation = 'delete'", "deleted in a batch, or purged"),
    Way("cancelled", "operation = 'cancel'", "scheduled, and taken back"),
    Way("dropped", "operation = 'drop'", "deleted with its entity"),
    Way("damaged", "operation = 'damaged'", "its record did not match its checksum; set aside"),
)
RENUMBERED = len(ENDED) + 1  # The old number of an activated copy.

_UNLOCKED = (
    "operation IN ('abandon', 'release', 'defer', 'expire_lock', 'drop_lock', 'transfer_deadletter')"
    " OR (operation = 'deadletter' AND outcome = '')"
)
_DIED = (
    "operation IN ('deadletter', 'transfer_deadletter') OR (operation = 'ttl_expire' AND outcome = 'deadletter')"
    " OR (operation = 'copy' AND sub_queue <> '')"
)


def code(ways: tuple[Way, ...], *names: str) -> str:
    """The codes of ways by their names, as a list in SQL."""
    found = [str(place) for place, way in enumerate(ways, 1) if way.name in names]
    if not found:
        raise KeyError(names)
    return f"({', '.join(found)})"


def _case(ways: tuple[Way, ...], otherwise: str = "0") -> str:
    cases = " ".join(f"WHEN {way.condition} THEN {place}" for place, way in enumerate(ways, 1))
    return f"CASE {cases} ELSE {otherwise} END"


IN_BACKLOG = f"(lower(entity) LIKE '%{BACKLOG_PART}%' OR lower(entity) LIKE '%{ORDERED_BACKLOG_PART}%')"
_OPERATIONS = "', '".join(
    (
        "send", "schedule", "copy", "activate", "receive", "receive_delete", "complete", "abandon", "release", "defer",
        "deadletter", "transfer_deadletter", "forward", "expire_lock", "drop_lock", "ttl_expire", "delete", "cancel",
        "drop", "damaged",
    )
)  # fmt: skip

# `journal` is the files as they are; `at_us` is made by the caller, since here the engines differ.
STEPS = f"""
SELECT namespace, entity, kind, queue - queue % 4 AS entity_no, sequence_number AS number, message_id, at_us,
    batch * 1000000 + place AS turn,
    {_case(CREATED)} AS created,
    {_case(ENDED)} AS ended,
    CASE WHEN operation IN ('receive', 'receive_delete') THEN 1 WHEN {_UNLOCKED} THEN -1 ELSE 0 END AS handed,
    CASE WHEN operation IN ('receive', 'receive_delete') AND sub_queue = '' AND connection <> '' THEN 1 ELSE 0 END
        AS given,
    CASE WHEN sub_queue = '' THEN 0 ELSE 1 END AS among_dead,
    CASE WHEN {_DIED} THEN 1 ELSE 0 END AS died,
    CASE WHEN operation = 'transfer_deadletter' THEN 1 ELSE 0 END AS untransferable,
    CASE WHEN operation = 'defer' THEN 1 ELSE 0 END AS deferred,
    CASE WHEN operation = 'send' AND kind = 'topic' THEN 1 ELSE 0 END AS published
FROM journal
WHERE sequence_number > 0 AND operation IN ('{_OPERATIONS}')
UNION ALL
SELECT namespace, entity, kind, queue - queue % 4, TRY_CAST(outcome AS BIGINT), message_id, at_us,
    batch * 1000000 + place, 0, {RENUMBERED}, 0, 0, 0, 0, 0, 0, 0
FROM journal
WHERE sequence_number > 0 AND operation = 'activate'
"""

_FIRST_HAND = code(CREATED, "accepted", "scheduled")
_WORKED = code(ENDED, "completed", "received_deleted")
_DISCARDED = code(ENDED, "expired", "purged", "cancelled", "dropped")

# Everything but the keys is a number, so that Spark need not sort in order to aggregate.
COPIES = f"""
SELECT namespace, entity, kind, entity_no, number, message_id,
    CASE WHEN {IN_BACKLOG} THEN 1 ELSE 0 END AS in_backlog,
    count(CASE WHEN created > 0 THEN 1 END) AS creations,
    min(CASE WHEN created > 0 THEN created END) AS how_created,
    min(CASE WHEN created > 0 OR published > 0 THEN at_us END) AS created_us,
    count(CASE WHEN ended > 0 THEN 1 END) AS ends,
    max(ended) AS how_ended,
    max(CASE WHEN ended > 0 THEN at_us END) AS ended_us,
    max(CASE WHEN ended > 0 THEN among_dead ELSE 0 END) AS ended_dead,
    sum(given) AS deliveries,
    min(CASE WHEN given > 0 THEN at_us END) AS delivered_us,
    min(CASE WHEN given > 0 THEN turn END) AS delivered_turn,
    sum(handed) AS held,
    max(died) AS died,
    max(untransferable) AS untransferable,
    max(deferred) AS deferred,
    sum(published) AS published
FROM steps
GROUP BY namespace, entity, kind, entity_no, number, message_id
"""

# Each namespace's journal: whether its beginning is there, and the transactions that are missing. Every one has a
# first operation.
STREAMS = """
SELECT namespace, store, writer, min(batch) AS first, max(batch) AS last,
    count(CASE WHEN place = 0 THEN 1 END) AS batches, min(at_us) AS first_us, max(at_us) AS last_us
FROM journal
GROUP BY namespace, store, writer
"""

# Namespaces whose journal does not begin at its beginning. There, what has a lower number than the first copy whose
# creation is known was carried over from before.
CUT = "SELECT namespace, min(first_us) AS first_us FROM streams GROUP BY namespace HAVING max(first) > 1"
BEGINNINGS = """
SELECT namespace, lower(entity) AS path, min(number) AS first_number FROM copies
WHERE creations > 0 AND namespace IN (SELECT namespace FROM cut)
GROUP BY namespace, lower(entity)
"""

# What a browse saw, and where it looked. Who is browsed twice was moved to the dead letters meanwhile.
SEEN = """
SELECT namespace, lower(entity) AS path, sequence_number AS number, max(message_id) AS message_id,
    max(entity) AS entity, max(sub_queue) AS sub_queue, max(state) AS state, max(destination) AS destination,
    min(began_us) AS began_us, min(enqueued_us) AS enqueued_us
FROM residents
WHERE sequence_number > 0
GROUP BY namespace, lower(entity), sequence_number
"""
LOOKED = """
SELECT namespace, lower(entity) AS path, min(began_us) AS began_us, max(ended_us) AS looked_us
FROM residents
GROUP BY namespace, lower(entity)
"""

# Copies that their journal says are there, and whether they are. What came after the browse began, or where nobody
# looked, is there by the journal's word alone.
OPEN = """
SELECT copies.namespace AS namespace, copies.entity AS entity, kind, entity_no, copies.number AS number,
    copies.message_id AS message_id, in_backlog, created_us, how_created, deliveries, held, died, untransferable,
    deferred,
    CASE WHEN seen.number IS NOT NULL THEN 'seen'
        WHEN looked.began_us IS NULL OR created_us >= looked.began_us - {slack_us} THEN 'told'
        ELSE 'missing' END AS standing,
    CASE WHEN untransferable > 0 THEN 'transfer_dead' WHEN died > 0 THEN 'dead' WHEN deferred > 0 THEN 'deferred'
        WHEN how_created = {scheduled} THEN 'scheduled' WHEN held > 0 THEN 'locked' ELSE 'active' END AS state,
    coalesce(seen.destination, '') AS destination
FROM copies
LEFT JOIN seen ON seen.namespace = copies.namespace AND seen.path = lower(copies.entity)
    AND seen.number = copies.number
LEFT JOIN looked ON looked.namespace = copies.namespace AND looked.path = lower(copies.entity)
WHERE creations > 0 AND ends = 0
"""
SCHEDULED = code(CREATED, "scheduled").strip("()")

# Copies that a browse saw, and what their journal says of them. Where something is joined with all copies, the other
# side is what is small, so that Spark can hand it to everybody instead of sorting the copies.
MET = """
SELECT copies.namespace AS namespace, seen.path AS path, copies.number AS number, max(creations) AS creations,
    min(ends) AS ends, max(ended_us) AS ended_us
FROM copies JOIN seen ON seen.namespace = copies.namespace AND seen.path = lower(copies.entity)
    AND seen.number = copies.number
GROUP BY copies.namespace, seen.path, copies.number
"""

# Sends that were accepted and dropped as duplicates: they arrived, and made no copy.
DUPLICATES = f"""
SELECT namespace, entity, message_id, count(*) AS dropped, min(at_us) AS dropped_us,
    CASE WHEN {IN_BACKLOG} THEN 1 ELSE 0 END AS in_backlog
FROM journal
WHERE operation = 'send' AND outcome = 'duplicate' AND message_id <> ''
GROUP BY namespace, entity, message_id
"""

# One row for each message id, over both namespaces.
MESSAGES = f"""
SELECT message_id,
    min(arrival_us) AS accepted_us,
    min(activated_us) AS activated_us,
    min(CASE WHEN in_backlog = 1 THEN arrival_us END) AS diverted_us,
    min(CASE WHEN in_backlog = 0 THEN arrival_us END) AS home_us,
    max(CASE WHEN in_backlog = 1 THEN worked_us END) AS left_us,
    sum(CASE WHEN in_backlog = 1 AND worked > 0 THEN 1 ELSE 0 END) AS moves,
    sum(CASE WHEN in_backlog = 0 THEN arrivals ELSE 0 END) AS arrivals,
    sum(CASE WHEN in_backlog = 0 THEN copies ELSE 0 END) AS copies,
    sum(CASE WHEN in_backlog = 0 THEN worked ELSE 0 END) AS worked,
    min(CASE WHEN in_backlog = 0 THEN worked_us END) AS worked_us,
    sum(CASE WHEN in_backlog = 0 THEN deliveries ELSE 0 END) AS deliveries,
    sum(discarded) AS discarded,
    sum(died) AS died
FROM (
    SELECT message_id, in_backlog,
        CASE WHEN how_created IN {_FIRST_HAND} OR published > 0 THEN created_us END AS arrival_us,
        CASE WHEN how_created = {code(CREATED, "renumbered").strip("()")} THEN created_us END AS activated_us,
        CASE WHEN how_created IN {_FIRST_HAND} OR published > 0 THEN 1 ELSE 0 END AS arrivals,
        CASE WHEN creations > 0 THEN 1 ELSE 0 END AS copies,
        CASE WHEN how_ended IN {_WORKED} AND ended_dead = 0 THEN 1 ELSE 0 END AS worked,
        CASE WHEN how_ended IN {_WORKED} AND ended_dead = 0 THEN ended_us END AS worked_us,
        deliveries,
        CASE WHEN how_ended IN {_DISCARDED} THEN 1 ELSE 0 END AS discarded,
        died
    FROM copies WHERE message_id <> ''
    UNION ALL
    SELECT message_id, in_backlog, dropped_us, NULL, 1, 0, 0, NULL, 0, 0, 0 FROM duplicates
) AS traces
GROUP BY message_id
"""


def views(slack_us: int) -> Mapping[str, str]:
    """The chain of views in order, over `journal` (with `at_us`) and `residents` (with `began_us` and the like)."""
    return {
        "steps": STEPS,
        "copies": COPIES,
        "streams": STREAMS,
        "cut": CUT,
        "beginnings": BEGINNINGS,
        "seen": SEEN,
        "looked": LOOKED,
        "met": MET,
        "open": OPEN.format(slack_us=slack_us, scheduled=SCHEDULED),
        "duplicates": DUPLICATES,
        "messages": MESSAGES,
    }
