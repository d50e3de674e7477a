"""While gateways are upgraded one after the other, those of a released version go on with what the new one has made.

Each release has left a database and the statements that it says there (`support.released`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import psycopg
import pytest

from support.gateways import new_database
from support.postgres import PostgresServer
from support.released import CATALOG, NAMESPACE, STORE, Release, releases
from twinbus.model.errors import BusError
from twinbus.sql.postgres import connect
from twinbus.store.postgres import catalog, schema
from twinbus.store.postgres.catalog import CatalogDatabase
from twinbus.store.postgres.store import PostgresStore


class Database(NamedTuple):
    url: str
    release: Release

    def outcomes(self) -> dict[str, str]:
        """What the server says to each statement of the release: empty if it can be said."""
        found = {}
        with psycopg.connect(self.url, autocommit=True, options=f"-csearch_path={STORE}") as connection:
            for statement in self.release.statements:
                try:
                    connection.execute(f"PREPARE said AS {statement}".encode())
                    connection.execute("DEALLOCATE said")
                    found[statement] = ""
                except psycopg.Error as error:
                    found[statement] = str(error.sqlstate)
        return found

    def columns(self) -> dict[tuple[str, str, str], bool]:
        """All columns, and whether a row can be written without giving them a value."""
        asked = """SELECT table_schema, table_name, column_name,
                          is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'
                     FROM information_schema.columns WHERE table_schema = ANY(%s)"""
        with psycopg.connect(self.url) as connection:
            return {(a, b, c): free for a, b, c, free in connection.execute(asked, [[CATALOG, STORE]])}

    def upgrade(self) -> None:
        """What the start of a gateway of this version does to it."""
        CatalogDatabase(partial(connect, self.url), NAMESPACE).close()
        PostgresStore(self.url, STORE).close()


@pytest.fixture(params=list(releases()), ids=lambda release: release.name)
def database(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[Database]:
    url = new_database(postgres)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(request.param.dump.encode())
    return Database(url, request.param)


def test_the_statements_of_a_release_can_be_said_after_the_upgrade(database: Database) -> None:
    before = database.outcomes()
    said = [statement for statement, problem in before.items() if not problem]
    assert len(said) > 0.9 * len(before), [each for each in before.items() if each[1]]
    database.upgrade()
    assert database.outcomes() == before


def test_what_is_new_needs_no_value_from_a_gateway_that_does_not_know_it(database: Database) -> None:
    before = database.columns()
    database.upgrade()
    after = database.columns()
    assert before.keys() <= after.keys()
    tables = {key[:2] for key in before}
    assert [key for key, is_free in after.items() if key[:2] in tables and key not in before and not is_free] == []


def test_an_upgrade_is_done_once_and_keeps_everything(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        entities = connection.execute(f"SELECT id, name, kind, store, document FROM {CATALOG}.entity").fetchall()
        messages = connection.execute(f"SELECT queue, seq, state, message_id FROM {STORE}.message").fetchall()
        for _ in range(2):
            database.upgrade()
            (version,) = connection.execute(f"SELECT version FROM {CATALOG}.counter").fetchone()  # type: ignore[misc]
            assert version == catalog.VERSION
            stored = dict(connection.execute(f"SELECT key, value FROM {STORE}.meta").fetchall())
            assert stored["schema_version"] == str(schema.VERSION)
        again = connection.execute(f"SELECT id, name, kind, store, document FROM {CATALOG}.entity").fetchall()
        assert again == entities
        again = connection.execute(f"SELECT queue, seq, state, message_id FROM {STORE}.message").fetchall()
        assert again == messages
    assert entities
    assert messages


def test_a_newer_database_is_refused_and_said_to_be_newer(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"UPDATE {CATALOG}.counter SET version = 999")
        connection.execute(f"UPDATE {STORE}.meta SET value = '999' WHERE key = 'schema_version'")
    with pytest.raises(BusError, match="newer Twinbus"):
        CatalogDatabase(partial(connect, database.url), NAMESPACE)
    with pytest.raises(BusError, match="newer Twinbus"):
        PostgresStore(database.url, STORE)
