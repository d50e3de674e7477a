"""What time makes due in a store that several gateways sweep: one of them at a time, a bounded chunk of each kind.

Which entities have something due is looked up first, so that their rows can be taken in order; the rules of what then
happens are those of `store.sweeping`.
"""

from __future__ import annotations

from typing import LiteralString

from twinbus.sql.postgres import integers
from twinbus.store import sweeping
from twinbus.store.commands import Sweep
from twinbus.store.postgres import dialect
from twinbus.store.postgres.dialect import SERVED, UNLOCKED
from twinbus.store.postgres.loading import Loader, names_of
from twinbus.store.postgres.work import PostgresWork
from twinbus.store.ranges import forget_names
from twinbus.store.sessions import end
from twinbus.store.settling import end_locks
from twinbus.store.transferring import REMEMBERED_MS

HOUSEKEEPING_MS = 5_000

MAY_SWEEP: LiteralString = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 1))"
DUE_ENTITIES: LiteralString = f"""
SELECT DISTINCT d.entity FROM (
  (SELECT queue >> 2 AS entity FROM lock WHERE until <= %(now)s ORDER BY until LIMIT %(chunk)s)
  UNION ALL (SELECT queue >> 2 FROM hold WHERE until <= %(now)s ORDER BY until LIMIT %(chunk)s)
  UNION ALL (SELECT m.queue >> 2 FROM message AS m
              WHERE m.state = 0 AND m.expires_at <= %(now)s AND {SERVED} AND {UNLOCKED}
              ORDER BY m.expires_at LIMIT %(chunk)s)
  UNION ALL (SELECT m.queue >> 2 FROM message AS m
              WHERE m.state = 2 AND m.due_at <= %(now)s AND {SERVED} ORDER BY m.due_at LIMIT %(chunk)s)
  UNION ALL (SELECT id FROM entity WHERE dropped ORDER BY id LIMIT 10)) AS d"""
# Windows differ and may be changed, so each entity that has one is asked for its oldest id.
OLD_WINDOWS: LiteralString = """
SELECT e.id FROM entity AS e
 WHERE EXISTS (SELECT 1 FROM duplicate AS d
                WHERE d.queue = e.id * 4 AND d.at_ms <= %s - (e.settings::json ->> 'duplicate_window_ms')::bigint)
   AND (e.settings::json ->> 'duplicate_window_ms')::bigint > 0 AND NOT e.dropped AND NOT e.aside
 ORDER BY e.id LIMIT 100"""
# Of each writer the oldest rows, up to the first that is young enough: an old one behind it, which a clock that was set
# back makes, stays, because a journal has no gaps. The newest row stays while the writer is there, because its next
# number is taken from it.
OLD_JOURNAL: LiteralString = """
WITH RECURSIVE named AS (
  SELECT min(writer) AS writer FROM journal WHERE EXISTS (SELECT 1 FROM journal WHERE at_ms < %(before)s)
   UNION ALL
  SELECT (SELECT min(j.writer) FROM journal AS j WHERE j.writer > n.writer) FROM named AS n WHERE n.writer IS NOT NULL),
oldest AS (
  SELECT j.writer, j.id, min(j.id) FILTER (WHERE j.at_ms >= %(before)s) OVER (PARTITION BY j.writer) AS first_young
    FROM named AS n CROSS JOIN LATERAL (
      SELECT writer, id, at_ms FROM journal WHERE writer = n.writer ORDER BY id LIMIT %(limit)s) AS j)
DELETE FROM journal WHERE (writer, id) IN
 (SELECT o.writer, o.id FROM oldest AS o
   WHERE (o.first_young IS NULL OR o.id < o.first_young)
     AND (NOT EXISTS (SELECT 1 FROM gateway AS g WHERE g.number = o.writer)
          OR EXISTS (SELECT 1 FROM journal AS n WHERE n.writer = o.writer AND n.id > o.id))
   ORDER BY o.writer, o.id LIMIT %(limit)s) RETURNING 1"""
