"""What follows from custody: lost, stuck, worked on twice, late, out of order, unbalanced; each a query in SQL.

They stand on the views of `custody`, on `sent` (the send logs, a row for each message) and on `ledger` (its export).
The text is Spark's SQL and DuckDB's alike; running it and counting is `reconcile`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.model.address import BACKLOG_PART
from twinbus.pipeline.proof.custody import ENDED, IN_BACKLOG, code
from twinbus.pipeline.proof.evidence import Window
from twinbus.pipeline.proof.kinship import (
    KIN_BY_ID,
    KIN_BY_TAG,
    KNOWN,
    NAMED_BY_ID,
    NAMED_BY_TAG,
    SEVERAL,
    WORKED_BY_ID,
    WORKED_BY_TAG,
)
from twinbus.pipeline.proof.ordering import IN_SESSIONS, OUT_OF_ORDER
from twinbus.pipeline.proof.timing import DELAYS

_WORKED = f"how_ended IN {code(ENDED, 'completed', 'received_deleted')}"
_FINAL = code(ENDED, "completed", "received_deleted", "expired", "purged", "cancelled", "dropped")
_DAMAGED = code(ENDED, "damaged")

# Copies that are there: by their journal and the browse, or by the browse alone where there is no journal.
PRESENT = f"""
SELECT namespace, entity, number, message_id, in_backlog, state, created_us, destination FROM open
WHERE standing <> 'missing'
UNION ALL
SELECT namespace, entity, number, message_id, CASE WHEN {IN_BACKLOG} THEN 1 ELSE 0 END,
    CASE WHEN sub_queue = '' THEN state WHEN sub_queue = '$DeadLetterQueue' THEN 'dead' ELSE 'transfer_dead' END,
    enqueued_us, destination
FROM seen
WHERE namespace NOT IN (SELECT namespace FROM streams)
"""

# What happened before, a journal that lacks its beginning cannot tell.
_BEGINNING = "coalesce((SELECT max(first_us) FROM cut), 0)"

# Messages of which no trace is left, although their sender was told that they are kept; and whether there would be one.
TRACELESS = f"""
SELECT message_id, max(entity) AS entity, min(attempted_us) AS attempted_us,
    CASE WHEN coalesce(min(attempted_us), 0) >= {_BEGINNING} THEN 1 ELSE 0 END AS is_told
FROM sent
WHERE acknowledgements > 0
    AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.message_id = sent.message_id)
    AND NOT EXISTS (SELECT 1 FROM seen WHERE seen.message_id = sent.message_id)
    AND NOT EXISTS (
        SELECT 1 FROM ledger WHERE ledger.tag = sent.message_id AND sent.tag IS NULL AND state <> 'claimed'
    )
GROUP BY message_id
"""

# What may be lost: copies that vanished or were damaged, what left the backlog and arrived nowhere, and what has left
# no trace. There are few, and what speaks for them is gathered by their ids. What was on its way is not missed where it
# was: it is enough that it arrived.
SUSPECTS = f"""
SELECT message_id, namespace, entity, lower(entity) AS path, 1 AS charge, in_backlog AS on_its_way, created_us AS at_us
FROM open WHERE standing = 'missing'
UNION ALL
SELECT message_id, namespace, entity, lower(entity), 2, in_backlog, created_us FROM copies WHERE how_ended IN {_DAMAGED}
UNION ALL
SELECT copies.message_id, namespace, entity, lower(entity), 3, 1, created_us
FROM copies JOIN (SELECT message_id FROM messages WHERE moves > 0 AND arrivals = 0) AS away
    ON away.message_id = copies.message_id
WHERE in_backlog = 1 AND {_WORKED} AND ended_dead = 0 AND ended_us >= {_BEGINNING}
    AND (SELECT count(DISTINCT namespace) FROM streams) > 1
