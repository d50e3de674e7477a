"""The tables of a messaging store in PostgreSQL, each store in a schema of its own, and the version that it carries.

State and body are apart as in the embedded store. Locks and held sessions are rows here, because gateways share them.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from twinbus.model.errors import BusError, Fault
from twinbus.sql.postgres import Connection

VERSION = 3
KIND = "messaging-store"
UNFINISHED_KIND = "unfinished-messaging-store"  # It is being filled from elsewhere; no version of Twinbus serves it.

# A sub-queue's counters in an entity's row, in this order; there are three sub-queues.
COUNTERS = ("next_seq", "active", "deferred", "scheduled", "damaged", "bytes", "head")

# What entities are called, for as long as the journal may speak of them; and the ranges of the journal that are in
# files. A range's state: 0 its file is being written, 1 the file is there, 2 the rows are here no more.
_EXPORT: tuple[LiteralString, ...] = (
    """CREATE TABLE name (
        entity bigint PRIMARY KEY, path text NOT NULL, kind text NOT NULL, fragment int NOT NULL, gone_at bigint
    )""",
    """CREATE TABLE export (
        writer bigint NOT NULL, first bigint NOT NULL, last bigint NOT NULL, from_ms bigint NOT NULL,
        to_ms bigint NOT NULL, bytes bigint NOT NULL, state int NOT NULL DEFAULT 0, PRIMARY KEY (writer, first)
    )""",
    "CREATE INDEX export_age ON export (to_ms, bytes) WHERE state = 1",
    "CREATE UNIQUE INDEX export_open ON export (writer) WHERE state = 0",
)

# How the catalog describes an entity, so that it can be made again if the catalog is lost; and which entities the
# catalog does not know. Gateways of the version before may still be there, and their statements go on working.
_ASIDE: tuple[LiteralString, ...] = (
    "ALTER TABLE name ADD COLUMN document text",
    "ALTER TABLE entity ADD COLUMN aside boolean NOT NULL DEFAULT false",
)

TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL)",
    # One row rules an entity: whoever changes anything of it holds this row until the commit. `counts` has the
    # COUNTERS of each sub-queue, one after another; `changes` grows when something may have become available.
    # Rows are changed in place all the time, hence the room in the pages.
    """CREATE TABLE entity (
        id bigint PRIMARY KEY,
        settings text NOT NULL,
        dropped boolean NOT NULL DEFAULT false,
        counts bigint[] NOT NULL,
        changes bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 20)""",
    "CREATE INDEX entity_dropped ON entity (id) WHERE dropped",
    """CREATE TABLE message (
        queue bigint NOT NULL,
        seq bigint NOT NULL,
        body bigint NOT NULL,
        size int NOT NULL,                     -- Of the record, so that its body need not be looked at.
        state smallint NOT NULL,
        delivery_count int NOT NULL,
        enqueued_at bigint NOT NULL,
        expires_at bigint,
        due_at bigint,
        session text COLLATE "C",
        message_id text COLLATE "C" NOT NULL,
        overlay bytea,
        reason text,
        description text,
        PRIMARY KEY (queue, seq)
    ) WITH (autovacuum_vacuum_scale_factor = 0.05)""",
    "CREATE INDEX message_expiry ON message (expires_at) WHERE state = 0 AND expires_at IS NOT NULL",
    "CREATE INDEX message_due ON message (due_at, queue, seq) WHERE state = 2",
    "CREATE INDEX message_session ON message (queue, session, seq) WHERE session IS NOT NULL",
    "CREATE INDEX message_shared ON message (body) WHERE body < 0",
    # The record's CRC-32 in four bytes, big-endian, then the record. A negative id: shared by copies.
    """CREATE TABLE body (id bigint PRIMARY KEY, data bytea NOT NULL)
        WITH (autovacuum_vacuum_scale_factor = 0.05)""",
    "ALTER TABLE body ALTER data SET STORAGE EXTERNAL",
    # Who has a message. `until` is empty in a session: there the lock ends with the session's.
    """CREATE TABLE lock (
        queue bigint NOT NULL,
        seq bigint NOT NULL,
        id bigint NOT NULL,
        until bigint,
        owner bigint NOT NULL,
        session text COLLATE "C",
        PRIMARY KEY (queue, seq)
    ) WITH (autovacuum_vacuum_scale_factor = 0.05)""",
    "CREATE INDEX lock_until ON lock (until) WHERE until IS NOT NULL",
    "CREATE INDEX lock_session ON lock (queue, session) WHERE session IS NOT NULL",
    "CREATE INDEX lock_owner ON lock (owner)",
    """CREATE TABLE hold (
        queue bigint NOT NULL,
        session text COLLATE "C" NOT NULL,
        owner bigint NOT NULL,
        holder bigint NOT NULL,
        until bigint NOT NULL,
        PRIMARY KEY (queue, session)
    )""",
    "CREATE INDEX hold_until ON hold (until)",
    "CREATE INDEX hold_owner ON hold (owner)",
    """CREATE TABLE duplicate (
        queue bigint NOT NULL, message_id text COLLATE "C" NOT NULL, at_ms bigint NOT NULL,
        PRIMARY KEY (queue, message_id)
    )""",
    "CREATE INDEX duplicate_age ON duplicate (queue, at_ms)",
    """CREATE TABLE transfer (
        queue bigint NOT NULL, seq bigint NOT NULL, at_ms bigint NOT NULL, PRIMARY KEY (queue, seq)
    )""",
    "CREATE INDEX transfer_age ON transfer (at_ms)",
    """CREATE TABLE session_state (
        queue bigint NOT NULL, session text COLLATE "C" NOT NULL, state bytea NOT NULL, updated_at bigint NOT NULL,
        PRIMARY KEY (queue, session)
    )""",
    # One row per commit; each writer's rows have numbers without gaps. `store.journal` reads them.
    """CREATE TABLE journal (
        writer bigint NOT NULL, id bigint NOT NULL, at_ms bigint NOT NULL, ops bytea NOT NULL, PRIMARY KEY (writer, id)
    )""",
    "CREATE INDEX journal_age ON journal (at_ms)",
    # Who uses the store, by a number that is never used again. The time is the server's own, not a test's.
    """CREATE TABLE gateway (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )""",
    *_EXPORT,
    *_ASIDE,
)

# What makes a schema of one version one of the next.
MIGRATIONS: dict[int, tuple[LiteralString, ...]] = {1: _EXPORT, 2: _ASIDE}


def prepare(connection: Connection, schema: str) -> None:
    """Make the tables in an empty schema, bring older ones up to date, and refuse those of a newer Twinbus.

    Several gateways may start at once, so it happens under a lock that the schema's name stands for.
    """
    if version_of(connection, schema) == VERSION:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"twinbus {schema}",))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        version = version_of(connection, schema)
        if version is None:
            for statement in TABLES:
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('kind', %s), ('schema_version', %s)", (KIND, str(VERSION)))
        elif version > VERSION:
            raise BusError(
                Fault.STORE_UNAVAILABLE,
                f"The schema {schema} has version {version}, and this version of Twinbus knows only up to {VERSION}."
                " Start the newer Twinbus that wrote it, or use another database.",
            )
        else:
            for old in range(version, VERSION):
                for statement in MIGRATIONS[old]:
                    connection.execute(statement)
                connection.execute("UPDATE meta SET value = %s WHERE key = 'schema_version'", (str(old + 1),))


def unfinished(what: str) -> BusError:
    """Why something is not opened that `twinbus store migrate` has not finished."""
    return BusError(
        Fault.NOT_ALLOWED,
        f"{what} is what an unfinished `twinbus store migrate` has left. Run it again: it begins anew. The directory"
        " that it reads has everything.",
    )


def version_of(connection: Connection, schema: str) -> int | None:
    """Which version a store's schema has, on a connection that looks there; None if the schema is empty."""
    tables = {row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))}
    if not tables:
        return None
    if "meta" in tables:
        meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        if meta.get("kind") == KIND:
            return int(meta["schema_version"])
        if meta.get("kind") == UNFINISHED_KIND:
            raise unfinished(f"The schema {schema}")
    raise BusError(Fault.STORE_UNAVAILABLE, f"The schema {schema} holds something, but not a messaging store.")
