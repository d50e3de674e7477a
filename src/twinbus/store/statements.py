"""Every SQL statement of the embedded store, by name.

A commit writes through one view: its trigger runs the whole set of changes inside a single step, so that the store
thread asks for the interpreter lock once per commit and not once per statement. What the columns hold is decided by
`store.plan`; what the tables mean is said in `store.schema`.
"""

from __future__ import annotations

SEQ_BITS = 40  # A row is named by queue << SEQ_BITS | seq where many rows travel in one flat array.
CUT_BITS = 28  # A body is cut from the joined blob by offset << CUT_BITS | length.

_SEQ_MASK = (1 << SEQ_BITS) - 1
_CUT_MASK = (1 << CUT_BITS) - 1

CHANGE_COLUMNS = (
    "at_ms",
    "first_body",
    "cuts",
    "bodies",
    "runs",
    "ids",
    "fresh",
    "gone",
    "placed",
    "freed",
    "duplicates",
    "unclaimed",
    "claims",
    "queues",
    "journal_id",
    "journal",
)
# Beside these, what only a commit has in which copies with shared bodies come or go.
COPY_COLUMNS = ("first_shared", "shared_cuts", "copies", "released")


def _view(name: str, columns: tuple[str, ...]) -> str:
    return f"CREATE TEMP VIEW {name} AS SELECT {', '.join(f'NULL AS {column}' for column in columns)}"


def _apply(name: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})"


def _insert_rows(column: str) -> str:
    return f"""
    INSERT INTO message (queue, seq, body, state, delivery_count, enqueued_at, expires_at, due_at, session,
                         message_id, overlay, reason, description)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
           value ->> 8, value ->> 9, unhex(value ->> 10), value ->> 11, value ->> 12
      FROM json_each(NEW.{column});"""


_COPY_BODIES = f"""
    INSERT INTO body (id, data)
    SELECT NEW.first_shared - key, substr(NEW.bodies, 1 + (value >> {CUT_BITS}), value & {_CUT_MASK})
      FROM json_each(NEW.shared_cuts);"""
_COPIES = f"""
    INSERT INTO message (queue, seq, body, enqueued_at, expires_at, session, message_id, overlay, reason, description)
    SELECT name.value >> {SEQ_BITS}, (name.value & {_SEQ_MASK}) + id.key, alike.body - id.key, NEW.at_ms,
           alike.expires_at, alike.session, id.value, alike.overlay, alike.reason, alike.description
      FROM (SELECT value ->> 0 AS body, value ->> 1 AS expires_at, value ->> 2 AS session,
                   unhex(value ->> 3) AS overlay, value ->> 4 AS reason, value ->> 5 AS description,
                   value -> 6 AS ids, value -> 7 AS names
              FROM json_each(NEW.copies) LIMIT -1) AS alike
     CROSS JOIN json_each(alike.ids) AS id
     CROSS JOIN json_each(alike.names) AS name;"""
_RELEASE = """
    DELETE FROM body
     WHERE id IN (SELECT value FROM json_each(NEW.released))
       AND NOT EXISTS (SELECT 1 FROM message WHERE message.body = body.id AND message.body < 0);"""


