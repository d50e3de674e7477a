"""One suite for every storage of a ledger: a SQLite file and a PostgreSQL database decide and keep alike."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.disks import fill_up
from support.postgres import PostgresServer
from twinbus.pair.errors import AlreadyDoneError, LedgerError
from twinbus.pair.ledger.decisions import Copy, Decision, Key, State
from twinbus.pair.ledger.ledger import AsyncLedger, Ledger, open_storage, records, remember
from twinbus.pair.ledger.storage import Claim, Command, Extend, Mark, Storage, Trim

FIRST, SECOND, THIRD = Copy("contoso", 1), Copy("fabrikam", 9), Copy("contoso", 2)
LEASE = 60_000


class Kept:
    """A storage whose clock the test moves, and that can be opened again."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.now_ms = 1_000_000
        self.storage: Storage = open_storage(where)

    def commit(self, *commands: Command) -> None:
        if hasattr(self.storage, "offset_ms"):
            self.storage.offset_ms = self.now_ms - 1_000_000
        self.storage.commit(list(commands), self.now_ms)
        assert next((command.error for command in commands if command.error), None) is None

    def claim(self, tag: str, copy: Copy, **settings: Any) -> Decision:
        claim = Claim(Key("q", tag), copy, LEASE, **settings)
        self.commit(claim)
        return claim.decision

    def mark(self, tag: str, copy: Copy, state: State = State.DONE) -> bool:
        mark = Mark(Key("q", tag), copy, state)
        self.commit(mark)
        return mark.changed

    def reopen(self) -> None:
        self.storage.close()
        self.storage = open_storage(self.where)


def in_new_schema(server: PostgresServer) -> str:
    """An address that leads to a schema of its own, for the ledger and for the application alike."""
    schema = server.new_schema()
    server.execute(f"CREATE SCHEMA {schema}")
    return f"{server.connection_url}?options=-csearch_path%3D{schema}"


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return in_new_schema(server)


@pytest.fixture
def kept(where: str) -> Iterator[Kept]:
    kept = Kept(where)
    yield kept
    kept.storage.close()


def test_a_tag_goes_from_claimed_to_done_and_stays_so_over_a_restart(kept: Kept) -> None:
    assert kept.claim("m", FIRST) is Decision.HAND_OUT
    assert kept.claim("m", SECOND) is Decision.HOLD
    kept.reopen()
    assert kept.claim("m", FIRST) is Decision.HAND_OUT
    assert kept.mark("m", FIRST)
    kept.reopen()
    assert kept.claim("m", FIRST) is Decision.SUPPRESS
    assert kept.claim("m", SECOND) is Decision.SUPPRESS
    assert not kept.mark("m", SECOND)


def test_scopes_do_not_know_of_each_other(kept: Kept) -> None:
    kept.mark("m", FIRST)
    other = Claim(Key("topic/subscriptions/a", "m"), FIRST, LEASE)
    kept.commit(other)
    assert other.decision is Decision.HAND_OUT


def test_a_claim_lapses_and_is_taken_over(kept: Kept) -> None:
    kept.claim("m", FIRST)
    kept.now_ms += LEASE - 20_000
    assert kept.claim("m", SECOND) is Decision.HOLD
    kept.commit(Extend(Key("q", "m"), FIRST, LEASE))
    kept.now_ms += 30_000
    assert kept.claim("m", SECOND) is Decision.HOLD
    kept.now_ms += LEASE
    assert kept.claim("m", SECOND) is Decision.HAND_OUT
    assert kept.claim("m", FIRST) is Decision.HOLD


def test_several_copies_of_a_tag_in_one_group_are_decided_in_order(kept: Kept) -> None:
    claims = [Claim(Key("q", "m"), copy, LEASE) for copy in (FIRST, SECOND, THIRD)]
    others = [Claim(Key("q", f"n{number}"), FIRST, LEASE) for number in range(300)]
    kept.commit(*claims, *others, Mark(Key("q", "m"), FIRST, State.DONE), Claim(Key("q", "m"), SECOND, LEASE))
    assert [claim.decision for claim in claims] == [Decision.HAND_OUT, Decision.HOLD, Decision.HOLD]
    assert {claim.decision for claim in others} == {Decision.HAND_OUT}
    assert kept.claim("m", THIRD) is Decision.SUPPRESS
    again = [Claim(Key("q", f"n{number}"), SECOND, LEASE) for number in range(300)]
    kept.commit(*again)
    assert {claim.decision for claim in again} == {Decision.HOLD}


def test_dead_lettering_counts_as_done_and_its_own_copy_is_known(kept: Kept) -> None:
    kept.claim("m", FIRST)
    kept.mark("m", FIRST, State.DEAD_LETTERED)
    assert kept.claim("m", SECOND) is Decision.SUPPRESS
    assert kept.claim("m", FIRST) is Decision.DEAD_LETTER


