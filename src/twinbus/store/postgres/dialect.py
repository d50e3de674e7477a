"""Every named statement that the operations use, as PostgreSQL says it.

The names are those of `store.statements`, and so are the parameters, so that an operation need not know which database
it reads. What only this store does has its statements beside it. `entities` is the list of those that the commit holds.
"""

from __future__ import annotations

from typing import LiteralString

from twinbus.store import statements
from twinbus.store.statements import CUT_BITS, SEQ_BITS

# A message without its record, in the order of `volatile.Stored`.
STATE: LiteralString = (
    "m.seq, m.body, m.message_id, m.size, m.delivery_count, m.enqueued_at, m.expires_at, m.session, m.state, m.due_at,"
    " m.overlay, m.reason, m.description"
)
# Nothing becomes due in an entity that was set aside.
SERVED: LiteralString = "NOT EXISTS (SELECT 1 FROM entity AS a WHERE a.id = m.queue >> 2 AND a.aside)"
UNLOCKED: LiteralString = "NOT EXISTS (SELECT 1 FROM lock AS l WHERE l.queue = m.queue AND l.seq = m.seq)"


def _page(where: LiteralString) -> LiteralString:
    """Messages in order with their records, cut off where `bytes` is reached; the first one always comes."""
    return f"""
SELECT {STATE}, b.data, m.candidates
  FROM (SELECT m.*, count(*) OVER () AS candidates, row_number() OVER (ORDER BY m.seq) AS place,
               sum(m.size + 4) OVER (ORDER BY m.seq) AS total
          FROM (SELECT m.* FROM message AS m WHERE {where} ORDER BY m.seq LIMIT %(limit)s) AS m) AS m
  JOIN body AS b ON b.id = m.body
 WHERE m.total <= %(bytes)s OR m.place = 1
 ORDER BY m.seq"""


def _states(where: LiteralString) -> LiteralString:
    return f"SELECT {STATE} FROM message AS m WHERE {where}"


_FROM: LiteralString = "m.queue = %(queue)s AND m.seq >= %(start)s AND m.state < 3"
_ACTIVE: LiteralString = "m.queue = %(queue)s AND m.seq >= %(start)s AND m.seq < %(stop)s AND m.state = 0"
_NUMBERS: LiteralString = "SELECT n::bigint FROM json_array_elements_text(%(seqs)s::json) AS n"
_OLD: LiteralString = (
    f"m.queue = %(queue)s AND m.enqueued_at < %(before_ms)s AND {UNLOCKED} AND m.state {{}}"
    " ORDER BY m.seq LIMIT %(limit)s"
)
_HELD: LiteralString = "m.queue >> 2 = ANY(%(entities)s::bigint[])"

