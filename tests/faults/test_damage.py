"""Damage from a seed: any bit flipped, any file cut off, removed, swapped with another or replaced by an older copy.

Whatever is done, the answer is one of three: unharmed, named (and set aside), or refused to start with the reason.
Never silence: a message may be missing only if somebody is told. `make test-long` tries hundreds of seeds; a failure
names the seed, and `TWINBUS_TEST_SEED` repeats it.
"""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess, wait_for
from support.repetition import times
from twinbus.broker.settings import SettingsError
from twinbus.broker.verifying import verify_directory
from twinbus.model.errors import BusError

QUEUES = [f"queue-{number}" for number in range(4)]
MESSAGES = 12
FIRST = int(os.environ.get("TWINBUS_TEST_SEED", "0"))
SEEDS = range(FIRST, FIRST + (1 if "TWINBUS_TEST_SEED" in os.environ else times(6, 300)))


class Prepared(NamedTuple):
    """Directories of one namespace that was stopped, and what is in it."""

    now: Path
    older: Path
    bodies: dict[str, dict[str, bytes]]  # By queue and message id.


class Quiet:
    """Nobody watches."""

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self, by: int) -> None:
        pass


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    place = tmp_path_factory.mktemp("prepared")
    broker = BrokerProcess(place, options=("--no-console",))
    bodies: dict[str, dict[str, bytes]] = {queue: {} for queue in QUEUES}
    older = place / "older"
    with broker:
        for queue in QUEUES[:3]:
            broker.create_queue(queue)
        send(broker, bodies, QUEUES[:3], "first")
        assert broker.stop() == 0
        shutil.copytree(broker.data, older)
        broker.start()
        broker.create_queue(QUEUES[3])
        send(broker, bodies, QUEUES, "second")
        assert broker.stop() == 0
    return Prepared(broker.data, older, bodies)


def send(broker: BrokerProcess, bodies: dict[str, dict[str, bytes]], queues: list[str], mark: str) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        for queue in queues:
            new = {f"{queue}-{mark}-{number}": os.urandom(400) for number in range(MESSAGES)}
            with client.get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(body, message_id=each) for each, body in new.items()])
            bodies[queue] |= new


def harm(random: Random, data: Path, prepared: Prepared) -> str:
    """Do something to the files; what, in words."""
    files = sorted(data.glob("*.db"))
    chosen, other = random.sample(files, 2)
    how = random.choice(["flip", "flip", "flip", "cut", "remove", "swap", "older"])
    if how == "flip":
        content = bytearray(chosen.read_bytes())
        # Most of a small file is empty; what is not is what a flipped bit may harm.
        used = [place for place, byte in enumerate(content) if byte]
        place, bit = random.choice([random.choice(used), random.randrange(len(content))]), random.randrange(8)
        content[place] ^= 1 << bit
        chosen.write_bytes(content)
        return f"bit {bit} of byte {place} of {chosen.name} flipped"
    if how == "cut":
        length = random.randrange(chosen.stat().st_size)
        os.truncate(chosen, length)
        return f"{chosen.name} cut off at {length}"
    if how == "remove":
        chosen.unlink()
        return f"{chosen.name} removed"
    if how == "swap":
        one, two = chosen.read_bytes(), other.read_bytes()
        chosen.write_bytes(two)
        other.write_bytes(one)
        return f"{chosen.name} and {other.name} swapped"
    shutil.copy(prepared.older / chosen.name, chosen)
    return f"{chosen.name} replaced by an older copy"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_damage_is_met_with_silence(seed: int, prepared: Prepared, tmp_path: Path) -> None:
    random = Random(seed)
    broker = BrokerProcess(tmp_path, options=("--no-console",))
    shutil.copytree(prepared.now, broker.data)
    done = harm(random, broker.data, prepared)
    verified = verify(broker.data)
    try:
        told = serve(broker, prepared, f"seed {seed}: {done}; verify says {verified or 'that it is whole'}", verified)
    finally:
        broker.kill()
    print(f"seed {seed}: {done}: {told}; verify: {verified[:1]}")
    assert "Traceback" not in broker.log, f"seed {seed}: {done}"


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
        return "refused"
    named = doubts(broker)
    missing = [queue for queue in QUEUES if found(broker, queue) != prepared.bodies[queue]]
    named += [line for line in broker.log.splitlines() if "message.damaged" in line]
    assert not missing or named or verified, f"{story}: {missing} are not whole, and nobody was told"
    return "named" if named else "unharmed"


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