# New messages first, then removals, then changed rows: a message may be stored and removed in one commit, and a
# changed row is removed and placed anew. A shared body goes when no row names it after all that. Scalars of a run are
# taken out of its JSON once, before the join with the ids.
def _trigger(view: str, copy_bodies: str = "", copies: str = "", release: str = "") -> str:
    return f"""
CREATE TEMP TRIGGER {view}_insert INSTEAD OF INSERT ON {view} BEGIN
    INSERT INTO body (id, data)
    SELECT NEW.first_body + key, substr(NEW.bodies, 1 + (value >> {CUT_BITS}), value & {_CUT_MASK})
      FROM json_each(NEW.cuts);
    {copy_bodies}
    INSERT INTO message (queue, seq, body, state, enqueued_at, expires_at, due_at, session, message_id)
    SELECT run.queue, run.seq_at_zero + id.key, NEW.first_body + id.key, run.state, NEW.at_ms, run.expires_at,
           run.due_at, run.session, id.value
      FROM (SELECT value ->> 0 AS queue, value ->> 1 AS seq_at_zero, value ->> 2 AS state, value ->> 3 AS expires_at,
                   value ->> 4 AS due_at, value ->> 5 AS session, value ->> 6 AS start, value ->> 7 AS stop
              FROM json_each(NEW.runs) LIMIT -1) AS run
     CROSS JOIN json_each(NEW.ids) AS id
     WHERE id.key >= run.start AND id.key < run.stop;
    {_insert_rows("fresh")}
    {copies}
    DELETE FROM message
     WHERE (queue, seq) IN (SELECT value >> {SEQ_BITS}, value & {_SEQ_MASK} FROM json_each(NEW.gone));
    {_insert_rows("placed")}
    DELETE FROM body WHERE id IN (SELECT value FROM json_each(NEW.freed));
    {release}
    INSERT OR REPLACE INTO duplicate (queue, message_id, at_ms)
    SELECT value ->> 0, value ->> 1, NEW.at_ms FROM json_each(NEW.duplicates);
    DELETE FROM claim WHERE id IN (SELECT value FROM json_each(NEW.unclaimed));
    INSERT INTO claim (id, queue, held) SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(NEW.claims);
    UPDATE queue
       SET next_seq = now.next_seq, active = now.active, deferred = now.deferred, scheduled = now.scheduled,
           damaged = now.damaged, bytes = now.bytes
      FROM (SELECT value ->> 0 AS id, value ->> 1 AS next_seq, value ->> 2 AS active, value ->> 3 AS deferred,
                   value ->> 4 AS scheduled, value ->> 5 AS damaged, value ->> 6 AS bytes
              FROM json_each(NEW.queues) LIMIT -1) AS now
     WHERE queue.id = now.id;
    INSERT INTO journal (id, at_ms, ops) SELECT NEW.journal_id, NEW.at_ms, NEW.journal WHERE NEW.journal IS NOT NULL;
END"""


# Statements that have nothing to do cost some microseconds each, so those for copies are in a view of their own.
_WITH_COPIES = CHANGE_COLUMNS + COPY_COLUMNS
CHANGE_VIEW = _view("change", CHANGE_COLUMNS)
CHANGE_TRIGGER = _trigger("change")
APPLY = _apply("change", CHANGE_COLUMNS)
COPY_VIEW = _view("change_with_copies", _WITH_COPIES)
COPY_TRIGGER = _trigger("change_with_copies", _COPY_BODIES, _COPIES, _RELEASE)
APPLY_WITH_COPIES = _apply("change_with_copies", _WITH_COPIES)

# Messages leave the database as one row: their state as a JSON array of arrays in the order of `volatile.Stored`, and
# their bodies joined. Row by row, each would cost a turn at the interpreter lock.
_STATE = (
    "json_group_array(json_array(m.seq, m.body, m.message_id, length(b.data) - 4, m.delivery_count, m.enqueued_at,"
    " m.expires_at, m.session, m.state, m.due_at,"
    " iif(m.overlay IS NULL, NULL, hex(m.overlay)), m.reason, m.description))"
)
_BODIES = "CAST(group_concat(b.data, '') AS BLOB)"


def _page(where: str, index: str = "") -> str:
    """Messages in order, cut off where `bytes` is reached; the first one always comes, however large."""
    return f"""
SELECT {_STATE}, {_BODIES}, count(*), max(m.candidates)
  FROM (SELECT m.*, count(*) OVER () AS candidates, row_number() OVER () AS place,
               sum(m.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
          FROM (SELECT m.*, length(b.data) AS size
                  FROM message AS m {index} JOIN body AS b ON b.id = m.body
                 WHERE {where} ORDER BY m.seq LIMIT :limit) AS m) AS m
 CROSS JOIN body AS b ON b.id = m.body
 WHERE m.total <= :bytes OR m.place = 1"""


# Left to itself, the planner would read the whole queue to find one session's messages in it.
_BY_SESSION = "INDEXED BY message_session"
_OF_SESSION = "m.queue = :queue AND m.session = :session AND m.seq >= :start"