NEXT_DUE: LiteralString = f"""
SELECT least((SELECT min(until) FROM lock), (SELECT min(until) FROM hold),
             (SELECT m.expires_at FROM message AS m
               WHERE m.state = 0 AND m.expires_at IS NOT NULL AND {SERVED} AND {UNLOCKED}
               ORDER BY m.expires_at LIMIT 1),
             (SELECT m.due_at FROM message AS m WHERE m.state = 2 AND {SERVED} ORDER BY m.due_at LIMIT 1))"""
OLDEST: LiteralString = "SELECT (SELECT min(at_ms) FROM transfer), (SELECT min(at_ms) FROM journal)"


def due_entities(work: PostgresWork, schema: str, housekeeping: bool) -> set[int]:
    """The entities that have something due; none if another gateway is sweeping."""
    [[allowed]] = work.run([(MAY_SWEEP, (schema,))])
    work.swept = bool(allowed[0])
    if not work.swept:
        return set()
    rows = work.connection.execute(DUE_ENTITIES, {"now": work.now_ms, "chunk": sweeping.CHUNK}).fetchall()
    if housekeeping:
        rows += work.connection.execute(OLD_WINDOWS, (work.now_ms,)).fetchall()
    return {row[0] for row in rows}


def sweep(work: PostgresWork, command: Sweep, loader: Loader, retention_ms: int | None, housekeeping: bool) -> None:
    """One chunk of everything that is due. Without a retention, whoever exports the journal trims it."""
    if not work.swept:
        return
    more = False
    if work.memory.entities:
        more = _locks(work, loader)
        work.flush()
        more |= sweeping.expired(work)
        work.flush()
        more |= sweeping.activated(work)
        work.flush()
        more |= sweeping.dropped(work)
    if housekeeping:
        more |= sweeping.duplicates(work)
        more |= sweeping.transfers(work)
        if retention_ms is not None:
            [gone] = work.run([(OLD_JOURNAL, {"before": work.now_ms - retention_ms, "limit": sweeping.CHUNK})])
            more |= len(gone) == sweeping.CHUNK
            forget_names(work, work.now_ms - retention_ms)
    command.result = more
    work.flush()
    if more:
        work.memory.due(work.now_ms)
        return
    [[due]] = work.run([(NEXT_DUE, ())])
    work.memory.due(due[0])
    if housekeeping:
        [[(transfer_ms, journal_ms)]] = work.run([(OLDEST, ())])
        if transfer_ms is not None:
            work.memory.due(max(transfer_ms + REMEMBERED_MS, work.now_ms + 1))
        if journal_ms is not None and retention_ms is not None:
            work.memory.due(max(journal_ms + retention_ms, work.now_ms + 60_000))


def _locks(work: PostgresWork, loader: Loader) -> bool:
    """Locks and sessions that ran out: messages return and deliveries count."""
    entities = integers(list(work.memory.entities))
    held = (work.now_ms, entities, sweeping.CHUNK)
    holds, locks = work.run([(dialect.HOLDS_EXPIRED, held), (dialect.LOCKS_EXPIRED, held)])
    ended = loader.take_holds(holds)
    names = {(queue.id, name) for queue in work.memory.queues.values() for name in queue.holds}
    if ended:
        [in_sessions] = work.run([(dialect.LOCKS_OF_SESSIONS, names_of(names))])
        loader.take_locks(in_sessions)
    loader.take_locks(locks)
    for queue in work.memory.queues.values():
        if queue.entity.dropped:
            continue
        for hold in [hold for hold in queue.holds.values() if hold.until_ms <= work.now_ms]:
            end(work, queue, hold, counted=True)
        over = [token for token, lock in queue.locks.items() if lock.until_ms <= work.now_ms]
        end_locks(work, queue, over, True, "expire_lock")
    return len(locks) == sweeping.CHUNK or len(holds) == sweeping.CHUNK