DIALECT: dict[str, LiteralString] = {
    statements.PAGE: _page(_ACTIVE),
    statements.SESSION_PAGE: _page(f"{_ACTIVE} AND m.session = %(session)s"),
    statements.PEEK: _page(_FROM),
    statements.PEEK_SESSION: _page(f"{_FROM} AND m.session = %(session)s"),
    statements.BY_NUMBER: _page(f"m.queue = %(queue)s AND m.seq IN ({_NUMBERS}) AND m.state < 3"),
    statements.STATES_BY_NUMBER: _states(f"m.queue = %(queue)s AND m.seq IN ({_NUMBERS}) ORDER BY m.seq"),
    statements.OLD_ACTIVE: _states(_OLD.format("= 0")),
    statements.OLD_MESSAGES: _states(_OLD.format("< 3")),
    statements.EXPIRED: f"""
SELECT m.queue, {STATE} FROM message AS m
 WHERE m.state = 0 AND m.expires_at <= %(now_ms)s AND {_HELD} AND {SERVED} AND {UNLOCKED}
 ORDER BY m.expires_at LIMIT %(limit)s""",
    statements.ACTIVATED: f"""
SELECT m.queue, {STATE} FROM message AS m
 WHERE m.state = 2 AND m.due_at <= %(now_ms)s AND {_HELD} AND {SERVED}
 ORDER BY m.due_at, m.queue, m.seq LIMIT %(limit)s""",
    statements.KNOWN_DUPLICATES: """
SELECT coalesce(json_agg(json_build_array(d.queue, d.message_id)), '[]')::text
  FROM (SELECT (v ->> 0)::bigint AS queue, v ->> 1 AS message_id, (v ->> 2)::bigint AS after_ms
          FROM json_array_elements(%s::json) AS v) AS c
  JOIN duplicate AS d ON d.queue = c.queue AND d.message_id = c.message_id AND d.at_ms > c.after_ms""",
    statements.OLDEST_DUPLICATE: "SELECT min(at_ms) FROM duplicate WHERE queue = %s",
    statements.OLD_DUPLICATES: """
DELETE FROM duplicate WHERE (queue, message_id) IN
 (SELECT queue, message_id FROM duplicate WHERE queue = %(queue)s AND at_ms <= %(before_ms)s
   ORDER BY at_ms LIMIT %(limit)s)""",
    statements.KNOWN_TRANSFERS: """
SELECT coalesce(json_agg(json_build_array(t.queue, t.seq)), '[]')::text
  FROM (SELECT (v ->> 0)::bigint AS queue, (v ->> 1)::bigint AS seq FROM json_array_elements(%s::json) AS v) AS c
  JOIN transfer AS t ON t.queue = c.queue AND t.seq = c.seq""",
    statements.REMEMBER_TRANSFERS: """
INSERT INTO transfer (queue, seq, at_ms)
SELECT (v ->> 0)::bigint, (v ->> 1)::bigint, %(now_ms)s FROM json_array_elements(%(transfers)s::json) AS v""",
    statements.FORGET_TRANSFERS: f"DELETE FROM transfer WHERE queue = %(queue)s AND seq IN ({_NUMBERS})",
    statements.OLDEST_TRANSFER: "SELECT min(at_ms) FROM transfer",
    statements.OLD_TRANSFERS: """
DELETE FROM transfer WHERE (queue, seq) IN
 (SELECT queue, seq FROM transfer WHERE at_ms <= %(before_ms)s ORDER BY at_ms LIMIT %(limit)s)""",
    # Held sessions are known to the table, so the list of those in memory is not needed.
    statements.FREE_SESSION: """
SELECT m.session FROM message AS m
 WHERE m.queue = %(queue)s AND m.seq >= %(start)s AND m.state = 0 AND m.session IS NOT NULL
   AND (m.expires_at IS NULL OR m.expires_at > %(now_ms)s) AND %(held)s::json IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM hold AS h WHERE h.queue = m.queue AND h.session = m.session)
 ORDER BY m.seq LIMIT 1""",
    statements.SESSION_STATE: "SELECT state FROM session_state WHERE queue = %s AND session = %s",
    statements.SET_SESSION_STATE: """
INSERT INTO session_state (queue, session, state, updated_at) VALUES (%s, %s, %s, %s)
    ON CONFLICT (queue, session) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at""",
    statements.CLEAR_SESSION_STATE: "DELETE FROM session_state WHERE queue = %s AND session = %s",
    # From one session to the next by the index, and no further than asked for: a session may have many messages.
    statements.SESSIONS: """
WITH RECURSIVE named AS (
  SELECT min(session) AS session FROM message WHERE queue = %(queue)s AND session IS NOT NULL
   UNION ALL
  SELECT (SELECT min(m.session) FROM message AS m WHERE m.queue = %(queue)s AND m.session > n.session)
    FROM named AS n WHERE n.session IS NOT NULL)
SELECT coalesce(json_agg(s.session), '[]')::text FROM (
  (SELECT n.session FROM named AS n
    WHERE EXISTS (SELECT 1 FROM message AS m WHERE m.queue = %(queue)s AND m.session = n.session AND m.state < 3)
    LIMIT %(skip)s::bigint + %(limit)s::bigint)
   UNION (SELECT session FROM session_state WHERE queue = %(queue)s
           ORDER BY session LIMIT %(skip)s::bigint + %(limit)s::bigint)
   ORDER BY session LIMIT %(limit)s OFFSET %(skip)s) AS s""",
    statements.SESSIONS_CHANGED: """
SELECT coalesce(json_agg(s.session), '[]')::text FROM (
  SELECT session FROM session_state WHERE queue = %(queue)s AND updated_at > %(after_ms)s
   ORDER BY session LIMIT %(limit)s OFFSET %(skip)s) AS s""",
    statements.CONFIGURE_QUEUE: "UPDATE entity SET settings = %s WHERE id = %s / 4",
    statements.DROP_QUEUE: "UPDATE entity SET dropped = true WHERE id = %(first)s / 4",
    statements.DROPPED_MESSAGES: """
SELECT coalesce(json_agg(d.seq), '[]')::text, coalesce(json_agg(d.body), '[]')::text
  FROM (SELECT seq, body FROM message WHERE queue = %s ORDER BY seq LIMIT %s) AS d""",
    statements.DROPPED_DUPLICATES: """
DELETE FROM duplicate WHERE (queue, message_id) IN
 (SELECT queue, message_id FROM duplicate WHERE queue = %s LIMIT %s)""",
    statements.DROPPED_STATES: """
DELETE FROM session_state WHERE (queue, session) IN
 (SELECT queue, session FROM session_state WHERE queue = %s LIMIT %s)""",
    statements.FORGET_QUEUE: "DELETE FROM entity WHERE id * 4 = %s",
    statements.DROPPED: _states("m.queue = %(queue)s ORDER BY m.seq LIMIT %(limit)s"),
    statements.SET_ASIDE: """
UPDATE entity SET aside = (%(aside)s::int = 2) WHERE NOT dropped
   AND id IN (SELECT n::bigint FROM json_array_elements_text(%(entities)s::json) AS n)""",
    statements.UNDEFER: "UPDATE message SET state = 0, expires_at = NULL WHERE queue = %s AND state = 1",
    statements.REMEMBERED: """
SELECT coalesce(json_agg(json_build_array(n.entity, n.path, n.kind, n.fragment, n.document)), '[]')::text
  FROM name AS n JOIN json_array_elements_text(%s::json) AS e ON n.entity = e::bigint""",
    statements.WITNESS: """
INSERT INTO meta VALUES ('catalog_generation', %(generation)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE meta.value::bigint < excluded.value::bigint""",
    statements.NAME_ENTITIES: """
INSERT INTO name (entity, path, kind, fragment, document)
SELECT (v ->> 0)::bigint, v ->> 1, v ->> 2, (v ->> 3)::int, v ->> 4 FROM json_array_elements(%(names)s::json) AS v
    ON CONFLICT (entity) DO UPDATE SET document = excluded.document
 WHERE excluded.document IS NOT NULL AND excluded.document IS DISTINCT FROM name.document""",
    statements.ENTITIES_GONE: """
UPDATE name SET gone_at = %(now_ms)s WHERE gone_at IS NULL
   AND entity IN (SELECT n::bigint FROM json_array_elements_text(%(gone)s::json) AS n)""",
    statements.FORGET_NAMES: """
DELETE FROM name
 WHERE gone_at < %(before_ms)s AND gone_at < (SELECT min(at_ms) FROM journal) - %(late_ms)s""",
    # Nobody else can have begun at the same row, whatever this transaction sees of the others.
    statements.CLOSE_RANGE: """
INSERT INTO export (writer, first, last, from_ms, to_ms, bytes)
SELECT %(writer)s, %(first)s, %(last)s, %(from_ms)s, %(to_ms)s, %(bytes)s
 WHERE NOT EXISTS (SELECT 1 FROM export WHERE writer = %(writer)s AND last >= %(first)s) ON CONFLICT DO NOTHING""",
    statements.FINISH_RANGE: """
UPDATE export SET state = 1 WHERE writer = %(writer)s AND first = %(first)s AND state = 0""",
    statements.OLDEST_EXPORT: """
SELECT writer, first, last, to_ms, (SELECT sum(bytes)::bigint FROM export WHERE state = 1)
  FROM export WHERE state = 1 ORDER BY to_ms LIMIT 1""",
    # The newest row of a writer stays while the writer is there.
    statements.TRIM_JOURNAL: """
DELETE FROM journal WHERE writer = %(writer)s AND id IN
 (SELECT j.id FROM journal AS j
   WHERE j.writer = %(writer)s AND j.id <= %(last)s
     AND (NOT EXISTS (SELECT 1 FROM gateway AS g WHERE g.number = j.writer)
          OR j.id < (SELECT max(n.id) FROM journal AS n WHERE n.writer = %(writer)s))
   ORDER BY j.id LIMIT %(limit)s)""",
    statements.TRIMMED: "UPDATE export SET state = 2 WHERE writer = %(writer)s AND first = %(first)s",
    statements.FORGET_RANGES: """
DELETE FROM export WHERE writer = %(writer)s AND state = 2
   AND first < (SELECT max(first) FROM export WHERE writer = %(writer)s)""",
}

