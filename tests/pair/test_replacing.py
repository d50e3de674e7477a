"""`twinbus pair replace`: the primary is lost for good, and every message that was acknowledged arrives elsewhere.

Each test has a log of what was acknowledged and a log of what was received, and compares them.
"""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from support.broker import TWINBUS, BrokerProcess, running, wait_for
from support.ports import free_ports
from twinbus.cli import app
from twinbus.client import WantedSession, connect
from twinbus.client.messages import read
from twinbus.pair import PairedServiceBusClient
from twinbus.pair.description import PairDescription

POLICIES = '[[policies]]\nName = "app"\nRights = ["Send", "Listen"]\nPrimaryKey = "secret-of-app"\n'


class Pair:
    """A pair, a namespace that may take the primary's place, and both logs."""

    def __init__(self, directory: Path, name: str, brokers: tuple[BrokerProcess, ...]) -> None:
        self.primary, self.secondary, self.replacement = brokers
        self.name = name
        self.file = directory / "pair.toml"
        self.acknowledged: list[str] = []
        self.received: Counter[str] = Counter()
        self.describe()

    def describe(self, **options: Any) -> None:
        lines = ["[primary]", f'connection_string = "{self.primary.connection_string()}"', f'name = "{self.name}"']
        lines += ["[secondary]", f'connection_string = "{self.secondary.connection_string()}"', "[options]"]
        given = {"backlog_queue_count": 2, "state_directory": '""', "announce": "false", **options}
        self.file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in given.items()), ""]))

    def client(self) -> PairedServiceBusClient:
        return PairedServiceBusClient.from_description(self.file)

    def send(self, client: ServiceBusClient, entity: str, *ids: str, session: str | None = None) -> None:
        """In lots; what was acknowledged is written down."""
        make = client.get_topic_sender if entity.endswith("events") else client.get_queue_sender
        with make(entity) as sender:
            for start in range(0, len(ids), 100):
                lot = ids[start : start + 100]
                sender.send_messages([ServiceBusMessage(b"x", message_id=each, session_id=session) for each in lot])
                self.acknowledged.extend(lot)

    def receive(self, broker: BrokerProcess, path: str, *sessions: str) -> None:
        """All that is there; where there are sessions, in those that are named."""

        async def read_all() -> None:
            async with connect(broker.connection_string()) as connection:
                for session in sessions or (None,):
                    wanted = None if session is None else WantedSession(session)
                    receiver = await connection.receiver(path, credit=0, session=wanted)
                    while lot := await receiver.receive(500, 0.2):
                        came = [read(each.payload) for each in lot]
                        assert {each.session_id for each in came} == {session}
                        self.received.update(str(each.message_id) for each in came)
                        await receiver.settle(lot)

        asyncio.run(read_all())

    def replace(self, *words: str, code: int = 0) -> str:
        """Run the command; what it said."""
        run = CliRunner().invoke(app, ["pair", "replace", "--pair", str(self.file), *words])
        assert run.exit_code == code, run.output
        return run.output

    def by(self, broker: BrokerProcess) -> list[str]:
        return ["--with", broker.connection_string(), "--yes"]

    def waiting(self) -> int:
        queues = [f"{self.name}/x-servicebus-transfer/{index}" for index in range(2)]
        return sum(self.secondary.count(queue) for queue in queues)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, ...]]:
    names = ("contoso", "fabrikam", "northwind")
    made = [BrokerProcess(tmp_path_factory.mktemp(name), namespace=name, config=POLICIES) for name in names]
    with running(*made):
        yield tuple(made)


