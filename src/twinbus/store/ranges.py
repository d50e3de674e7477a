"""Which ranges of the journal are in files: written down before the file is, finished after it, trimmed when old.

The files themselves, and when a range is closed, are `store.export`'s and the broker's business.
"""

from __future__ import annotations

from twinbus.model.errors import BusError, Fault
from twinbus.store import statements
from twinbus.store.range_commands import CloseRange, FinishRange, Trim
from twinbus.store.work import Work

CHUNK = 1_000
LATE_MS = 3_600_000  # Notes about an entity may be journaled after it was dropped.


def close(work: Work, command: CloseRange) -> None:
    """A range is about to become a file, unless another one of the same writer is."""
    work.execute(statements.CLOSE_RANGE, command.range._asdict())
    if not work.database.changes():
        raise BusError(Fault.NOT_ALLOWED, "Another range of this journal is being written.")


def finish(work: Work, command: FinishRange) -> None:
    """A range's file is there."""
    work.execute(statements.FINISH_RANGE, {"writer": command.range.writer, "first": command.range.first})


def trim(work: Work, command: Trim) -> None:
    """Remove a chunk of the oldest range, if it is old or there is more than is to be kept."""
    work.flush()
    found = work.database.execute(statements.OLDEST_EXPORT).fetchone()
    if found is None:
        return
    writer, first, last, to_ms, total = found
    if to_ms >= command.before_ms and int(total) <= command.keep_bytes:
        return
    work.execute(statements.TRIM_JOURNAL, {"writer": writer, "last": last, "limit": CHUNK})
    command.result = True
    if work.database.changes() < CHUNK:
        work.execute(statements.TRIMMED, {"writer": writer, "first": first})
        work.execute(statements.FORGET_RANGES, {"writer": writer})
        forget_names(work, command.before_ms)


def forget_names(work: Work, before_ms: int) -> None:
    """Names of entities that are gone, and of which no row is left."""
    work.execute(statements.FORGET_NAMES, {"before_ms": before_ms, "late_ms": LATE_MS})
