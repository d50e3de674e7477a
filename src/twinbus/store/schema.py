"""The tables of the embedded store and the version that a file carries.

State and body are apart: a body is written once and never updated, a state row is small and may be placed anew. How a
database is opened and synced is `sql.sqlite`'s business; what is written when is the operations' own.
"""

from __future__ import annotations

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.store import statements

VERSION = 4

# Messages that came from a queue on another store and may not be complete there yet, so that the same one is not
# stored twice.
_TRANSFERS = """
CREATE TABLE transfer (
    queue INTEGER NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (queue, seq)
) WITHOUT ROWID;
CREATE INDEX transfer_age ON transfer (at_ms);
"""

# What entities are called, for as long as the journal may speak of them; and the ranges of the journal that are in
# files. A range's state: 0 its file is being written, 1 the file is there, 2 the rows are here no more.
_EXPORT = """
CREATE TABLE name (
    entity INTEGER PRIMARY KEY, path TEXT NOT NULL, kind TEXT NOT NULL, fragment INTEGER NOT NULL, gone_at INTEGER
);
CREATE TABLE export (
    writer INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL, bytes INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (writer, first)
) WITHOUT ROWID;
CREATE INDEX export_age ON export (to_ms, bytes) WHERE state = 1;
CREATE UNIQUE INDEX export_open ON export (writer) WHERE state = 0;
"""

# How the catalog describes an entity, so that it can be made again if the catalog is lost. Without a description it was
# never in the catalog.
_DESCRIPTIONS = """
ALTER TABLE name ADD COLUMN document TEXT;
CREATE INDEX queue_aside ON queue (id) WHERE dropped = 2;
"""

# What makes a file of one version one of the next.
MIGRATIONS = {1: _TRANSFERS, 2: _EXPORT, 3: _DESCRIPTIONS}

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row rules a queue. Its id is the entity's number times four, plus the number of the sub-queue.
CREATE TABLE queue (
    id INTEGER PRIMARY KEY,
    settings TEXT,                          -- JSON, in the main queue's row only.
    -- 1: the entity is gone, its rows are being freed. 2: the catalog does not know it, so it is set aside.
    dropped INTEGER NOT NULL DEFAULT 0,
    next_seq INTEGER NOT NULL DEFAULT 1,
    active INTEGER NOT NULL DEFAULT 0,
    deferred INTEGER NOT NULL DEFAULT 0,
    scheduled INTEGER NOT NULL DEFAULT 0,
    damaged INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE message (
    queue INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,       -- MessageState, or 3: damaged.
    delivery_count INTEGER NOT NULL DEFAULT 0,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER,
    due_at INTEGER,
    session TEXT,
    message_id TEXT NOT NULL,
    overlay BLOB,                           -- Replaces the application-properties section of the body.
    reason TEXT,
    description TEXT,
    PRIMARY KEY (queue, seq)
) WITHOUT ROWID;
CREATE INDEX message_expiry ON message (expires_at) WHERE state = 0 AND expires_at IS NOT NULL;
CREATE INDEX message_due ON message (due_at) WHERE state = 2;
CREATE INDEX message_session ON message (queue, session, seq) WHERE session IS NOT NULL;
-- Who still uses a body that copies share. Messages with a body of their own are not in it.
CREATE INDEX message_shared ON message (body) WHERE body < 0;

-- The record's CRC-32 in four bytes, big-endian, then the record. With a positive id it belongs to one message, with a
-- negative one to all messages that name it.
CREATE TABLE body (id INTEGER PRIMARY KEY, data BLOB NOT NULL);

CREATE TABLE duplicate (
    queue INTEGER NOT NULL, message_id TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (queue, message_id)
) WITHOUT ROWID;
CREATE INDEX duplicate_age ON duplicate (queue, at_ms);

CREATE TABLE session_state (
    queue INTEGER NOT NULL, session TEXT NOT NULL, state BLOB NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (queue, session)
) WITHOUT ROWID;

-- What one commit locked: [[number, delivery count], ...]. Gone when the last of it is unlocked; what a restart finds
-- here counts as delivered.
CREATE TABLE claim (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, held TEXT NOT NULL);

-- One row per commit; `store.journal` reads it.
CREATE TABLE journal (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, ops BLOB NOT NULL);
"""


def prepare(database: apsw.Connection) -> None:
    """Make the tables in an empty file, refuse a file that a newer Twinbus wrote, and set up the way to write."""
    version = _version(database)
    if version is None:
        with database:
            database.execute(TABLES + _TRANSFERS + _EXPORT + _DESCRIPTIONS)
            database.execute(
                "INSERT INTO meta VALUES ('kind', 'messaging-store'), ('schema_version', ?)", (str(VERSION),)
            )
    elif version > VERSION:
        raise BusError(
            Fault.NOT_ALLOWED,
            f"The messaging store's file has schema version {version}, and this version of Twinbus knows only up to"
            f" {VERSION}. Start the newer Twinbus that wrote it, or use another data directory.",
        )
    else:
        _migrate(database, version)
    database.execute(statements.CHANGE_VIEW)
    database.execute(statements.CHANGE_TRIGGER)
    database.execute(statements.COPY_VIEW)
    database.execute(statements.COPY_TRIGGER)


def check_current(database: apsw.Connection) -> None:
    """Refuse a file of another version that is opened for reading only: an older one cannot be brought up to date."""
    version = _version(database)
    if version != VERSION:
        raise BusError(
            Fault.NOT_ALLOWED,
            f"The messaging store's file has schema version {version}, and what is read here must have {VERSION}. If it"
            " is older, serve it once with this version of Twinbus, which brings it up to date.",
        )


def _migrate(database: apsw.Connection, version: int) -> None:
    """Bring a file of an older version up to date, one version at a time, each step whole or not at all."""
    for old in range(version, VERSION):
        with database:
            database.execute(MIGRATIONS[old])
            database.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(old + 1),))


def _version(database: apsw.Connection) -> int | None:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        return None
    if "meta" in tables:
        meta = dict(database.execute("SELECT key, value FROM meta"))
        if meta.get("kind") == "messaging-store":
            return int(meta["schema_version"])
    raise BusError(Fault.NOT_ALLOWED, "The file is a database, but not one of Twinbus' messaging stores.")