UNION ALL
SELECT message_id, '', entity, lower(entity), CASE WHEN is_told = 1 THEN 4 ELSE 5 END, 1, attempted_us
FROM traceless
"""
# Another copy that has ended as it should (one that ended in the backlog has only gone on), or is there: in the same
# entity, or anywhere.
ALIBIS = f"""
SELECT kin.suspect AS message_id, lower(copies.entity) AS path, 1 - in_backlog AS is_enough
FROM copies JOIN kin ON kin.message_id = copies.message_id
WHERE how_ended IN {_FINAL}
UNION
SELECT kin.suspect, lower(present.entity), 1 FROM present JOIN kin ON kin.message_id = present.message_id
UNION
SELECT suspect, '', 1 FROM known
"""
# Nobody was promised anything about a message that its sender gave up.
GIVEN_UP = """
SELECT sent.message_id AS message_id
FROM sent JOIN (SELECT DISTINCT message_id FROM suspects) AS named ON named.message_id = sent.message_id
GROUP BY sent.message_id HAVING max(acknowledgements) = 0
"""
LOST = """
SELECT message_id, namespace, entity, CASE charge
        WHEN 1 THEN 'its journal says that it is there, and it is not' WHEN 2 THEN 'its record was damaged'
        WHEN 3 THEN 'it left the backlog and never arrived' ELSE 'acknowledged, and no trace of it anywhere' END AS why,
    at_us
FROM suspects AS traces
WHERE NOT EXISTS (SELECT 1 FROM given_up WHERE given_up.message_id = traces.message_id)
    AND NOT EXISTS (
        SELECT 1 FROM alibis WHERE alibis.message_id = traces.message_id
            AND ((charge <= 2 AND alibis.path = traces.path) OR (on_its_way = 1 AND is_enough = 1))
    )
    AND (charge <= 2 OR (charge <= 4 AND {all_have_journals})) AND {in_window}
"""
UNPROVEN = """
SELECT message_id, entity, at_us,
    CASE WHEN charge = 4 THEN 'acknowledged, and neither there nor marked as done'
        ELSE 'acknowledged, perhaps before the journal begins' END AS why
FROM suspects AS traces
WHERE (charge = 5 OR (charge = 4 AND NOT {all_have_journals}))
    AND NOT EXISTS (SELECT 1 FROM alibis WHERE alibis.message_id = traces.message_id AND is_enough = 1)
    AND {in_window}
"""

STUCK = """
SELECT message_id, namespace, entity, destination, state, number,
    CASE WHEN in_backlog = 0 THEN 'it could not be forwarded'
        WHEN state IN ('dead', 'transfer_dead') THEN 'among the dead letters of the backlog'
        WHEN {surplus} THEN 'in a surplus backlog queue'
        ELSE 'not brought home yet' END AS why,
    created_us AS at_us
FROM present AS traces
WHERE (in_backlog = 1 OR state = 'transfer_dead') AND {in_window}
"""
_SURPLUS = (
    f"lower(entity) LIKE '%{BACKLOG_PART}%' AND TRY_CAST(regexp_extract(entity, '([0-9]+)$', 1) AS INT) >= {{count}}"
)

# Copies that were worked on, by entity; the ledger's suppressions are completed copies nobody worked on.
_AT_WORK = f"{_WORKED} AND ended_dead = 0 AND in_backlog = 0 AND copies.message_id <> ''"
_WORKED_COPIES = """
SELECT lower(entity) AS path, tag, min(message_id) AS message_id, count(*) AS completed, min(ended_us) AS first_us,
    max(ended_us) AS last_us, max(entity) AS entity
FROM ({at_work}) AS at_work
GROUP BY lower(entity), tag HAVING count(*) > 1
"""
_SUPPRESSIONS = """
SELECT lower(scope) AS path, tag, sum(suppressed) AS suppressed FROM ledger GROUP BY lower(scope), tag
"""
DUPLICATED = f"""
SELECT traces.message_id AS message_id, {{its_tag}}traces.entity AS entity, completed,
    coalesce(suppressed, 0) AS suppressed, completed - coalesce(suppressed, 0) AS worked, first_us AS at_us, last_us
FROM ({_WORKED_COPIES}) AS traces LEFT JOIN ({_SUPPRESSIONS}) AS held
    ON held.path = traces.path AND held.tag = traces.tag