# The commit's own clock, and the rows that rule its entities.
NOW: LiteralString = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
READ_ENTITIES: LiteralString = (
    "SELECT id, settings, dropped, counts, aside FROM entity WHERE id = ANY(%s::bigint[]) ORDER BY id"
)
HOLD_ENTITIES: LiteralString = READ_ENTITIES + " FOR UPDATE"
FREE_ENTITIES: LiteralString = HOLD_ENTITIES + " SKIP LOCKED"

# Locks with their messages. In a session the lock ends with the hold.
_LOCKS: LiteralString = f"""
SELECT l.queue, l.id, l.until, l.owner, l.session, {STATE}
  FROM {{}} JOIN message AS m ON m.queue = l.queue AND m.seq = l.seq"""
LOCKS_BY_TOKEN: LiteralString = _LOCKS.format(
    "ROWS FROM (unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[])) AS t(queue, seq, id)"
    " JOIN lock AS l ON l.queue = t.queue AND l.seq = t.seq AND l.id = t.id"
)
LOCKS_OF_OWNERS: LiteralString = (
    _LOCKS.format("lock AS l") + " WHERE l.owner = ANY(%s::bigint[]) AND l.queue >> 2 = ANY(%s::bigint[])"
)
LOCKS_OF_ENTITIES: LiteralString = _LOCKS.format(
    "unnest(%s::bigint[]) AS e(id) CROSS JOIN generate_series(0, 2) AS sub JOIN lock AS l ON l.queue = e.id * 4 + sub"
)
LOCKS_OF_SESSIONS: LiteralString = _LOCKS.format(
    "ROWS FROM (unnest(%s::bigint[]), json_array_elements_text(%s::json)) AS t(queue, session)"
    " JOIN lock AS l ON l.queue = t.queue AND l.session = t.session"
)
LOCKS_EXPIRED: LiteralString = (
    _LOCKS.format("lock AS l")
    + " WHERE l.until <= %s AND l.queue >> 2 = ANY(%s::bigint[]) ORDER BY l.until, l.id LIMIT %s"
)

