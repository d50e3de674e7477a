"""`twinbus bench-ledger`: what a look-up and a mark cost in a ledger that knows very many messages.

The ledger is `twinbus.pair`'s; this fills one and measures it on the disk that it is given.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.interruption import temporary_directory
from twinbus.cli.output import Output, Table
from twinbus.cli.running import blocking_command

if TYPE_CHECKING:
    from twinbus.pair.ledger.sqlite import SqliteStorage

GROUPS = (1, 10, 100)
FILL = 2000
MEASURED = 10_000
LEASE_MS = 60_000
SCOPE = "orders"


@blocking_command
def bench_ledger(
    entries: Annotated[int, typer.Option(min=FILL, help="How many messages the ledger knows.")] = 10_000_000,
    data: Annotated[
        Path | None, typer.Option(help="Where the ledger is for the time; a temporary directory.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")] = False,
) -> None:
    """Measure look-ups, claims and marks, and what is left of the file when a tenth was forgotten and known anew."""
    from twinbus.pair.ledger.sqlite import SqliteStorage  # The SDK takes half a second, and few commands need it.

    output = Output(json)
    with temporary_directory("twinbus-bench-", data) as directory:
        path = directory / "ledger.db"
        began = time.perf_counter()
        prepare(path, entries)
        storage = SqliteStorage(str(path))
        output.remark(f"{entries:,} messages in {time.perf_counter() - began:,.0f} s, {_size(path):,} bytes")
        columns = ["COMMIT OF", "LOOK-UP", "CLAIM", "MARK", "MARK, NOT SYNCED"]
        table = Table(output, columns, numbers=columns)
        for group in GROUPS:
            count = MEASURED if group > 1 else MEASURED // 5
            cpu_us = measure(storage, entries, group, count)
            bare = without_sync(path)
            cpu_us["mark_unsynced_us"] = measure(bare, entries * 2, group, count)["mark_us"]
            bare.close()
            if json:
                rounded = {name: round(value, 1) for name, value in cpu_us.items()}
                output.record({"entries": entries, "commit": group, **rounded})
            else:
                table.rows([[f"{group:,}", *(f"{value:.0f} µs" for value in cpu_us.values())]])
        before = _size(path)
        _forget(storage, entries // 10)
        fill(storage, entries * 2, entries // 10)
        output.remark(f"a tenth forgotten and as many known anew: {before:,} bytes before, {_size(path):,} after")
        storage.close()


def without_sync(path: Path) -> SqliteStorage:
    """The same ledger, whose marks do not wait for the disk: what is left is work of ours and of SQLite's."""
    from twinbus.pair.ledger.sqlite import SqliteStorage

    class WithoutSync(SqliteStorage):
        def _set_synced(self, synced: bool) -> None:
            super()._set_synced(False)

    return WithoutSync(str(path))


def measure(storage: SqliteStorage, entries: int, group: int, count: int) -> dict[str, float]:
    """Microseconds of this process's CPU for one look-up (of what is done), one new claim, and its mark."""
    from twinbus.pair.ledger.decisions import Copy, Key, State
    from twinbus.pair.ledger.storage import Claim, Command, Mark

    copy = Copy("contoso", 1)
    source = random.Random(group)
    known = [Key(SCOPE, tag_of(source.randrange(entries))) for _ in range(count)]
    new = [Key(SCOPE, tag_of(entries * 3 + group * count + number)) for number in range(count)]
    commands: dict[str, list[Command]] = {
        "look_up_us": [Claim(key, Copy("fabrikam", 1), LEASE_MS) for key in known],
        "claim_us": [Claim(key, copy, LEASE_MS) for key in new],
        "mark_us": [Mark(key, copy, State.DONE) for key in new],
    }
    found = {}
    for name, each in commands.items():
        began = time.process_time()
        for start in range(0, count, group):
            storage.commit(each[start : start + group], 1)
        found[name] = (time.process_time() - began) / count * 1e6
        if any(command.error for command in each):
            raise RuntimeError(f"{name}: {each[0].error}")
    return found


def tag_of(number: int) -> str:
    """An id that looks like a random one, so that neighbours in time are none in the index."""
    return f"{(number * 0x9E3779B97F4A7C15) & (2**64 - 1):016x}-{number:012x}"


def prepare(path: Path, entries: int) -> None:
    """A file with so many messages that were worked on; written at once, because what they cost is not asked here."""
    from twinbus.pair.ledger.sqlite import SqliteStorage
    from twinbus.pair.ledger.storage import TABLE

    storage = SqliteStorage(str(path))
    fill(storage, 0, FILL)
    storage.close()
    with closing(sqlite3.connect(path)) as database:
        ((index, statement),) = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (TABLE,)
        )
        (row,) = database.execute(
            f"SELECT scope, state, namespace, sequence_number, until_ms, at_ms, suppressed FROM {TABLE} LIMIT 1"
        )
        scope, *rest = row
        database.execute(f"DROP INDEX {index}")
        database.executemany(
            f"INSERT INTO {TABLE} (scope, tag, state, namespace, sequence_number, until_ms, at_ms, suppressed)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            ((scope, tag_of(number), *rest) for number in range(FILL, entries)),
        )
        database.execute(statement)
        database.commit()


def fill(storage: SqliteStorage, first: int, count: int) -> None:
    """So many messages that were worked on."""
    from twinbus.pair.ledger.decisions import Copy, Key, State
    from twinbus.pair.ledger.storage import Mark

    copy = Copy("contoso", 1)
    for start in range(first, first + count, FILL):
        last = min(start + FILL, first + count)
        storage.commit([Mark(Key(SCOPE, tag_of(number)), copy, State.DONE) for number in range(start, last)], 1)


def _forget(storage: SqliteStorage, count: int) -> None:
    from twinbus.pair.ledger.storage import Trim

    after: int | None = 0
    target = storage.entries() - count
    while after is not None:
        trim = Trim(keep_ms=10**15, entries_max=target, after=after)
        storage.commit([trim], 2)
        after = trim.next_after


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