WHERE completed - coalesce(suppressed, 0) > 1 AND {{in_window}}
"""
SUPPRESSED = """
SELECT tag AS message_id, scope AS entity, state, sum(suppressed) AS suppressed, CAST(NULL AS BIGINT) AS at_us
FROM ledger WHERE suppressed > 0 GROUP BY tag, scope, state
"""
REDELIVERED = """
SELECT message_id, namespace, entity, number, deliveries, delivered_us AS at_us FROM copies AS traces
WHERE deliveries > 1 AND in_backlog = 0 AND {in_window}
"""

_START = "coalesce(activated_us, accepted_us)"
LATE = f"""
SELECT message_id, entity, state, delay_us, at_us FROM (
    SELECT message_id, '' AS entity, 'completed' AS state, worked_us - {_START} AS delay_us, {_START} AS at_us
    FROM messages WHERE worked_us - {_START} > {{slo_us}}
    UNION ALL
    SELECT message_id, entity, state, {{end_us}} - created_us, created_us
    FROM present WHERE state IN ('active', 'locked') AND {{end_us}} - created_us > {{slo_us}}
) AS traces
WHERE {{in_window}}
"""

# Copies that ended, or are there, without ever having been created; and whether they are from before the journal.
UNBORN = """
SELECT unborn.namespace AS namespace, entity, number, message_id, side, at_us,
    CASE WHEN cut.namespace IS NOT NULL AND (first_number IS NULL OR number < first_number) THEN 1 ELSE 0 END AS carried
FROM (
    SELECT namespace, lower(entity) AS path, entity, number, message_id, 'ended' AS side, ended_us AS at_us
    FROM copies WHERE creations = 0 AND ends > 0
    UNION ALL
    SELECT namespace, path, entity, number, message_id, 'resident', enqueued_us FROM seen
    WHERE namespace IN (SELECT namespace FROM streams) AND NOT EXISTS (
        SELECT 1 FROM met WHERE met.namespace = seen.namespace AND met.path = seen.path AND met.number = seen.number
            AND creations > 0
    )
) AS unborn
LEFT JOIN cut ON cut.namespace = unborn.namespace
LEFT JOIN beginnings ON beginnings.namespace = unborn.namespace AND beginnings.path = unborn.path
"""

IMBALANCES = """
SELECT namespace, entity, number, message_id, why, at_us FROM (
    SELECT namespace, entity, number, message_id, 'is missing: created, not ended, and not there' AS why,
        created_us AS at_us
    FROM open WHERE standing = 'missing'
    UNION ALL
    SELECT namespace, entity, number, message_id,
        CASE WHEN side = 'ended' THEN 'ended, and was never created' ELSE 'is there, and was never created' END, at_us
    FROM unborn WHERE carried = 0
    UNION ALL
    SELECT seen.namespace, seen.entity, seen.number, seen.message_id, 'is there, and ended before', ended_us
    FROM seen JOIN met ON met.namespace = seen.namespace AND met.path = seen.path AND met.number = seen.number
    WHERE ends > 0 AND ended_us < began_us - {slack_us}
    UNION ALL
    SELECT namespace, entity, number, message_id, 'ended more than once', ended_us FROM copies WHERE ends > 1
    UNION ALL
    SELECT namespace, entity, number, message_id, 'was created more than once', created_us FROM copies
    WHERE creations > 1
    UNION ALL
    SELECT namespace, '', writer, '',
        concat('transactions are missing from the journal of store ', CAST(store AS STRING), ': ',
            CAST(last - first + 1 - batches AS STRING)), last_us
    FROM streams WHERE last - first + 1 > batches
) AS traces
"""

# The sides of the balance, in parts: the first has copies by how they were created and how they ended.
BALANCE = """
SELECT namespace, 'copies' AS side, '' AS way, how_created, how_ended, in_backlog, ended_dead,
    sum(creations) AS creations, sum(ends) AS ends