_HOLDS: LiteralString = "SELECT h.queue, h.session, h.owner, h.holder, h.until FROM hold AS h"
HOLDS_BY_NAME: LiteralString = (
    _HOLDS + " JOIN ROWS FROM (unnest(%s::bigint[]), json_array_elements_text(%s::json)) AS t(queue, session)"
    " ON h.queue = t.queue AND h.session = t.session"
)
HOLDS_OF_OWNERS: LiteralString = _HOLDS + " WHERE h.owner = ANY(%s::bigint[]) AND h.queue >> 2 = ANY(%s::bigint[])"
HOLDS_OF_ENTITIES: LiteralString = (
    _HOLDS + " JOIN unnest(%s::bigint[]) AS e(id) ON h.queue >= e.id * 4 AND h.queue < e.id * 4 + 4"
)
HOLDS_EXPIRED: LiteralString = (
    _HOLDS + " WHERE h.until <= %s AND h.queue >> 2 = ANY(%s::bigint[]) ORDER BY h.until LIMIT %s"
)

ENTITIES_OF_OWNERS: LiteralString = """
SELECT DISTINCT queue >> 2 FROM (SELECT queue FROM lock WHERE owner = ANY(%s::bigint[])
                                  UNION ALL SELECT queue FROM hold WHERE owner = ANY(%s::bigint[])) AS q"""

# What acquires are given: for each request the next available messages from `start` on. Whoever holds the row that
# rules the entity is alone with its messages, so none of them can be locked by somebody else's transaction.
_AVAILABLE: LiteralString = f"""
SELECT r.n, {STATE}, b.data, m.candidates
  FROM ROWS FROM (unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[]),
                  json_array_elements_text(%s::json))
       WITH ORDINALITY AS r(queue, start, most, bytes, session, n)
 CROSS JOIN LATERAL
       (SELECT m.*, count(*) OVER () AS candidates, row_number() OVER (ORDER BY m.seq) AS place,
               sum(m.size) OVER (ORDER BY m.seq) AS total
          FROM (SELECT m.* FROM message AS m
                 WHERE m.queue = r.queue AND m.seq >= r.start AND m.state = 0 AND {UNLOCKED} {{}}
                 ORDER BY m.seq LIMIT r.most) AS m) AS m
  JOIN body AS b ON b.id = m.body
 WHERE m.total <= r.bytes OR m.place = 1
 ORDER BY r.n, m.seq"""
