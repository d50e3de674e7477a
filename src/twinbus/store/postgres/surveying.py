"""A survey of a store in PostgreSQL: one statement over the rows that rule the entities.

What is asked, and what it is for, is told in `store.surveying`.
"""

from __future__ import annotations

from typing import LiteralString

from twinbus.store.postgres.loading import entity_of
from twinbus.store.postgres.work import PostgresWork
from twinbus.store.reading import counts_of
from twinbus.store.surveying import Stand, Survey

# The second of an entity's counters is how many messages of its main queue are active.
SURVEY: LiteralString = """
SELECT e.id, e.settings, e.dropped, e.counts,
       (SELECT count(*) FROM lock AS l WHERE l.queue = e.id * 4),
       CASE WHEN e.counts[2] > 0 THEN (
           SELECT m.enqueued_at FROM message AS m WHERE m.queue = e.id * 4 AND m.state = 0 ORDER BY m.seq LIMIT 1) END
  FROM entity AS e WHERE NOT e.dropped"""


def survey(work: PostgresWork, command: Survey) -> None:
    """All entities, whichever gateway uses them."""
    [rows] = work.run([(SURVEY, ())])
    command.result = {
        row[0]: Stand(counts_of(entity_of(row[:4])), int(row[4]), None if row[5] is None else int(row[5]))
        for row in rows
    }
