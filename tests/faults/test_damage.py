"""Damage from a seed: a file of a stopped or a killed namespace is flipped, cut off, removed, exchanged, linked.

Whatever is done, the answer is one of three: unharmed, named (and set aside), or refused to start with the reason.
Never silence: a message may be missing only if somebody is told; and when the right files are back, so is everything
that was accepted. `make test-long` tries hundreds of seeds; a failure names the seed, and `TWINBUS_TEST_SEED` repeats
it.
"""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess, wait_for
from support.disks import copy_data
from support.repetition import times
from twinbus.broker.copying import digest_of
from twinbus.broker.settings import SettingsError
from twinbus.broker.verifying import verify_directory
from twinbus.model.errors import BusError

QUEUES = [f"queue-{number}" for number in range(4)]
MESSAGES = 12
FIRST = int(os.environ.get("TWINBUS_TEST_SEED", "0"))
SEEDS = range(FIRST, FIRST + (1 if "TWINBUS_TEST_SEED" in os.environ else times(5, 400)))

Bodies = dict[str, dict[str, bytes]]  # By queue and message id.


class Prepared(NamedTuple):
    """Directories of one namespace, and what is in it."""

    stopped: Path
    killed: Path  # With logs that were not moved into the databases.
    older: Path  # Before the last opening.
    earlier: Path  # In the last opening, before its last sends.
    foreign: Path
    bodies: Bodies


class Quiet:
    """Nobody watches."""

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self, by: int) -> None:
        pass


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    place = tmp_path_factory.mktemp("prepared")
    broker = BrokerProcess(place / "ours", options=("--no-console",))
    stranger = BrokerProcess(place / "theirs", options=("--no-console",))
    bodies: Bodies = {queue: {} for queue in QUEUES}
    with broker, stranger:
        for queue in QUEUES[:3]:
            broker.create_queue(queue)
            stranger.create_queue(queue)
        send(broker, bodies, QUEUES[:3], "first")
        assert broker.stop() == stranger.stop() == 0
        copy_data(broker.data, place / "older")
        broker.start()
        broker.create_queue(QUEUES[3])
        send(broker, bodies, QUEUES, "second")
        copy_data(broker.data, place / "earlier")
        send(broker, bodies, QUEUES, "third")
        broker.kill()
        copy_data(broker.data, place / "killed")
        broker.start()
        assert broker.stop() == 0
    return Prepared(broker.data, place / "killed", place / "older", place / "earlier", stranger.data, bodies)


def send(broker: BrokerProcess, bodies: Bodies, queues: list[str], mark: str) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        for queue in queues:
            new = {f"{queue}-{mark}-{number}": os.urandom(400) for number in range(MESSAGES)}
            with client.get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(body, message_id=each) for each, body in new.items()])
            bodies[queue] |= new


# What is done to the files. Each says it in words.


