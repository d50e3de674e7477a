"""`twinbus verify` on the files of a stopped broker: each damage is named, and nothing changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess
from support.disks import copy_data
from support.prompt import Prompt
from twinbus.store.catalog import checksum_of
from twinbus.store.verification.checks import CHECKS

CONFIG = """
[[queues]]
Name = "plain"
[[queues]]
Name = "empty"
[[queues]]
Name = "parts"
EnablePartitioning = true
[[topics]]
Name = "news"
[[topics.subscriptions]]
Name = "all"
"""
MARK = b"a body that can be found in its file"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("verify"), config=CONFIG, options=("--stores", "2"))
    try:
        process.start()
        with ServiceBusClient.from_connection_string(process.connection_string()) as client:
            for name in ("plain", "parts"):
                with client.get_queue_sender(name) as sender:
                    sender.send_messages([ServiceBusMessage(MARK + b" %d" % index) for index in range(20)])
            with client.get_topic_sender("news") as sender:
                sender.send_messages(ServiceBusMessage(MARK))
            with client.get_queue_receiver("plain", max_wait_time=10) as receiver:
                first, second, *_ = receiver.receive_messages(2, max_wait_time=10)
                receiver.complete_message(first)
                receiver.dead_letter_message(second)
        process.kill()
        yield process
    finally:
        process.kill()


@pytest.fixture
def data(broker: BrokerProcess, tmp_path: Path) -> Path:
    """The files as a kill left them, with logs that were not moved into the databases."""
    copy = tmp_path / "data"
    copy_data(broker.data, copy)
    return copy


@pytest.fixture
def run(broker: BrokerProcess) -> Prompt:
    return Prompt(broker)


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            assert database.execute(statement).rowcount != 0, f"{statement} changed nothing"


def contents(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.iterdir() if path.is_file()}


def store_of(data: Path, name: str) -> tuple[Path, int]:
    """The file that an entity lies in, and its number."""
    with closing(sqlite3.connect(data / "catalog.db")) as catalog:
        entity, store = catalog.execute("SELECT id, store FROM entity WHERE name = ?", (name,)).fetchone()
    return data / f"store-{store}.db", entity


def found(run: Prompt, data: Path, code: int = 1) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("verify", str(data), "--json", code=code).stdout)
    return report


def test_files_that_a_kill_left_are_whole_and_stay_as_they_are(run: Prompt, data: Path) -> None:
    before = contents(data)
    assert any(len(content) for name, content in before.items() if name.endswith("-wal"))
    report = found(run, data, 0)
    assert (report["whole"], report["findings"], report["unchecked"]) == (True, [], [])
    # 20 less one, 20 in fragments, and the subscription's.
    assert sum(store["messages"] for store in report["stores"]) == 40
    assert contents(data) == before


def test_files_after_a_stop_are_whole_and_stay_as_they_are(run: Prompt, data: Path) -> None:
    for path in data.glob("*.db"):
        execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = contents(data)
    assert "whole." in run("verify", str(data)).stdout
    assert contents(data) == before


def test_files_in_use_are_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as other:
        refused = Prompt(other)("verify", str(other.data), code=2)
        assert "A broker is using" in refused.stderr


def test_what_is_no_data_directory_is_refused(run: Prompt, tmp_path: Path) -> None:
    assert "no data directory" in run("verify", str(tmp_path), code=2).stderr
    assert "no directory" in run("verify", str(tmp_path / "nowhere"), code=2).stderr


def queue_rows(data: Path) -> None:
    path, entity = store_of(data, "empty")
    execute(path, f"DELETE FROM queue WHERE id >= {entity * 4} AND id < {entity * 4 + 4}")


def forgotten(data: Path) -> None:
    execute(data / "catalog.db", "DELETE FROM entity WHERE name = 'plain'")


def transfers(data: Path) -> None:
    execute(data / "store-0.db", "INSERT INTO transfer VALUES (40000, 1, 1)")


def elsewhere(data: Path) -> None:
    execute(data / "store-1.db", "UPDATE meta SET value = 'theirs' WHERE key = 'namespace_id'")


def older(data: Path) -> None:
    """The catalog knows that the store was opened more often than it says."""
    execute(data / "store-1.db", "UPDATE meta SET value = '0' WHERE key = 'openings'")


def checksum(data: Path) -> None:
    """A row of the catalog was changed, and can still be read."""
    with closing(sqlite3.connect(data / "catalog.db")) as catalog, catalog:
        if "checksum" not in {row[1] for row in catalog.execute("PRAGMA table_info(entity)")}:
            catalog.execute("ALTER TABLE entity ADD COLUMN checksum INTEGER")
        for row in catalog.execute("SELECT id, name, kind, store, document FROM entity").fetchall():
            catalog.execute("UPDATE entity SET checksum = ? WHERE id = ?", (checksum_of(*row), row[0]))
        catalog.execute(
            "UPDATE entity SET document = replace(document, '\"max_delivery_count\": 10', '\"max_delivery_count\": 18')"
            " WHERE name = 'plain'"
        )


def unreadable(data: Path) -> None:
    execute(data / "catalog.db", "UPDATE entity SET document = substr(document, 2) WHERE name = 'plain'")


def reused(data: Path) -> None:
    execute(data / "catalog.db", "UPDATE meta SET value = '2' WHERE key = 'next-entity-id'")


def no_store(data: Path) -> None:
    for path in data.glob("store-1.db*"):
        path.unlink()


def page(data: Path) -> None:
    """A page in the middle is overwritten."""
    path, _ = store_of(data, "plain")
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        at = file.read().index(MARK) // 8192 * 8192
        file.seek(at)
        file.write(b"\xff" * 100)


def no_database(data: Path) -> None:
    path, _ = store_of(data, "plain")
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(b"something else entirely" * 1000)


def body(data: Path) -> None:
    path, _ = store_of(data, "plain")
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    _flip(path, MARK)


def journal(data: Path) -> None:
    path, _ = store_of(data, "plain")
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    _flip(path, b'[["send",')


def _flip(path: Path, what: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(what) + len(what) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "check", "told"),
    [
        (queue_rows, "entity-without-queue", "'empty'"),
        (forgotten, "queue-without-entity", "queue 'plain'"),
        (transfers, "transfers", "queue 40000"),
        (elsewhere, "identity", ", the store says theirs"),
        (older, "identity", "was heard of, and it is at 0"),
        (checksum, "catalog-row", "entity 'plain'"),
        (unreadable, "catalog-row", "'plain': its description cannot be read"),
        (reused, "catalog-row", "would be given out once more"),
        (no_store, "entity-without-queue", "which is not there"),
        (page, "pages", "damaged"),
        (no_database, "pages", "cannot be read"),
        (body, "body", "number "),
        (journal, "journal-row", "row "),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_damage_is_found_and_named(
    run: Prompt, data: Path, damage: Callable[[Path], None], check: str, told: str
) -> None:
    damage(data)
    before = contents(data)
    report = found(run, data)
    assert {finding["check"] for finding in report["findings"]} == {check}, report["findings"]
    assert told in str(report["findings"]), report["findings"]
    shown = run("verify", str(data), code=1).stdout
    assert CHECKS[check].means in shown
    assert CHECKS[check].advice in shown
    assert contents(data) == before


def test_swapped_stores_are_found(run: Prompt, data: Path) -> None:
    for path in data.glob("*.db"):
        execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    (data / "store-0.db").rename(data / "other")
    (data / "store-1.db").rename(data / "store-0.db")
    (data / "other").rename(data / "store-1.db")
    checks = {finding["check"] for finding in found(run, data)["findings"]}
    assert {"entity-without-queue", "queue-without-entity"} <= checks