PAGE = _page("m.queue = :queue AND m.seq >= :start AND m.seq < :stop AND m.state = 0")
SESSION_PAGE = _page(f"{_OF_SESSION} AND m.seq < :stop AND m.state = 0", _BY_SESSION)
PEEK = _page("m.queue = :queue AND m.seq >= :start AND m.state < 3")
PEEK_SESSION = _page(f"{_OF_SESSION} AND m.state < 3", _BY_SESSION)
BY_NUMBER = _page("m.queue = :queue AND m.seq IN (SELECT value FROM json_each(:seqs)) AND m.state < 3")


def _states(where: str) -> str:
    """The state of messages without their bodies."""
    return f"SELECT {_STATE} FROM (SELECT * FROM message WHERE {where}) AS m CROSS JOIN body AS b ON b.id = m.body"


STATES_BY_NUMBER = _states("queue = :queue AND seq IN (SELECT value FROM json_each(:seqs)) ORDER BY seq")
OLD_ACTIVE = _states("queue = :queue AND state = 0 AND enqueued_at < :before_ms ORDER BY seq LIMIT :limit")
OLD_MESSAGES = _states("queue = :queue AND state < 3 AND enqueued_at < :before_ms ORDER BY seq LIMIT :limit")

# The same with the queue in front of each row's state, because these look through the whole store.
_STATE_OF_QUEUE = _STATE.replace("json_array(m.seq", "json_array(m.queue, m.seq", 1)


def _due(where: str) -> str:
    return f"""
SELECT {_STATE_OF_QUEUE} FROM (SELECT * FROM message WHERE {where} LIMIT :limit) AS m
 CROSS JOIN body AS b ON b.id = m.body"""


# Nothing becomes due in an entity that was set aside.
_SERVED = "queue NOT IN (SELECT id FROM queue WHERE dropped = 2)"
EXPIRED = _due(f"state = 0 AND expires_at <= :now_ms AND {_SERVED} ORDER BY expires_at")
ACTIVATED = _due(f"state = 2 AND due_at <= :now_ms AND {_SERVED} ORDER BY due_at, queue, seq")
NEXT_EXPIRY = f"SELECT min(expires_at) FROM message WHERE state = 0 AND expires_at > :now_ms AND {_SERVED}"
NEXT_ACTIVATION = f"SELECT min(due_at) FROM message WHERE state = 2 AND {_SERVED}"

KNOWN_DUPLICATES = """
SELECT json_group_array(json_array(d.queue, d.message_id))
  FROM (SELECT value ->> 0 AS queue, value ->> 1 AS message_id, value ->> 2 AS after_ms FROM json_each(?) LIMIT -1) AS c
 CROSS JOIN duplicate AS d
 WHERE d.queue = c.queue AND d.message_id = c.message_id AND d.at_ms > c.after_ms"""
OLD_DUPLICATES = """
DELETE FROM duplicate WHERE (queue, message_id) IN
 (SELECT queue, message_id FROM duplicate WHERE queue = :queue AND at_ms <= :before_ms ORDER BY at_ms LIMIT :limit)"""
KNOWN_TRANSFERS = """
SELECT json_group_array(json_array(t.queue, t.seq))
  FROM (SELECT value ->> 0 AS queue, value ->> 1 AS seq FROM json_each(?) LIMIT -1) AS c
 CROSS JOIN transfer AS t
 WHERE t.queue = c.queue AND t.seq = c.seq"""
REMEMBER_TRANSFERS = """
INSERT INTO transfer (queue, seq, at_ms) SELECT value ->> 0, value ->> 1, :now_ms FROM json_each(:transfers)"""
FORGET_TRANSFERS = """
DELETE FROM transfer WHERE queue = :queue AND seq IN (SELECT value FROM json_each(:seqs))"""
OLD_TRANSFERS = """
DELETE FROM transfer WHERE (queue, seq) IN
 (SELECT queue, seq FROM transfer WHERE at_ms <= :before_ms ORDER BY at_ms LIMIT :limit)"""
OLDEST_TRANSFER = "SELECT min(at_ms) FROM transfer"
OLDEST_DUPLICATE = "SELECT min(at_ms) FROM duplicate WHERE queue = ?"

FREE_SESSION = """
SELECT session FROM message
 WHERE queue = :queue AND seq >= :start AND state = 0 AND session IS NOT NULL
   AND (expires_at IS NULL OR expires_at > :now_ms)
   AND session NOT IN (SELECT value FROM json_each(:held))
 ORDER BY seq LIMIT 1"""