@pytest.fixture
def pair(brokers: tuple[BrokerProcess, ...], tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    if brokers[0].process is None:
        brokers[0].start()
    return Pair(tmp_path, request.node.originalname.removeprefix("test_")[:20].strip("_").replace("_", "-"), brokers)


def test_everything_arrives_at_the_replacement(pair: Pair, tmp_path: Path) -> None:
    """A queue, sessions and a topic; a client that has not heard of the move goes on for a while."""
    queue, carts, topic = "plain", "carts", "events"
    pair.primary.create_queue(queue)
    exported = tmp_path / "entities.json"
    entities = [{"kind": "topic", "name": topic}, {"kind": "subscription", "topic": topic, "name": "audit"}]
    exported.write_text("\n".join(map(json.dumps, entities)))
    with pair.client() as client:
        pair.send(client, queue, "at the primary")
        pair.receive(pair.primary, queue)
        pair.primary.kill()
        pair.send(client, queue, *(f"q{number}" for number in range(150)))
        for session in ("a", "b"):
            pair.send(client, carts, *(f"{session}{number}" for number in range(20)), session=session)
        pair.send(client, topic, *(f"t{number}" for number in range(20)))

        before = pair.file.read_text()
        said = pair.replace(*pair.by(pair.replacement), "--entities", str(exported), "--dry-run")
        assert "would create the plain queue 'carts' with sessions" in said
        assert "If it was a topic, describe it" in said
        assert (pair.waiting(), pair.file.read_text()) == (210, before)

        said = pair.replace(*pair.by(pair.replacement), "--entities", str(exported))
        assert "moved 210" in said
        assert "Restart clients" in said
        assert pair.file.with_name("pair.toml.old").read_text() == before
        pair.send(client, queue, "late 1", "late 2")
        assert pair.waiting() == 2
    assert "moved 2 " in pair.replace("--yes")

    with pair.client() as client:
        pair.send(client, queue, "from a new client")
        assert client.status().diverted == 0
    # Somebody's client still has the old description; the syphon of the new one brings home what it diverts.
    with PairedServiceBusClient.from_description(pair.file.with_name("pair.toml.old")) as client:
        pair.send(client, queue, "very late")
    run = CliRunner().invoke(app, ["pair", "status", "--json", "--pair", str(pair.file)])
    assert run.exit_code == 3, run.output
    shown = [each for each in json.loads(run.stdout)["queues"] if each["state"] == "replaced"]
    assert [each["messages"] for each in shown] == [1]
    run = CliRunner().invoke(app, ["syphon", "--once", "--pair", str(pair.file)])
    assert run.exit_code == 0, run.output

    pair.receive(pair.replacement, queue)
    pair.receive(pair.replacement, carts, "a", "b")
    pair.receive(pair.replacement, f"{topic}/Subscriptions/audit")
    assert pair.received == Counter(pair.acknowledged)


def _no_room(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_interrupted_and_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the midst; nothing is lost, and what was under way comes twice at most."""
    pair.describe(syphon_batch=2)
    queue = "interrupted"
    pair.primary.kill()
    with pair.client() as client:
        pair.send(client, queue, *(str(number) for number in range(600)))
    waiting = pair.waiting()
    assert waiting == 600
    with monkeypatch.context() as broken:  # Before the description is written.
        broken.setattr("os.replace", _no_room)
        assert "cannot be rewritten: No space" in pair.replace(*pair.by(pair.replacement), code=1)
        assert not pair.file.with_name("pair.toml.old").exists()
    command = [*TWINBUS, "pair", "replace", "--pair", str(pair.file), *pair.by(pair.replacement)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: pair.waiting() < waiting, "the move begins", interval_s=0.005)
        process.kill()
        process.wait()
    assert 0 < pair.waiting() < waiting
    pair.file.write_text(pair.file.read_text().replace("syphon_batch = 2", "syphon_batch = 100"))
    pair.replace(*pair.by(pair.replacement))
    assert pair.waiting() == 0
    pair.receive(pair.replacement, queue)
    assert set(pair.received) == set(pair.acknowledged)
    assert pair.received.total() - len(pair.acknowledged) <= 2 * 2


def test_swapped(pair: Pair) -> None:
    """The secondary becomes the primary, with what was diverted into it; the pair keeps order."""
    pair.describe(ordered="true")
    queue, keyed = "swapped", "swapped-sessions"
    pair.primary.kill()
    with pair.client() as client:
        pair.send(client, queue, *(str(number) for number in range(30)))
        pair.send(client, keyed, "first", "second", session="a")
        said = pair.replace(*pair.by(pair.replacement), "--swap")
        assert "moved 32" in said
        pair.send(client, queue, "late")
        # Nobody knew that this one will require sessions.
        pair.secondary.create_queue("strict", RequiresSession=True)
        pair.send(client, "strict", "refused")
    said = pair.replace("--yes", code=1)
    assert "'strict' requires sessions, and 1 messages have none" in said
    assert "1 message dead in" in said
    assert "moved 1 " in said
    pair.acknowledged.remove("refused")  # It is where somebody can see it.
    now = PairDescription.read(pair.file)
    assert now.primary.connection_string == pair.secondary.connection_string()
    assert now.secondary.connection_string == pair.replacement.connection_string()
    assert pair.replacement.count("fabrikam/x-servicebus-transfer/0") == 0
    with pair.client() as client:
        pair.send(client, queue, "from a new client")
    pair.receive(pair.secondary, queue)
    pair.receive(pair.secondary, keyed, "a")
    assert pair.received == Counter(pair.acknowledged)
    assert list(pair.received)[-2:] == ["first", "second"]


def test_a_primary_that_nobody_ever_reached(pair: Pair) -> None:
    """A client that started in the outage knows no name."""
    (port,) = free_ports(1)
    text = pair.file.read_text().replace(f":{pair.primary.amqp_port};", f":{port};")
    pair.file.write_text(text.replace(f'name = "{pair.name}"\n', ""))
    queue = "unreached"
    with pair.client() as client:
        for session in ("a", "b"):
            pair.send(client, queue, f"{session}1", f"{session}2", session=session)
        assert client.status().diverted == 4
    said = pair.replace(*pair.by(pair.replacement))
    assert "will create the plain queue 'unreached' with sessions" in said
    assert "moved 4 " in said
    pair.receive(pair.replacement, queue, "a", "b")
    assert pair.received == Counter(pair.acknowledged)


def test_what_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done: the primary is there, the replacement is in the pair, a key may not manage, nobody can write."""
    assert "The primary answers" in pair.replace(*pair.by(pair.replacement), code=1)
    assert "--with" in pair.replace("--yes", code=1)
    assert "Give a third" in pair.replace(*pair.by(pair.secondary), code=1)
    assert "Give a third" in pair.replace(*pair.by(pair.primary), code=1)
    before = pair.file.read_text()
    pair.primary.kill()
    weak = pair.replacement.connection_string().replace("RootManageSharedAccessKey", "app")
    weak = weak.replace(pair.replacement.key, "secret-of-app")
    assert "lacks the Manage right" in pair.replace("--with", weak, "--yes", code=1)
    other = pair.secondary.connection_string().replace("127.0.0.1", "localhost")
    assert "under another address" in pair.replace("--with", other, "--yes", code=1)
    pair.secondary.kill()
    try:
        assert "The secondary at" in pair.replace(*pair.by(pair.replacement), code=1)
    finally:
        pair.secondary.start()
    monkeypatch.setenv("TWINBUS_PRIMARY", pair.primary.connection_string())
    assert "environment (TWINBUS_PRIMARY)" in pair.replace(*pair.by(pair.replacement), code=1)
    assert pair.file.read_text() == before


def test_what_is_meant_for_another_primary_of_that_name_stays(pair: Pair, tmp_path: Path) -> None:
    """Two primaries of one name share the secondary, and one of them is lost."""
    queue = "shared"
    living = BrokerProcess(tmp_path / "living", namespace="living")
    with running(living):
        living.create_queue(queue)
        other = Pair(tmp_path / "living", pair.name, (living, pair.secondary, pair.replacement))
        with pair.client() as first, other.client() as second:
            pair.primary.kill()
            living.kill()
            pair.send(first, queue, "a", "b")
            other.send(second, queue, "x")
        said = pair.replace(*pair.by(pair.replacement))
        assert "1 message meant for another namespace" in said
        pair.receive(pair.replacement, queue)
        assert pair.received == Counter(pair.acknowledged)
        living.start()
        run = CliRunner().invoke(app, ["syphon", "--once", "--pair", str(other.file)])
        assert run.exit_code == 0, run.output
        other.receive(living, queue)
        assert other.received == Counter(other.acknowledged)