def flip(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    content = bytearray(chosen.read_bytes())
    # Most of a small file is empty; what is not is what a flipped bit may harm.
    used = [place for place, byte in enumerate(content) if byte] or [0]
    place, bit = random.choice([random.choice(used), random.randrange(len(content))]), random.randrange(8)
    content[place] ^= 1 << bit
    chosen.write_bytes(content)
    return f"bit {bit} of byte {place} of {chosen.name} flipped"


def cut(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    length = random.randrange(chosen.stat().st_size)
    os.truncate(chosen, length)
    return f"{chosen.name} cut off at {length}"


def remove(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    chosen.unlink()
    return f"{chosen.name} removed"


def empty(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    chosen.write_bytes(b"")
    return f"{chosen.name} emptied"


def swap(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    one, two = chosen.read_bytes(), other.read_bytes()
    chosen.write_bytes(two)
    other.write_bytes(one)
    return f"{chosen.name} and {other.name} swapped"


def double(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    shutil.copy(other, chosen)
    return f"{chosen.name} replaced by a copy of {other.name}"


def link(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    chosen.unlink()
    make = random.choice([os.symlink, os.link])
    make(other, chosen)
    return f"{chosen.name} is a {make.__name__} to {other.name}"


def dangle(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    chosen.unlink()
    chosen.symlink_to(chosen.with_name("nowhere") / chosen.name)
    return f"{chosen.name} is a link to nothing"


def folder(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    chosen.unlink()
    chosen.mkdir()
    return f"{chosen.name} is a directory"


def put(source: Path, chosen: Path, words: str, random: Random) -> str:
    """One file, or a database with its log."""
    beside = [""] if chosen.suffix != ".db" or random.random() < 0.5 else ["", "-wal", "-shm"]
    for suffix in beside:
        there, here = source / f"{chosen.name}{suffix}", chosen.with_name(f"{chosen.name}{suffix}")
        here.unlink(missing_ok=True)
        if there.exists():
            shutil.copy(there, here)
    return f"{chosen.name} {'' if len(beside) == 1 else 'and its log '}replaced by {words}"


def older(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    return put(prepared.older, chosen, "an older copy", random)


def earlier(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    return put(prepared.earlier, chosen, "a copy from a moment before", random)


def foreign(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    return put(prepared.foreign, chosen, "another namespace's", random)


def stray(random: Random, chosen: Path, other: Path, prepared: Prepared) -> str:
    """SQLite applies a log to whatever database lies beside it."""
    database = random.choice(sorted(chosen.parent.glob("*.db")))
    source = random.choice([prepared.killed, prepared.earlier])
    log = random.choice(sorted(source.glob("*.db-wal")))
    shutil.copy(log, f"{database}-wal")
    return f"{database.name} has {log.name} of {source.name} beside it"


HARMS: list[Callable[[Random, Path, Path, Prepared], str]] = [
    *[flip] * 4,
    *[cut] * 2,
    *[remove, empty, swap, double, link, dangle, folder, older, earlier, foreign, stray],
]


def harm(random: Random, data: Path, prepared: Prepared) -> str:
    """Do something to a file, mostly to one that has something to lose."""
    files = sorted(path for path in data.iterdir() if path.is_file() and path.stat().st_size)
    databases = [path for path in files if path.suffix == ".db" or path.name.endswith(".db-wal")]
    chosen = random.choice(databases if random.random() < 0.9 else files)
    other = random.choice([path for path in files if path.suffix == chosen.suffix and path != chosen] or [chosen])
    return (flip if other == chosen else random.choice(HARMS))(random, chosen, other, prepared)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_damage_is_met_with_silence(seed: int, prepared: Prepared, tmp_path: Path) -> None:
    random = Random(seed)
    broker = BrokerProcess(tmp_path, options=("--no-console",))
    right = random.choice([prepared.stopped, prepared.killed])
    copy_data(right, broker.data)
    done = f"seed {seed}: {right.name}: {harm(random, broker.data, prepared)}"
    before = contents(broker.data)
    verified = verify(broker.data)
    assert contents(broker.data) == before, f"{done}: verify has changed something"
    story = f"{done}; verify says {verified or 'that it is whole'}"
    try:
        told = serve(broker, prepared, story, verified)
        print(f"{done}: {told}; verify: {verified[:1]}")
        assert "Traceback" not in broker.log, f"{story}: {told}\n{broker.log}"
        if told.startswith("refused"):
            after = contents(broker.data)
            changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
            assert changed == set(), f"{story}: {told}: something was changed"
        broker.stop()
        put_back(broker.data, right, before)
        broker.start()
        accept(broker)
        assert missing(broker, prepared) == [], f"{story}: {told}: not all came back; {doubts(broker)}"
    finally:
        broker.kill()


def contents(data: Path) -> dict[str, str]:
    """What must not change, by digests: not what is noted in the lock, and not a log's index, which is made anew."""
    found = {}
    for path in sorted(data.iterdir()):
        if path.is_file() and path.suffix != ".reserve" and not path.name.endswith(("-shm", "lock")):
            found[path.name] = digest_of(path)
    return found


def put_back(data: Path, right: Path, harmed: dict[str, str]) -> None:
    """What an operator does who has the right files: each database that was harmed is put back with its log."""
    for path in right.glob("*.db"):
        names = [f"{path.name}{beside}" for beside in ("", "-wal")]
        is_plain = not any((data / name).is_symlink() or (data / name).is_dir() for name in names)
        intact = {name: digest_of(right / name) for name in names if (right / name).exists()}
        if is_plain and {name: harmed[name] for name in names if name in harmed} == intact:
            continue
        for name in (*names, f"{path.name}-shm"):
            place = data / name
            if place.is_dir() and not place.is_symlink():
                place.rmdir()
            else:
                place.unlink(missing_ok=True)
        for name in intact:
            shutil.copy(right / name, data)
    for place in data.iterdir():  # A reserve, or the index of a log.
        if place.is_dir():
            place.rmdir()
        elif place.is_symlink():
            place.unlink()


def accept(broker: BrokerProcess) -> None:
    """A store that was served with its damage has been opened more often than the right one, which is older then."""
    for store in json.loads(broker.request("GET", "/$api/stores")[1])["stores"]:
        if "twinbus store accept" in store["reason"]:
            assert broker.request("POST", f"/$api/stores/{store['number']}/accept", "{}")[0] == 200


def verify(data: Path) -> list[str]:
    """What `twinbus verify` would find."""
    try:
        return [str(finding.document()) for finding in verify_directory(data, Quiet()).findings]
    except (SettingsError, BusError) as problem:
        return [str(problem)]


def serve(broker: BrokerProcess, prepared: Prepared, story: str, verified: list[str]) -> str:
    """What the broker makes of it; an AssertionError if something is missing and nobody was told."""
    broker.launch()
    assert broker.process is not None
    wait_for(lambda: answers(broker) or broker.process.poll() is not None, "an answer or an end")  # type: ignore[union-attr]
    if broker.process.poll() is not None:
        assert len(broker.log.strip()) > 40, f"{story}: it ended without a reason"
        return f"refused: {broker.log.strip()[-300:]}"
    named = doubts(broker)
    lost = missing(broker, prepared)
    named += [line for line in broker.log.splitlines() if "message.damaged" in line]
    assert not lost or named or verified, f"{story}: {lost} are not whole, and nobody was told"
    return f"named: {named}" if named else "unharmed" if not lost else "named by verify"


def missing(broker: BrokerProcess, prepared: Prepared) -> list[str]:
    return [queue for queue in QUEUES if found(broker, queue) != prepared.bodies[queue]]


def answers(broker: BrokerProcess) -> bool:
    try:
        return broker.request("GET", "/livez")[0] == 200
    except OSError:
        return False


def doubts(broker: BrokerProcess) -> list[str]:
    """What the broker names of itself."""
    told: list[str] = []
    status, text = broker.request("GET", "/$api/stores")
    assert status == 200
    told += [store["reason"] for store in json.loads(text)["stores"] if store["state"] != "up"]
    status, text = broker.request("GET", "/$api/orphans")
    assert status == 200
    aside = json.loads(text)
    return told + [str(each) for each in (*aside["orphans"], *aside["unreadable"])]


def found(broker: BrokerProcess, queue: str) -> dict[str, bytes] | None:
    """What can be looked at in a queue; None if it cannot be had."""
    status, text = broker.request("GET", f"/$api/messages?entity={queue}&top=250&preview=4096")
    if status != 200:
        return None
    return {each["message_id"]: b64decode(each["body"]) for each in json.loads(text)["messages"]}