SESSION_STATE = "SELECT state FROM session_state WHERE queue = ? AND session = ?"
SET_SESSION_STATE = """
INSERT OR REPLACE INTO session_state (queue, session, state, updated_at) VALUES (?, ?, ?, ?)"""
CLEAR_SESSION_STATE = "DELETE FROM session_state WHERE queue = ? AND session = ?"
SESSIONS = """
SELECT json_group_array(session) FROM (
  SELECT session FROM session_state WHERE queue = :queue
   UNION SELECT session FROM message WHERE queue = :queue AND session IS NOT NULL AND state < 3
   ORDER BY session LIMIT :limit OFFSET :skip)"""
SESSIONS_CHANGED = """
SELECT json_group_array(session) FROM (
  SELECT session FROM session_state WHERE queue = :queue AND updated_at > :after_ms
   ORDER BY session LIMIT :limit OFFSET :skip)"""

QUEUES = """
SELECT json_group_array(json_array(id, settings, dropped, next_seq, active, deferred, scheduled, damaged, bytes))
  FROM (SELECT * FROM queue ORDER BY id)"""
CREATE_QUEUE = "INSERT INTO queue (id, settings) VALUES (?, ?)"
CONFIGURE_QUEUE = "UPDATE queue SET settings = ? WHERE id = ?"
DROP_QUEUE = "UPDATE queue SET dropped = 1 WHERE id >= :first AND id < :first + 4"
DROPPED = _states("queue = :queue ORDER BY seq LIMIT :limit")
DROPPED_MESSAGES = """
SELECT json_group_array(seq), json_group_array(body)
  FROM (SELECT seq, body FROM message WHERE queue = ? ORDER BY seq LIMIT ?)"""
DROPPED_DUPLICATES = """
DELETE FROM duplicate WHERE (queue, message_id) IN
 (SELECT queue, message_id FROM duplicate WHERE queue = ? LIMIT ?)"""
DROPPED_STATES = """
DELETE FROM session_state WHERE (queue, session) IN
 (SELECT queue, session FROM session_state WHERE queue = ? LIMIT ?)"""
FORGET_QUEUE = "DELETE FROM queue WHERE id = ?"

CLAIMS = "SELECT queue, held FROM claim ORDER BY id"
FORGET_CLAIMS = "DELETE FROM claim"

LAST_BODY = "SELECT max(id) FROM body"
LAST_SHARED = "SELECT min(id) FROM body"
LAST_JOURNAL = "SELECT max(id) FROM journal"
OLDEST_JOURNAL = "SELECT at_ms FROM journal ORDER BY id LIMIT 1"
# The newest row stays, because the next row's number is taken from it; and so does an old one behind a younger, which a
# clock that was set back makes, because a journal has no gaps.
OLD_JOURNAL = """
DELETE FROM journal WHERE id IN
 (SELECT id FROM (SELECT id FROM journal ORDER BY id LIMIT :limit)
   WHERE id < :newest AND id < coalesce(
         (SELECT min(id) FROM (SELECT id, at_ms FROM journal ORDER BY id LIMIT :limit) WHERE at_ms >= :before_ms),
         :newest))"""
JOURNAL_AFTER = "SELECT id, at_ms, ops FROM journal WHERE id > ? ORDER BY id LIMIT ?"

# For the exporter, which reads beside the commits.
NEXT_RANGE = """
SELECT min(id), max(id), sum(size), min(at_ms), max(at_ms)
  FROM (SELECT id, at_ms, length(ops) AS size, sum(length(ops)) OVER (ORDER BY id) AS total
          FROM (SELECT id, at_ms, ops FROM journal WHERE id > :after ORDER BY id LIMIT :rows)) AS j
 WHERE (total <= :bytes OR id = :first) AND id < coalesce(
       (SELECT min(id) FROM (SELECT id, at_ms FROM journal WHERE id > :after ORDER BY id LIMIT :rows)
         WHERE at_ms / 86400000 <> :day), id + 1)"""