FROM copies WHERE creations > 0 OR ends > 0 GROUP BY namespace, how_created, how_ended, in_backlog, ended_dead
UNION ALL
SELECT namespace, standing, state, 0, 0, 0, 0, count(*), 0 FROM open WHERE standing <> 'missing'
GROUP BY namespace, standing, state
UNION ALL
SELECT namespace, CASE WHEN carried = 1 THEN 'carried' ELSE 'unborn' END, side, 0, 0, 0, 0, count(*), 0
FROM unborn GROUP BY namespace, carried, side
UNION ALL
SELECT namespace, 'apart', outcome, 0, 0, 0, 0, sum(count), 0 FROM journal
WHERE operation = 'send' AND outcome IN ('ping', 'duplicate') GROUP BY namespace, outcome
"""

# What became of the messages, each counted once.
_PRESENT_IDS = "SELECT message_id, min(CASE WHEN in_backlog = 1 THEN 0 WHEN state IN ('dead', 'transfer_dead') THEN 2"
FATES = f"""
SELECT fate, count(*) AS messages FROM (
    SELECT traces.message_id AS message_id, accepted_us AS at_us,
        CASE WHEN place = 0 THEN 'in_backlog' WHEN worked > 0 THEN 'worked_on' WHEN place = 1 THEN 'waiting'
            WHEN place = 2 THEN 'dead' WHEN discarded > 0 THEN 'discarded'
            WHEN arrivals > 0 AND copies = 0 THEN 'wanted_by_nobody' WHEN died > 0 THEN 'settled_among_dead'
            ELSE 'unaccounted' END AS fate
    FROM messages AS traces
    LEFT JOIN ({_PRESENT_IDS} ELSE 1 END) AS place FROM present GROUP BY message_id) AS places
        ON places.message_id = traces.message_id
) AS traces
WHERE {{in_window}}
GROUP BY fate
UNION ALL
SELECT 'suppressed', sum(suppressed) FROM ledger
"""

# Views that several others stand on, and that are worth making once; the rest is small work.
KEPT = (
    "streams", "copies", "seen", "looked", "met", "open", "messages", "present", "unborn", "in_sessions", "several",
    "traceless", "suspects", "named", "kin", "alibis", "given_up",
)  # fmt: skip


def views(by_tag: bool = False) -> Mapping[str, str]:
    """What several tables stand on, in order."""
    return {
        "present": PRESENT,
        "unborn": UNBORN,
        "in_sessions": IN_SESSIONS,
        "several": SEVERAL,
        "traceless": TRACELESS,
        "suspects": SUSPECTS,
        "named": NAMED_BY_TAG if by_tag else NAMED_BY_ID,
        "kin": KIN_BY_TAG if by_tag else KIN_BY_ID,
        "known": KNOWN,
        "alibis": ALIBIS,
        "given_up": GIVEN_UP,
    }


def tables(window: Window, slack_us: int, end_us: int, all_have_journals: bool) -> Mapping[str, str]:
    """The queries of the result tables, by name."""
    limits = [f"at_us >= {window.since_ms * 1000}"] if window.since_ms is not None else []
    limits += [f"at_us < {window.until_ms * 1000}"] if window.until_ms is not None else []
    terms = {
        "in_window": f"({' AND '.join(limits)} OR at_us IS NULL)" if limits else "1 = 1",
        "all_have_journals": "1 = 1" if all_have_journals else "1 = 0",
        "surplus": _SURPLUS.format(count=window.backlog_queues) if window.backlog_queues is not None else "1 = 0",
        "slo_us": str(int((window.slo_s or 0) * 1_000_000)),
        "end_us": str(end_us),
        "slack_us": str(slack_us),
        "its_tag": "traces.tag AS tag, " if window.by_tag else "",
        "at_work": (WORKED_BY_TAG if window.by_tag else WORKED_BY_ID).format(worked=_AT_WORK),
    }
    found = {
        "lost": LOST,
        "unproven": UNPROVEN,
        "stuck": STUCK,
        "duplicated": DUPLICATED,
        "redelivered": REDELIVERED,
        "suppressed": SUPPRESSED,
        "late": LATE,
        "out_of_order": OUT_OF_ORDER,
        "imbalances": IMBALANCES,
    }
    if window.slo_s is None:
        del found["late"]
    wanted = {name: text.format(**terms) for name, text in found.items()}
    return wanted | {"fates": FATES.format(**terms), "delays": DELAYS.format(**terms)}
