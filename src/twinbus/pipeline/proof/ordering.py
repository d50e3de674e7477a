"""Messages of a session that were handed out in another order than they were sent in: two queries in SQL.

They stand on the views of `custody` and on `sent`; the text is Spark's SQL and DuckDB's alike. Which window is judged
is said in `judgement`, which has the other tables.
"""

from __future__ import annotations

_SESSION_CREATORS = "('send', 'copy', 'schedule')"
_FOREVER = 1 << 62

# Who was sent before whom: within one log, by its lines, if the first was acknowledged before the second was attempted;
# without a log, by when they were accepted. What still is in the backlog will come later than anything.
IN_SESSIONS = f"""
SELECT lower(entity) AS path, session_id, max(entity) AS entity, message_id, min(at_us) AS accepted_us,
    min(batch * 1000000 + place) AS turn
FROM journal
WHERE session_id <> '' AND operation IN {_SESSION_CREATORS} AND kind <> 'topic' AND sequence_number > 0
    AND message_id <> ''
GROUP BY lower(entity), session_id, message_id
"""
_DELIVERED_IN_SESSIONS = f"""
SELECT parts.path AS path, parts.session_id AS session_id, parts.entity AS entity, parts.message_id AS message_id,
    CASE WHEN logged.message_id IS NULL THEN -1 ELSE log END AS log,
    coalesce(attempted_line, accepted_us) AS asked,
    CASE WHEN logged.message_id IS NULL THEN accepted_us ELSE coalesce(acknowledged_line, {_FOREVER}) END AS answered,
    CASE WHEN logged.message_id IS NULL THEN turn ELSE 0 END AS turn, delivered_us, delivered_turn
FROM in_sessions AS parts
LEFT JOIN (
    SELECT sent.message_id AS message_id, log, attempted_line, acknowledged_line
    FROM sent JOIN (SELECT DISTINCT message_id FROM in_sessions) AS wanted ON wanted.message_id = sent.message_id
) AS logged ON logged.message_id = parts.message_id
JOIN (
    SELECT path, copies.message_id AS message_id, min(delivered_us) AS delivered_us,
        min(delivered_turn) AS delivered_turn
    FROM copies JOIN in_sessions AS wanted
        ON wanted.message_id = copies.message_id AND wanted.path = lower(copies.entity)
    WHERE deliveries > 0 AND in_backlog = 0
    GROUP BY path, copies.message_id
) AS delivered ON delivered.path = parts.path AND delivered.message_id = parts.message_id
"""
OUT_OF_ORDER = f"""
SELECT message_id, entity, session_id, delivered_us AS at_us FROM (
    SELECT message_id, entity, session_id, delivered_us, answer, rank_of_delivery,
        max(CASE WHEN answer = 1 THEN rank_of_delivery END) OVER (
            PARTITION BY path, session_id, log ORDER BY moment, turn, answer
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS latest
    FROM (
        SELECT path, session_id, entity, message_id, log, turn, delivered_us, answer, rank_of_delivery,
            CASE WHEN answer = 0 THEN asked ELSE answered END AS moment
        FROM (
            SELECT *, row_number() OVER (
                PARTITION BY path, session_id ORDER BY delivered_us, delivered_turn
            ) AS rank_of_delivery
            FROM ({_DELIVERED_IN_SESSIONS}) AS delivered
        ) AS ranked CROSS JOIN (SELECT 0 AS answer UNION ALL SELECT 1 AS answer) AS answers
    ) AS moments
) AS traces
WHERE answer = 0 AND latest > rank_of_delivery AND {{in_window}}
"""
