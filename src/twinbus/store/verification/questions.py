"""What is asked of a store's tables, one text for both engines; what differs is filled in from a `Dialect`.

The statements take no values and change nothing. What the answers mean is decided in `examining`.
"""

from __future__ import annotations

from typing import NamedTuple


class Dialect(NamedTuple):
    """The parts of a statement in which the engines differ."""

    queues: str  # The rows that rule queues: id, settings, dropped (1: going), next_seq and the counts.
    journal: str  # Writer, id, at_ms, ops.
    size: str  # A message's size, of m or b.
    lasting: tuple[str, ...]  # Tables whose rows belong to a queue that has a row.
    volatile: tuple[str, ...]  # The same, but rows of an entity that is gone may be left.
    wrong_size: str  # Rows m and b that disagree about the size.

    def fill(self, statement: str) -> str:
        """A statement as this engine understands it."""
        return statement.format(queues=self.queues, journal=self.journal, size=self.size, wrong_size=self.wrong_size)


SIZES = "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM body), (SELECT count(*) FROM journal)"
META = "SELECT key, value FROM meta"
NAMES = "SELECT entity, path, kind, fragment FROM name"
QUEUES = "SELECT id, settings, dropped, next_seq FROM {queues} AS q ORDER BY id"

BODIES = "SELECT id, data FROM body ORDER BY id"
WITHOUT_BODY = """
SELECT m.queue, count(*), min(m.seq), max(m.seq) FROM message AS m
 WHERE NOT EXISTS (SELECT 1 FROM body AS b WHERE b.id = m.body) GROUP BY m.queue ORDER BY m.queue"""
WITHOUT_MESSAGE = """
SELECT count(*), min(id), max(id), coalesce(sum(length(data)), 0) FROM body
 WHERE id NOT IN (SELECT body FROM message)"""
USED_TWICE = "SELECT body, count(*), min(queue), min(seq) FROM message WHERE body > 0 GROUP BY body HAVING count(*) > 1"
IMPOSSIBLE = """
SELECT m.queue, m.seq, m.state, m.delivery_count, m.due_at FROM message AS m LEFT JOIN body AS b ON b.id = m.body
 WHERE m.state NOT IN (0, 1, 2, 3) OR m.delivery_count < 0 OR m.seq < 1 OR (m.state = 2 AND m.due_at IS NULL)
    OR {wrong_size} ORDER BY m.queue, m.seq LIMIT 1000"""
COUNTS = """
SELECT q.id, q.next_seq, q.active, q.deferred, q.scheduled, q.damaged, q.bytes, coalesce(m.last, 0),
       coalesce(m.active, 0), coalesce(m.deferred, 0), coalesce(m.scheduled, 0), coalesce(m.damaged, 0),
       coalesce(m.bytes, 0), coalesce(m.lost, 0)
  FROM {queues} AS q
  LEFT JOIN (SELECT m.queue, max(m.seq) AS last, count(*) FILTER (WHERE m.state = 0) AS active,
                    count(*) FILTER (WHERE m.state = 1) AS deferred, count(*) FILTER (WHERE m.state = 2) AS scheduled,
                    count(*) FILTER (WHERE m.state = 3) AS damaged, sum({size}) AS bytes,
                    count(*) - count(b.id) AS lost
               FROM message AS m LEFT JOIN body AS b ON b.id = m.body GROUP BY m.queue) AS m ON m.queue = q.id
 WHERE q.dropped <> 1 ORDER BY q.id"""
STATES = "SELECT queue, seq, message_id FROM message WHERE state < 3 ORDER BY queue, seq"
TRANSFERS = "SELECT DISTINCT queue FROM transfer ORDER BY queue"

JOURNAL = "SELECT writer, id, at_ms, ops FROM {journal} AS j ORDER BY writer, id"
GAPS = """
SELECT writer, id, following FROM (
  SELECT writer, id, lead(id) OVER (PARTITION BY writer ORDER BY id) AS following FROM {journal} AS j) AS j
 WHERE following <> id + 1 ORDER BY writer, id"""
# Writers whose newest row is older than what is in files. Where all rows are gone, their writer is, too.
BEHIND = """
SELECT e.writer, j.last, e.last FROM (SELECT writer, max(last) AS last FROM export GROUP BY writer) AS e
  JOIN (SELECT writer, max(id) AS last FROM {journal} AS j GROUP BY writer) AS j ON j.writer = e.writer
 WHERE j.last < e.last ORDER BY e.writer"""


def strays(table: str) -> str:
    """Rows of a table whose queue has no row, by queue."""
    return f"""
SELECT s.queue, s.number FROM (SELECT queue, count(*) AS number FROM {table} GROUP BY queue) AS s
 WHERE s.queue NOT IN (SELECT id FROM {{queues}} AS q) ORDER BY s.queue"""


GONE = "SELECT entity FROM name WHERE gone_at IS NOT NULL"


def owners(bodies: list[int]) -> str:
    """The messages that name some records."""
    numbers = ", ".join(str(int(body)) for body in bodies)
    return f"SELECT body, queue, seq, state FROM message WHERE body IN ({numbers}) ORDER BY queue, seq"