def test_receive_and_delete_marks_at_hand_out(kept: Kept) -> None:
    assert kept.claim("m", FIRST, at_once=State.DONE) is Decision.HAND_OUT
    assert kept.claim("m", SECOND) is Decision.SUPPRESS


def test_all_rows_can_be_read_with_what_was_suppressed(kept: Kept) -> None:
    kept.claim("m", FIRST)
    kept.mark("m", FIRST)
    kept.claim("m", SECOND)
    kept.claim("m", SECOND)
    kept.commit(Claim(Key("other", "tag with 'quotes' and ü"), THIRD, LEASE))
    rows = list(records(kept.where))
    assert [row[:5] for row in rows] == [
        ("q", "m", State.DONE, "contoso", 1),
        ("other", "tag with 'quotes' and ü", State.CLAIMED, "contoso", 2),
    ]
    assert [row.suppressed for row in rows] == [2, 0]
    assert [row.tag for row in records(kept.where, "q")] == ["m"]


def test_what_is_old_is_forgotten_in_chunks_and_what_is_in_hand_is_not(kept: Kept) -> None:
    kept.commit(*(Mark(Key("q", f"old{number}"), FIRST, State.DONE) for number in range(2500)))
    kept.now_ms += 1_000_000
    kept.claim("in hand", FIRST)
    kept.commit(*(Mark(Key("q", f"new{number}"), FIRST, State.DONE) for number in range(10)))
    removed, after = [], 0
    while after is not None:
        trim = Trim(keep_ms=500_000, entries_max=10_000, after=after)
        kept.commit(trim)
        removed.append(trim.removed)
        after = trim.next_after
    assert removed == [1000, 1000, 500]
    assert kept.claim("old7", FIRST) is Decision.HAND_OUT
    assert kept.claim("new7", FIRST) is Decision.SUPPRESS
    assert kept.claim("in hand", SECOND) is Decision.HOLD


def test_more_than_the_bound_is_forgotten_from_the_oldest(kept: Kept) -> None:
    kept.commit(*(Mark(Key("q", f"m{number:03}"), FIRST, State.DONE) for number in range(100)))
    trim = Trim(keep_ms=10**12, entries_max=40)
    kept.commit(trim)
    assert trim.removed == 60
    assert kept.storage.entries() == 40
    assert kept.claim("m060", SECOND) is Decision.SUPPRESS
    assert kept.claim("m059", SECOND) is Decision.HAND_OUT


class Message:
    """As much of a received message as the ledger looks at."""

    def __init__(self, tag: str, copy: Copy) -> None:
        remember(self, Key("q", tag), copy)


def connected(where: str) -> Any:
    return psycopg.connect(where) if where.startswith("postgres") else sqlite3.connect(where)


def test_a_mark_joins_the_transaction_of_the_application(where: str) -> None:
    with Ledger(where) as ledger:
        ledger.claim([Claim(Key("q", "another"), SECOND, LEASE)])[0].result()
        claim = Claim(Key("q", "m"), FIRST, LEASE)
        message, other = Message("m", FIRST), Message("m", SECOND)
        ledger.claim([claim])[0].result()
        with closing(connected(where)) as connection:
            ledger.done(message, connection=connection)
            connection.rollback()
            assert ledger.claim([Claim(Key("q", "m"), FIRST, LEASE)])[0].result().decision is Decision.HAND_OUT
            ledger.done(message, connection=connection)
            connection.commit()
            assert ledger.claim([Claim(Key("q", "m"), FIRST, LEASE)])[0].result().decision is Decision.SUPPRESS
            with pytest.raises(AlreadyDoneError):
                ledger.done(other, connection=connection)
        ledger.done(message)  # Without a connection, what is done is done.
        assert ledger.metrics()["marked_before"] == 1


def test_a_connection_to_another_database_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        message = Message("m", FIRST)
        ledger.claim([Claim(Key("q", "m"), FIRST, LEASE)])[0].result()
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection, pytest.raises(sqlite3.OperationalError):
            ledger.done(message, connection=connection)
        with pytest.raises(TypeError, match="sqlite3 or psycopg"):
            ledger.done(message, connection=object())


