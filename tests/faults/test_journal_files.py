"""The journal's files of a broker that is killed, stopped, out of disk or one of several: each operation is in one."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from faults.history import History, Place
from faults.load import Load, message
from faults.test_kill import forgive_deletions, progress
from support import journals
from support.broker import BrokerProcess, wait_for
from support.gateways import new_database
from support.postgres import PostgresServer
from support.repetition import times
from support.replay import Told, residents
from twinbus.client import connect
from twinbus.store.journal import JournalRow, read

KILLS = times(3, 12)
SESSIONS = ["s0", "s1", "s2"]
PLAIN = ["plain-0", "plain-1"]
PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
CONFIG = "".join(f'[[queues]]\nName = "{name}"\n{PATIENT}' for name in [*PLAIN, "deleting"]) + (
    f'[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
)
OFTEN = ("--journal", "default", "--journal-seconds", "0.05")

Row = dict[str, Any]


def broker_with(directory: Path, *options: str, config: str = CONFIG) -> BrokerProcess:
    return BrokerProcess(directory, namespace="faults", config=config, options=options, log_level="warning")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = broker_with(tmp_path, *OFTEN)
    try:
        yield process
    finally:
        process.kill()


def files(broker: BrokerProcess) -> Path:
    return broker.data / "journal"


def in_the_stores(broker: BrokerProcess) -> list[tuple[Any, ...]]:
    """Every operation that the stores' own tables have, in order."""
    found: list[tuple[Any, ...]] = []
    for store, path in enumerate(sorted(broker.data.glob("store-*.db"))):
        with closing(sqlite3.connect(path)) as database:
            rows = [JournalRow(*row) for row in database.execute("SELECT id, at_ms, ops FROM journal ORDER BY id")]
        for row in rows:
            for place, entry in enumerate(read(row, store)):
                found.append((store, row.id, place, entry.operation, entry.queue, entry.message_id, entry.outcome))
    return found


def in_the_files(rows: list[Row]) -> list[tuple[Any, ...]]:
    names = ("store", "batch", "place", "operation", "queue", "message_id", "outcome")
    return [tuple(row[name] for name in names) for row in rows]


def in_the_queues(broker: BrokerProcess) -> set[tuple[Any, int]]:
    """Every message that the stores hold."""
    held: set[tuple[Any, int]] = set()
    for store, path in enumerate(sorted(broker.data.glob("store-*.db"))):
        with closing(sqlite3.connect(path)) as database:
            held |= {((store, queue), seq) for queue, seq in database.execute("SELECT queue, seq FROM message")}
    return held


def told_by(rows: list[Row]) -> set[tuple[Any, int]]:
    return residents(
        Told(row["operation"], (row["store"], row["queue"]), row["sequence_number"], row["outcome"]) for row in rows
    )


def places_in(rows: list[Row], queue: str) -> dict[Place, list[str]]:
    """Where the files say that the messages of a queue are."""
    mine = [row for row in rows if row["entity"] == queue]
    there = {(row["queue"], row["sequence_number"]): row["message_id"] for row in mine if row["message_id"]}
    deferred = {(row["queue"], row["sequence_number"]) for row in mine if row["operation"] == "defer"}
    found: dict[Place, list[str]] = {Place.QUEUE: [], Place.DEFERRED: [], Place.DEAD: []}
    for (_, number), sequence_number in told_by(mine):
        place = Place.DEFERRED if (number, sequence_number) in deferred else Place.QUEUE
        where = Place.DEAD if number & 3 else place
        found[where].append(there[number & ~3, sequence_number])
    return found


@pytest.mark.timeout(400)
async def test_after_every_kill_each_committed_operation_is_in_the_files_once(
    broker: BrokerProcess, random: Random
) -> None:
    broker.start()
    load = Load(broker.connection_string(), random)
    for queue in PLAIN:
        load.plain(queue)
    load.deleting("deleting")
    load.sessions("sessions", SESSIONS)
    kills = unfinished = 0
    while kills < KILLS or not unfinished:
        await killed_while_it_exports(broker, load, random)
        kills += 1
        unfinished += unfinished_ranges(broker)
        broker.start()
        assert load.problems() == []
        assert kills < 20 * KILLS, "no kill has hit a file that was being written"
    await progress(load, 1)
    await load.stop()
    broker.kill()
    # What is found at the next start is exported by it, also locks that the kill ended.
    broker.start()
    assert broker.stop() == 0
    rows = journals.exported(files(broker))
    assert journals.missing_batches(rows) == []
    assert in_the_files(rows) == in_the_stores(broker)
    assert told_by(rows) == in_the_queues(broker)
    judge(load.histories, rows, kills)


