"""A broker that dies at a named place, between two writes: what it acknowledged stays, no half entity hurts."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from faults.load import message, read
from support import journals
from support.broker import BrokerProcess, wait_for
from twinbus.broker.failing import VARIABLE
from twinbus.client import ClientError, connect
from twinbus.model.message import ReceiveMode

KEPT, CHANGED = "kept", "changed"
IDS = [f"m{number}" for number in range(30)]
TIMES_MAX = 20  # More than a start and one change of the namespace write.
CATALOG = ["catalog.write.before", "catalog.write.after"]

Arm = Callable[[str], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = f'[[queues]]\nName = "{KEPT}"\n[[queues]]\nName = "other"\nForwardTo = "{KEPT}"\n'
    options = ("--stores", "2", "--faults", "--journal", "default", "--journal-seconds", "3600")
    process = BrokerProcess(tmp_path, namespace="faults", config=config, options=options, log_level="warning")
    try:
        yield process.start()
    finally:
        process.kill()


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Have the brokers that are started from now on obey an order."""

    def arm(order: str) -> None:
        monkeypatch.setenv(VARIABLE, order)

    return arm


async def fill(broker: BrokerProcess, queue: str, ids: list[str] = IDS) -> None:
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(queue)
        await sender.send([message(each) for each in ids])


async def taken(broker: BrokerProcess, queue: str) -> list[str]:
    """The ids of everything in a queue, in order."""
    found: list[str] = []
    async with connect(broker.connection_string()) as connection:
        receiver = await connection.receiver(queue, mode=ReceiveMode.RECEIVE_AND_DELETE, credit=0)
        while broker.count(queue):
            found += [read(each.payload).message_id for each in await receiver.receive(100, timeout_s=2.0)]
    return found


def exists(broker: BrokerProcess, queue: str) -> bool:
    return f">{queue}</title>" in broker.request("GET", "/$Resources/queues?api-version=2021-05")[1]


def until_it_has_died(broker: BrokerProcess) -> None:
    """It was killed where it was told to be, and by nobody else."""
    process = broker.process
    assert process is not None
    wait_for(lambda: process.poll() is not None, f"the end of the broker\n{broker.log[-2000:]}")
    assert process.poll() == -signal.SIGKILL
    broker.kill()


def started(broker: BrokerProcess) -> bool:
    """Start it anew; False if it died at its start."""
    broker.kill()
    broker.launch()
    process = broker.process
    assert process is not None
    wait_for(lambda: process.poll() is not None or broker.is_ready(), "a start")
    return process.poll() is None


def each_time(broker: BrokerProcess, arm: Arm, place: str, do: Callable[[], object]) -> Iterator[None]:
    """Have something done by a broker that dies at the first time that it comes to a place, at the second, and so on.

    Yields when it has died and was started again; ends when what was to be done has been done.
    """
    for nth in range(1, TIMES_MAX):
        arm(f"{place}=kill@{nth}")
        if not started(broker):
            continue
        try:
            do()
        except (OSError, HTTPException):
            until_it_has_died(broker)
        else:
            assert nth > 1, f"it has never been at {place}"
            return
        arm("")
        broker.start()
        yield
    raise AssertionError("it dies for ever")


@pytest.mark.parametrize("place", ["entity.create.before_catalog", "entity.create.after_catalog", *CATALOG])
async def test_a_creation_that_is_cut_off(broker: BrokerProcess, arm: Arm, place: str) -> None:
    await fill(broker, KEPT)
    deaths = 0
    for _ in each_time(broker, arm, place, lambda: broker.create_queue(CHANGED)):
        deaths += 1
        if not exists(broker, CHANGED):
            broker.create_queue(CHANGED)
        await fill(broker, CHANGED)
        assert await taken(broker, CHANGED) == IDS
        broker.delete_queue(CHANGED)
    assert deaths
    assert await taken(broker, KEPT) == IDS


@pytest.mark.parametrize("place", ["entity.delete.before_stores", "entity.delete.after_stores", *CATALOG])
async def test_a_deletion_that_is_cut_off(broker: BrokerProcess, arm: Arm, place: str) -> None:
    await fill(broker, KEPT)
    broker.create_queue(CHANGED)
    await fill(broker, CHANGED)
    deaths = 0
    for _ in each_time(broker, arm, place, lambda: broker.delete_queue(CHANGED)):
        deaths += 1
        if exists(broker, CHANGED):
            assert await taken(broker, CHANGED) == IDS  # It is as it was,
        else:
            broker.create_queue(CHANGED)
            assert broker.count(CHANGED) == 0  # or it is gone, and what gets its name has nothing of it.
        await fill(broker, CHANGED)
    assert deaths
    assert await taken(broker, KEPT) == IDS


@pytest.mark.parametrize("place", ["store.commit.before_sync", "store.commit.after_sync"])
async def test_a_send_that_is_cut_off(broker: BrokerProcess, arm: Arm, place: str) -> None:
    """What was acknowledged before is there; of what was not, all or nothing."""
    await fill(broker, KEPT)
    more = [f"more{number}" for number in range(5)]
    for nth in range(1, TIMES_MAX):
        arm(f"{place}=kill@{nth}")
        if started(broker):
            with suppress(ClientError, OSError):
                await fill(broker, KEPT, more)
            until_it_has_died(broker)
            break
    arm("")
    broker.start()
    assert await taken(broker, KEPT) in (IDS, IDS + more)


async def test_messages_on_their_way_between_two_stores_arrive_once(broker: BrokerProcess, arm: Arm) -> None:
    arm("forwarding.before_complete=kill")
    assert started(broker)
    await fill(broker, "other")
    until_it_has_died(broker)
    arm("")
    broker.start()
    wait_for(lambda: int(broker.queue("other")["MessageCount"]) == 0, "forwarding")
    assert await taken(broker, KEPT) == IDS


async def test_a_file_of_the_journal_that_the_store_does_not_know_is_written_once(
    broker: BrokerProcess, arm: Arm
) -> None:
    arm("journal.export.before_mark=kill")
    assert started(broker)
    await fill(broker, KEPT)
    with suppress(OSError, HTTPException):
        broker.request("POST", "/$api/journal/export")
    until_it_has_died(broker)
    files = {path.name for path in broker.data.glob("journal/day=*/*.parquet")}
    assert files
    arm("")
    broker.start()
    assert broker.request("POST", "/$api/journal/export")[0] == 200
    assert files <= {path.name for path in broker.data.glob("journal/day=*/*.parquet")}
    sent = [row["message_id"] for row in journals.exported(broker.data / "journal") if row["operation"] == "send"]
    assert sent == IDS


def test_a_broker_without_faults_on_purpose_does_not_start_with_a_failpoint(tmp_path: Path, arm: Arm) -> None:
    arm("store.open=kill")
    process = BrokerProcess(tmp_path)
    with pytest.raises(AssertionError, match="exit code 1"):
        process.start()
    assert "only one with --faults" in process.log