AVAILABLE: LiteralString = _AVAILABLE.format("")
AVAILABLE_IN_SESSION: LiteralString = _AVAILABLE.format("AND m.session = r.session")

CREATE_ENTITY: LiteralString = "INSERT INTO entity (id, settings, counts) VALUES (%s, %s, %s::bigint[])"
ENTITIES: LiteralString = "SELECT id FROM entity WHERE NOT dropped ORDER BY id"
HELD: LiteralString = """
SELECT e.id, e.aside, e.counts[1] > 1 OR e.counts[8] > 1 OR e.counts[15] > 1, n.document IS NOT NULL, n.path, n.kind,
       n.fragment
  FROM entity AS e LEFT JOIN name AS n ON n.entity = e.id WHERE NOT e.dropped ORDER BY e.id"""

# Writing. `cuts` are offset and length of a record in the joined blob, `names` are queue and number in one integer.
_CUT: LiteralString = f"1 + (c.cut >> {CUT_BITS})::int, (c.cut & {(1 << CUT_BITS) - 1})::int"
_SEQ_MASK: LiteralString = f"{(1 << SEQ_BITS) - 1}"
STORE_BODIES: LiteralString = f"""
INSERT INTO body (id, data) SELECT %s + %s * (c.n - 1), substr(%s::bytea, {_CUT})
  FROM unnest(%s::bigint[]) WITH ORDINALITY AS c(cut, n)"""
STORE_MESSAGES: LiteralString = f"""
INSERT INTO message (queue, seq, body, size, state, delivery_count, enqueued_at, expires_at, due_at, session,
                     message_id)
SELECT r.queue, r.seq, %s + r.n - 1, (r.cut & {(1 << CUT_BITS) - 1}) - 4, coalesce(r.state, 0), 0, %s, r.expires_at,
       r.due_at, r.session, r.message_id
  FROM ROWS FROM (unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[]),
                  unnest(%s::bigint[]), unnest(%s::bigint[]), json_array_elements_text(%s::json),
                  json_array_elements_text(%s::json))
       WITH ORDINALITY AS r(queue, seq, cut, state, expires_at, due_at, session, message_id, n)"""
STORE_COPIES: LiteralString = f"""
INSERT INTO message (queue, seq, body, size, state, delivery_count, enqueued_at, expires_at, session, message_id,
                     overlay, reason, description)
SELECT name.value::bigint >> {SEQ_BITS}, (name.value::bigint & {_SEQ_MASK}) + id.n - 1, b.id, octet_length(b.data) - 4,
       0, 0, %s, a.expires_at, a.session, id.value, a.overlay, a.reason, a.description
  FROM (SELECT (v ->> 0)::bigint AS body, (v ->> 1)::bigint AS expires_at, v ->> 2 AS session,
               decode(v ->> 3, 'hex') AS overlay, v ->> 4 AS reason, v ->> 5 AS description, v -> 6 AS ids,
               v -> 7 AS names
          FROM json_array_elements(%s::json) AS v) AS a
 CROSS JOIN LATERAL json_array_elements_text(a.ids) WITH ORDINALITY AS id(value, n)
  JOIN body AS b ON b.id = a.body - (id.n - 1)
 CROSS JOIN LATERAL json_array_elements_text(a.names) AS name(value)"""
PLACE_MESSAGES: LiteralString = """
INSERT INTO message (queue, seq, body, size, state, delivery_count, enqueued_at, expires_at, due_at, session,
                     message_id, overlay, reason, description)
SELECT (v ->> 0)::bigint, (v ->> 1)::bigint, b.id, octet_length(b.data) - 4, (v ->> 3)::smallint, (v ->> 4)::int,
       (v ->> 5)::bigint, (v ->> 6)::bigint, (v ->> 7)::bigint, v ->> 8, v ->> 9, decode(v ->> 10, 'hex'), v ->> 11,
       v ->> 12
  FROM json_array_elements(%s::json) AS v JOIN body AS b ON b.id = (v ->> 2)::bigint"""
