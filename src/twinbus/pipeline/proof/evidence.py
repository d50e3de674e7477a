"""What a reconciliation is given: journals, what is still in the entities, send logs and ledgers, all of them files.

The columns of the file of residents are a public contract, told here once. Browsing is `residents`' business, reading
a send log `sendlog`'s, and what follows from it all `reconcile`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinbus.model.journal import Column

MESSAGE_ID = "message_id"
RESIDENTS_VERSION = 1
RESIDENTS_VERSION_KEY = "twinbus.residents.version"  # In the metadata of every file.

RESIDENT_COLUMNS = (
    Column("namespace", "string", "where it is"),
    Column("entity", "string", "the path, as in the journal"),
    Column("sub_queue", "string", "empty, `$DeadLetterQueue` or `$Transfer/$DeadLetterQueue`"),
    Column("sequence_number", "int64", "the copy's number; 0 in the row that only says that the queue was browsed"),
    Column("message_id", "string", "the message"),
    Column("session_id", "string", "its session, or empty"),
    Column("state", "string", "active, deferred or scheduled; a locked message is active"),
    Column("enqueued_at", "timestamp", "when it came, by the namespace's clock"),
    Column("destination", "string", "of a diverted message, the entity that it is for (`x-ms-path`); else empty"),
    Column("bytes", "int64", "its size as it was browsed"),
    Column("began", "timestamp", "when the browse of the entity, with its sub-queues, began, by the namespace's clock"),
    Column("ended", "timestamp", "when it ended"),
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the files are."""

    journals: Sequence[Path] = ()  # A directory for each namespace, or several for one.
    residents: Path | None = None  # None: nobody looked into the entities.
    send_logs: Sequence[Path] = ()
    ledgers: Sequence[Path] = ()  # As `twinbus ledger export` writes them.
    without_journal: Sequence[str] = ()  # Namespaces that have none, as on Azure.


@dataclass(frozen=True, slots=True)
class Window:
    """Which messages are judged, and by what measure. The conservation line always has the whole journal."""

    since_ms: int | None = None  # Messages that were first heard of from then on,
    until_ms: int | None = None  # and before then.
    slo_s: float | None = None  # What takes longer is late.
    backlog_queues: int | None = None  # Backlog queues with this number or a higher one are surplus.
    slack_ms: int = 2_000  # Between a commit's instant and its being seen, and between two clocks.
    rows: int = 100  # So many of each table are brought; all are counted.
    tag: str = MESSAGE_ID  # What copies share, as the ledger and the merge have it.

    @property
    def by_tag(self) -> bool:
        """Whether copies are told by what the send logs give as their tag."""
        return self.tag != MESSAGE_ID