async def killed_while_it_exports(broker: BrokerProcess, load: Load, random: Random) -> None:
    """Kill the broker when it has written files since its start, and is probably writing the next ones."""
    before, deadline = count_files(broker), time.monotonic() + 60
    await progress(load, random.randrange(1, 300))
    while count_files(broker) == before:
        assert time.monotonic() < deadline, "no file was written"
        await asyncio.sleep(0.005)
    await asyncio.sleep(random.uniform(0, 0.2))
    await asyncio.to_thread(broker.kill)


def count_files(broker: BrokerProcess) -> int:
    return len(list(files(broker).glob("day=*/*.parquet")))


def unfinished_ranges(broker: BrokerProcess) -> int:
    """How many files were being written when the broker died."""
    found = 0
    for path in broker.data.glob("store-*.db"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            found += database.execute("SELECT count(*) FROM export WHERE state = 0").fetchone()[0]
    return found


def judge(histories: dict[str, History], rows: list[Row], kills: int) -> None:
    """What clients were told, held against the files alone."""
    found = {queue: places_in(rows, queue) for queue in histories}
    forgive_deletions(histories["deleting"], found["deleting"], kills)
    assert [problem for queue, history in histories.items() for problem in history.judge(found[queue])] == []


async def send(broker: BrokerProcess, queue: str, *ids: str) -> None:
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(queue)
        await sender.send([message(message_id) for message_id in ids])


def sent(directory: Path) -> list[str]:
    """The messages that the files have, in the order of their commits."""
    return [row["message_id"] for row in journals.exported(directory) if row["operation"] == "send"]


async def test_a_stop_exports_everything(tmp_path: Path) -> None:
    with broker_with(
        tmp_path, "--journal", str(tmp_path / "out")
    ) as broker:  # Every five minutes, so nothing by itself.
        await send(broker, "plain-0", "a", "b")
        assert sent(tmp_path / "out") == []
        assert broker.stop() == 0
    assert sent(tmp_path / "out") == ["a", "b"]
    assert in_the_files(journals.exported(tmp_path / "out")) == in_the_stores(broker)
    noted = [row["operation"] for row in journals.exported(tmp_path / "out") if not row["entity"]]
    assert noted == ["connect", "disconnect"]


async def test_whoever_asks_finds_everything_in_files(tmp_path: Path) -> None:
    with broker_with(tmp_path, "--journal", "default") as broker:
        await send(broker, "plain-0", "a", "b")
        await send(broker, "plain-1", "c")
        broker.delete_queue("plain-0")
        told = journals.export(broker)
        assert told["directory"] == str(files(broker))
        rows = journals.exported(files(broker))
        assert sorted(row["message_id"] for row in rows if row["operation"] == "send") == ["a", "b", "c"]
        dropped = [(row["entity"], row["message_id"]) for row in rows if row["operation"] == "drop"]
        assert dropped == [("plain-0", "a"), ("plain-0", "b")]
        last = {(row["store"], row["writer"]): row["batch"] for row in rows}
        positions = {
            (store["store"], writer["writer"]): writer["exported"]
            for store in told["stores"]
            for writer in store["writers"]
            if writer["exported"]
        }
        assert positions == last
        assert told["files"] == len(list(files(broker).glob("day=*/*.parquet")))


def test_a_broker_that_does_not_export_says_so(tmp_path: Path) -> None:
    with broker_with(tmp_path) as broker:
        assert json.loads(broker.request("GET", "/$api/journal")[1]) == {"export": False}
        status, text = broker.request("POST", "/$api/journal/export")
        assert status == 403
        assert "--journal" in text


async def test_without_a_place_for_files_the_broker_goes_on_and_catches_up(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("a file is in the way")
    with broker_with(tmp_path, "--journal", str(place), "--journal-seconds", "0.1") as broker:
        await send(broker, "plain-0", "a")
        wait_for(lambda: "cannot be exported now" in broker.log, "a word about it")
        await send(broker, "plain-0", "b")
        told = json.loads(broker.request("GET", "/$api/journal")[1])
        assert any("out" in store["problem"] for store in told["stores"])
        assert sum(n for name, n in broker.metrics().items() if name.startswith("twinbus_journal_export_failing")) >= 1
        assert broker.request("POST", "/$api/journal/export")[0] == 503
        place.unlink()
        journals.export(broker)
        assert sent(place) == ["a", "b"]
        told = json.loads(broker.request("GET", "/$api/journal")[1])
        assert {store["problem"] for store in told["stores"]} == {""}
        # By itself, too.
        await send(broker, "plain-0", "c")
        wait_for(lambda: sent(place) == ["a", "b", "c"], "the next file")


async def test_a_day_ends_at_midnight_in_utc(tmp_path: Path) -> None:
    with broker_with(tmp_path, "--journal", "default", "--test-clock") as broker:
        await send(broker, "plain-0", "a")
        assert broker.request("POST", "/$api/clock", json.dumps({"advance": "P1D"}))[0] == 200
        await send(broker, "plain-0", "b")
        journals.export(broker)
        days = {
            row["message_id"]: path.parent.name
            for path in files(broker).glob("day=*/*.parquet")
            for row in journals.exported_in(path)
            if row["operation"] == "send"
        }
        assert len(set(days.values())) == 2
        assert {row["at"].strftime("day=%Y-%m-%d") for row in journals.exported(files(broker))} >= set(days.values())


async def test_what_is_in_files_is_trimmed_from_the_stores_and_old_files_go(tmp_path: Path) -> None:
    config = CONFIG + '[journal]\nexport = true\ninterval = "PT0.1S"\nkeep_in_store = "PT1H"\nkeep_files = "P30D"\n'
    with broker_with(tmp_path, "--test-clock", config=config) as broker:
        for number in range(5):
            await send(broker, "plain-0", f"m{number}")
        wait_for(lambda: len(sent(files(broker))) == 5, "files")
        old = set(files(broker).glob("day=*/*.parquet"))
        assert broker.request("POST", "/$api/clock", json.dumps({"advance": "PT2H"}))[0] == 200
        wait_for(lambda: len(journals.entries(broker, "plain-0")) <= 1, "trimmed rows")  # The newest one stays.
        assert len(sent(files(broker))) == 5
        assert broker.request("POST", "/$api/clock", json.dumps({"advance": "P40D"}))[0] == 200
        await send(broker, "plain-0", "late")
        wait_for(lambda: sent(files(broker)) == ["late"], "only young files")
        assert not any(path.exists() for path in old)


@pytest.mark.timeout(300)
async def test_of_two_gateways_the_other_one_exports_when_one_is_killed(
    tmp_path: Path, postgres: PostgresServer, random: Random
) -> None:
    store = ("--store", new_database(postgres), "--stores", "2", "--journal", str(tmp_path / "out"))
    often = (*store, "--journal-seconds", "0.2")
    gateways = [broker_with(tmp_path / name, *often) for name in ("one", "other")]
    try:
        gateways[0].start()
        # The one that started first exports both stores.
        wait_for(lambda: exporting(gateways[0]) == [True, True], "the first one's exports")
        gateways[1].start()
        load = [Load(gateway.connection_string(), random) for gateway in gateways]
        load[0].plain("plain-0")
        load[1].plain("plain-1")
        for each in load:
            await progress(each, 200)
        assert exporting(gateways[0]) == [True, True]
        assert gateways[1].request("POST", "/$api/journal/export")[0] == 503
        gateways[0].kill()
        await progress(load[1], 200)
        load[0]._stopping = True
        for each in load:
            await asyncio.wait_for(each.stop(), 60)
        wait_for(lambda: gateways[1].request("POST", "/$api/journal/export")[0] == 200, "the other one", 60)
        assert gateways[1].stop() == 0
    finally:
        for gateway in gateways:
            gateway.kill()
    rows = journals.exported(tmp_path / "out")
    assert journals.missing_batches(rows) == []
    assert len({row["writer"] for row in rows}) == 2
    assert [p for each in load for history in each.histories.values() for p in history.problems] == []
    found = {queue: places_in(rows, queue) for queue in PLAIN}
    histories = load[0].histories | load[1].histories
    assert [problem for queue in PLAIN for problem in histories[queue].judge(found[queue])] == []


def exporting(gateway: BrokerProcess) -> list[bool]:
    """Of which stores it writes the files."""
    return [each["exports"] for each in json.loads(gateway.request("GET", "/$api/journal")[1])["stores"]]


async def test_a_store_that_was_replaced_does_not_mix_its_history_with_what_is_in_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    broker = broker_with(tmp_path, "--journal", str(out), "--stores", "1")
    with broker:
        await send(broker, "plain-0", "a")
        assert broker.stop() == 0
        before = journals.exported(out)
        for path in broker.data.glob("store-0.db*"):
            path.unlink()
        broker.launch()  # Its only store is set aside, so that it is not ready.
        wait_for(lambda: answers(broker, "/livez"), "a broker")
        assert broker.request("POST", "/$api/stores/0/replace", '{"confirm": 0}')[0] == 200
        broker.until_ready()
        await send(broker, "plain-0", "b")
        status, text = broker.request("POST", "/$api/journal/export")
        assert status == 403
        assert "another directory" in text
        assert broker.stop() == 0
        assert journals.exported(out) == before
        broker.options = ("--journal", str(tmp_path / "new"), "--stores", "1")
        broker.start()
        journals.export(broker)
        assert sent(tmp_path / "new") == ["b"]


def answers(broker: BrokerProcess, path: str) -> bool:
    try:
        return broker.request("GET", path)[0] == 200
    except OSError:
        return False