REMOVE_MESSAGES: LiteralString = f"""
DELETE FROM message AS m USING unnest(%s::bigint[]) AS g
 WHERE m.queue = g >> {SEQ_BITS} AND m.seq = g & {_SEQ_MASK}"""
REMOVE_BODIES: LiteralString = "DELETE FROM body AS b USING unnest(%s::bigint[]) AS f WHERE b.id = f"
# Two gateways may take the last two copies at the same time; the second one has to see that the first is gone.
HOLD_SHARED: LiteralString = "SELECT 1 FROM body WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE"
RELEASE_SHARED: LiteralString = """
DELETE FROM body AS b USING unnest(%s::bigint[]) AS f
 WHERE b.id = f AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.body = b.id AND m.body < 0)"""
KEEP_DUPLICATES: LiteralString = """
INSERT INTO duplicate (queue, message_id, at_ms)
SELECT (v ->> 0)::bigint, v ->> 1, %s FROM json_array_elements(%s::json) AS v
    ON CONFLICT (queue, message_id) DO UPDATE SET at_ms = excluded.at_ms"""
UNLOCK: LiteralString = f"""
DELETE FROM lock AS l USING unnest(%s::bigint[]) AS g WHERE l.queue = g >> {SEQ_BITS} AND l.seq = g & {_SEQ_MASK}"""
LOCK: LiteralString = f"""
INSERT INTO lock (queue, seq, id, until, owner, session)
SELECT r.name >> {SEQ_BITS}, r.name & {_SEQ_MASK}, r.id, r.until, r.owner, r.session
  FROM ROWS FROM (unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[]), unnest(%s::bigint[]),
                  json_array_elements_text(%s::json)) AS r(name, id, until, owner, session)"""
RENEW: LiteralString = f"""
UPDATE lock AS l SET until = %s FROM unnest(%s::bigint[]) AS g
 WHERE l.queue = g >> {SEQ_BITS} AND l.seq = g & {_SEQ_MASK}"""
END_HOLDS: LiteralString = """
DELETE FROM hold AS h USING ROWS FROM (unnest(%s::bigint[]), json_array_elements_text(%s::json)) AS t(queue, session)
 WHERE h.queue = t.queue AND h.session = t.session"""
SET_HOLDS: LiteralString = """
INSERT INTO hold (queue, session, owner, holder, until)
SELECT t.queue, t.session, t.owner, t.holder, t.until
  FROM ROWS FROM (unnest(%s::bigint[]), json_array_elements_text(%s::json), unnest(%s::bigint[]), unnest(%s::bigint[]),
                  unnest(%s::bigint[])) AS t(queue, session, owner, holder, until)
    ON CONFLICT (queue, session)
    DO UPDATE SET owner = excluded.owner, holder = excluded.holder, until = excluded.until"""
SET_COUNTS: LiteralString = """
UPDATE entity AS e SET counts = n.counts::bigint[], changes = e.changes + n.changed
  FROM ROWS FROM (unnest(%s::bigint[]), json_array_elements_text(%s::json), unnest(%s::bigint[]))
       AS n(id, counts, changed)
 WHERE e.id = n.id"""
# A gateway that was away for so long that all its rows are in files goes on behind them.
JOURNAL: LiteralString = """
INSERT INTO journal (writer, id, at_ms, ops)
SELECT w.writer, coalesce((SELECT max(id) FROM journal WHERE writer = w.writer),
                          (SELECT max(last) FROM export WHERE writer = w.writer), 0) + 1, %s, %s
  FROM (SELECT %s::bigint AS writer) AS w"""
JOURNAL_AFTER: LiteralString = "SELECT id, at_ms, ops FROM journal WHERE writer = %s AND id > %s ORDER BY id LIMIT %s"
WRITERS: LiteralString = """
WITH RECURSIVE named AS (
  SELECT min(writer) AS writer FROM journal
   UNION ALL
  SELECT (SELECT min(j.writer) FROM journal AS j WHERE j.writer > n.writer) FROM named AS n WHERE n.writer IS NOT NULL)
SELECT writer FROM named WHERE writer IS NOT NULL"""
NOTIFY: LiteralString = "SELECT pg_notify(%s, %s)"
LOCKED_NUMBERS: LiteralString = "SELECT seq FROM lock WHERE queue = %s AND seq = ANY(%s::bigint[])"