FIRST_AFTER = "SELECT id, at_ms FROM journal WHERE id > :after ORDER BY id LIMIT 1"
RANGE_ROWS = """
SELECT id, at_ms, ops
  FROM (SELECT id, at_ms, ops, sum(length(ops)) OVER (ORDER BY id) - length(ops) AS before
          FROM (SELECT id, at_ms, ops FROM journal WHERE id > :after AND id <= :last ORDER BY id LIMIT :rows))
 WHERE before < :bytes ORDER BY id"""
STREAM = """
SELECT coalesce((SELECT last FROM export WHERE writer = 0 AND state > 0 ORDER BY first DESC LIMIT 1), 0),
       (SELECT json_array(writer, first, last, from_ms, to_ms, bytes) FROM export WHERE state = 0),
       coalesce((SELECT max(id) FROM journal), 0)"""
OLDEST_WAITING = "SELECT at_ms FROM journal WHERE id > ? ORDER BY id LIMIT 1"
NAMES = "SELECT entity, path, kind, fragment FROM name WHERE entity IN (SELECT value FROM json_each(?))"
HAS_DROPPED = "SELECT EXISTS (SELECT 1 FROM queue WHERE dropped = 1)"
JOURNAL_BYTES = "SELECT coalesce(sum(length(ops)), 0) FROM journal"

# What the journal's readers call entities, and what of the journal is in files.
SET_ASIDE = """
UPDATE queue SET dropped = :aside WHERE dropped <> 1 AND id >> 2 IN (SELECT value FROM json_each(:entities))"""
UNDEFER = "UPDATE message SET state = 0, expires_at = NULL WHERE queue = ? AND state = 1"
HELD = """
SELECT q.id >> 2, max(q.dropped) = 2, max(q.next_seq) > 1, n.document IS NOT NULL, n.path, n.kind, n.fragment
  FROM queue AS q LEFT JOIN name AS n ON n.entity = q.id >> 2 WHERE q.dropped <> 1 GROUP BY q.id >> 2"""
REMEMBERED = """
SELECT json_group_array(json_array(n.entity, n.path, n.kind, n.fragment, n.document))
  FROM name AS n JOIN json_each(?) AS e ON n.entity = e.value"""
NOTE_POSITION = "INSERT OR REPLACE INTO meta VALUES ('noted_journal', ?)"
WITNESS = """
INSERT INTO meta VALUES ('catalog_generation', :generation)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
 WHERE CAST(value AS INTEGER) < CAST(excluded.value AS INTEGER)"""
NAME_ENTITIES = """
INSERT INTO name (entity, path, kind, fragment, document)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(:names) WHERE true
    ON CONFLICT (entity) DO UPDATE SET document = excluded.document
 WHERE excluded.document IS NOT NULL AND excluded.document IS NOT document"""
ENTITIES_GONE = """
UPDATE name SET gone_at = :now_ms WHERE entity IN (SELECT value FROM json_each(:gone)) AND gone_at IS NULL"""
FORGET_NAMES = """
DELETE FROM name WHERE gone_at < :before_ms AND gone_at < (SELECT min(at_ms) FROM journal) - :late_ms"""
CLOSE_RANGE = """
INSERT INTO export (writer, first, last, from_ms, to_ms, bytes)
SELECT :writer, :first, :last, :from_ms, :to_ms, :bytes
 WHERE NOT EXISTS (SELECT 1 FROM export WHERE writer = :writer AND last >= :first) ON CONFLICT DO NOTHING"""
FINISH_RANGE = "UPDATE export SET state = 1 WHERE writer = :writer AND first = :first AND state = 0"
OLDEST_EXPORT = """
SELECT writer, first, last, to_ms, (SELECT sum(bytes) FROM export WHERE state = 1)
  FROM export WHERE state = 1 ORDER BY to_ms LIMIT 1"""
# As above, the newest row stays.
TRIM_JOURNAL = """
DELETE FROM journal WHERE id IN
 (SELECT id FROM journal
   WHERE :writer = 0 AND id <= :last AND id < (SELECT max(id) FROM journal) ORDER BY id LIMIT :limit)"""
# Of a writer's ranges the newest stays, because the next one begins behind it.
TRIMMED = "UPDATE export SET state = 2 WHERE writer = :writer AND first = :first"
FORGET_RANGES = """
DELETE FROM export
 WHERE writer = :writer AND state = 2 AND first < (SELECT max(first) FROM export WHERE writer = :writer)"""