def test_two_that_use_one_ledger_never_both_get_a_message(where: str) -> None:
    """Each has a copy of every message; exactly one of the two copies is handed out."""
    handed: dict[str, list[str]] = {}

    def work(copy: Copy) -> None:
        with Ledger(where) as ledger:
            for start in range(0, 200, 10):
                claims = [Claim(Key("q", f"m{number}"), copy, LEASE) for number in range(start, start + 10)]
                got = [future.result() for future in ledger.claim(claims)]
                for claim in got:
                    if claim.decision is Decision.HAND_OUT:
                        handed.setdefault(claim.key.tag, []).append(copy.namespace)
                        ledger.mark(claim.key, copy, State.DONE).result()

    open_storage(where).close()
    workers = [threading.Thread(target=work, args=(copy,)) for copy in (FIRST, SECOND)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(handed) == 200
    assert {len(names) for names in handed.values()} == {1}


def test_a_row_in_somebodys_transaction_is_held_and_not_waited_for(request: pytest.FixtureRequest) -> None:
    server: PostgresServer = request.getfixturevalue("postgres")
    url = in_new_schema(server)
    with Ledger(url) as ledger:
        key = Key("q", "in hand")
        ledger.claim([Claim(key, FIRST, 0)])[0].result()
        with psycopg.connect(url) as connection:
            ledger.done(Message("in hand", FIRST), connection=connection)  # type: ignore[arg-type]
            waiting = ledger.claim([Claim(key, SECOND, 0)])[0].result(timeout=30)
            assert waiting.decision is Decision.HOLD
        assert ledger.claim([Claim(key, SECOND, 0)])[0].result().decision is Decision.SUPPRESS


def test_a_ledger_that_is_closed_or_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="could not be opened"):
        Ledger(tmp_path / "missing" / "ledger.db")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.close()
    with pytest.raises(LedgerError):
        ledger.mark(Key("q", "m"), FIRST, State.DONE).result()


async def test_a_mark_joins_the_transaction_of_an_asynchronous_application(postgres: PostgresServer) -> None:
    where = in_new_schema(postgres)
    async with AsyncLedger(where) as ledger, await psycopg.AsyncConnection.connect(where) as connection:
        await connection.execute("CREATE TABLE work (tag text)")
        await connection.commit()
        message, other = Message("m", FIRST), Message("m", SECOND)
        for copy in (FIRST, SECOND):
            await asyncio.wrap_future(ledger.claim([Claim(Key("q", "m"), copy, LEASE)])[0])

        async def work(message: Any) -> None:
            await connection.execute("INSERT INTO work VALUES ('m')")
            await ledger.done(message, connection=connection)

        await work(message)
        await connection.rollback()  # Neither work nor mark.
        await work(message)
        await connection.commit()
        with pytest.raises(AlreadyDoneError):
            await work(other)
        await connection.rollback()
        assert await (await connection.execute("SELECT count(*) FROM work")).fetchone() == (1,)
        claims = ledger.claim([Claim(Key("q", "m"), copy, LEASE) for copy in (FIRST, SECOND)])
        answers = await asyncio.gather(*map(asyncio.wrap_future, claims))
        assert [answer.decision for answer in answers] == [Decision.SUPPRESS, Decision.SUPPRESS]


def test_a_database_that_is_killed_and_restarted_is_used_again() -> None:
    """What was marked stays marked, and who waits for the database is told so, not answered wrongly."""
    server = PostgresServer().start()
    try:
        with Ledger(server.connection_url) as ledger:
            assert ledger.claim([Claim(Key("q", "m"), FIRST, LEASE)])[0].result().decision is Decision.HAND_OUT
            ledger.mark(Key("q", "m"), FIRST, State.DONE).result()
            server.kill()
            with pytest.raises(LedgerError):
                ledger.mark(Key("q", "n"), FIRST, State.DONE).result(timeout=30)
            server.start()
            assert ledger.claim([Claim(Key("q", "m"), SECOND, LEASE)])[0].result().decision is Decision.SUPPRESS
            assert ledger.mark(Key("q", "n"), FIRST, State.DONE).result().changed
            server.stop()
            server.start()  # With a connection that looks as if it were alive.
            assert ledger.claim([Claim(Key("q", "n"), SECOND, LEASE)])[0].result().decision is Decision.SUPPRESS
    finally:
        server.remove()


def test_a_full_disk_is_told_and_nothing_counts_as_done_that_is_not(small_disk: Path) -> None:
    with Ledger(small_disk / "ledger.db") as ledger:
        ledger.mark(Key("q", "before"), FIRST, State.DONE).result()
        filler = fill_up(small_disk)
        marked: list[str] = []

        def mark_all() -> None:
            while True:
                ledger.mark(Key("q", f"m{len(marked)}"), FIRST, State.DONE).result()
                marked.append(f"m{len(marked)}")

        with pytest.raises(LedgerError, match="full"):
            mark_all()
        failed = f"m{len(marked)}"
        filler.unlink()
        assert ledger.claim([Claim(Key("q", failed), SECOND, LEASE)])[0].result().decision is Decision.HAND_OUT
        assert ledger.mark(Key("q", failed), SECOND, State.DONE).result().changed
    assert [row.tag for row in records(str(small_disk / "ledger.db"))] == ["before", *marked, failed]
