"""What a restore means for a pair: one namespace is destroyed and comes back from a backup while the other went on.

The judge is what the application wrote down: what it was told is accepted, and what it has worked on. A ledger stands
at the receiver. What is seen is what docs/operating.md says.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from support.accounts import settle
from support.broker import BrokerProcess, wait_for
from support.pair_scene import QUICK, until
from support.prompt import Prompt
from twinbus.drill.history import SendLog, judge
from twinbus.pair.aio import Ledger, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.description import PairDescription
from twinbus.pair.syphon.standalone import StandaloneSyphon

OPTIONS = {**QUICK, "backlog_queue_count": 1}
EACH = 4


class Scene:
    """A pair whose consoles watch it, an application's log, and a worker with a ledger."""

    def __init__(self, directory: Path) -> None:
        self.primary = BrokerProcess(directory / "primary", namespace="contoso")
        self.secondary = BrokerProcess(directory / "secondary", namespace="fabrikam")
        self.described = directory / "pair.toml"
        self.described.write_text(
            f'[primary]\nname = "contoso"\nconnection_string = "{self.primary.connection_string()}"\n'
            f'[secondary]\nconnection_string = "{self.secondary.connection_string()}"\n'
            "[options]\nbacklog_queue_count = 1\n"
        )
        for broker in (self.primary, self.secondary):
            broker.options += ("--console-pair", str(self.described))
        self.directory = directory
        self.log = SendLog(directory / "sent.jsonl")
        self.worked: Counter[str] = Counter()
        self.suppressed = 0
        self._diverted: set[str] = set()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[PairedServiceBusClient]:
        async with PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string(),
            self.secondary.connection_string(),
            SendAvailabilityOptions(**OPTIONS),
            primary_name="contoso",
            on_diverted=lambda diverted: self._diverted.update(diverted.message_ids),
        ) as client:
            yield client

    async def send(self, client: PairedServiceBusClient, queues: tuple[str, ...], mark: str) -> set[str]:
        """A few messages to each queue, all acknowledged; those that were diverted."""
        ids = set()
        for queue in queues:
            async with client.get_queue_sender(queue) as sender:
                for number in range(EACH):
                    message_id = f"{queue} {mark} {number}"
                    while not await self._send(sender, message_id):
                        await asyncio.sleep(0.05)
                    ids.add(message_id)
        return ids & self._diverted

    async def _send(self, sender: Any, message_id: str) -> bool:
        self.log.attempted(message_id, "", 0)
        try:
            await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
        except ServiceBusError as error:
            self.log.failed(message_id, 0, str(error))
            return False
        self.log.acknowledged(message_id, 0, message_id in self._diverted)
        return True

    async def is_well(self, client: PairedServiceBusClient) -> None:
        """Until sends go to the primary again."""
        await until(lambda: not client.status().ill, "the way back to the primary")

    async def work(self, client: PairedServiceBusClient, queue: str, most: int | None = None) -> None:
        """Work on what is in a queue, or on so many."""
        async with Ledger(self.directory / "ledger.db") as ledger:
            async with client.get_queue_receiver(queue, ledger=ledger) as receiver:
                done = 0
                while done != most and self.primary.count(queue) > 0:
                    for message in await receiver.receive_messages(1, max_wait_time=1):
                        self.worked[str(message.message_id)] += 1
                        await receiver.complete_message(message)
                        done += 1
            self.suppressed += ledger.metrics()["suppressed"]

    async def bring_home(self) -> int:
        """One run of the syphon, until the backlog is empty; how many it has moved."""
        async with StandaloneSyphon(PairDescription.read(self.described)) as run:
            await run.pair()
            done = await run.drain()
        assert (done.problem, self.backlog()) == (None, 0)
        return done.moved.total()

    def backlog(self) -> int:
        return self.secondary.count("contoso/x-servicebus-transfer/0")

    def destroy(self, broker: BrokerProcess) -> None:
        broker.kill()
        shutil.rmtree(broker.data)

    def restore(self, broker: BrokerProcess, backup: Path) -> None:
        Prompt(broker)("restore", str(backup), str(broker.data))
        broker.start()

    def notices(self, watcher: BrokerProcess, restored: str) -> None:
        """The other namespace's console has seen that it is not as it was."""
        words = f"the {restored} of the pair was restored from a backup"
        wait_for(lambda: words in watcher.log, f"'{words}' in the log")
        assert self.seen(watcher)[restored]["generation"] > 1_000_000

    def seen(self, watcher: BrokerProcess) -> dict[str, Any]:
        """What a console has seen of the pair."""
        file = watcher.data / "partners.json"
        return json.loads(file.read_text()) if file.exists() else {}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("pair"))
    # In this order, so that the secondary's first look at the primary finds it.
    with scene.primary, scene.secondary, scene.log:
        wait_for(lambda: "primary" in scene.seen(scene.secondary), "the secondary's look at the primary")
        yield scene


async def test_a_primary_from_a_backup(scene: Scene, tmp_path: Path) -> None:
    """`busy` is worked on all the time, `idle` only at the end."""
    primary, queues = scene.primary, ("busy", "idle")
    for queue in queues:
        primary.create_queue(queue)
    async with scene.client() as client:
        await scene.send(client, queues, "before")
        await scene.work(client, "busy", 1)
        primary.kill()
        assert len(await scene.send(client, queues, "diverted")) == 2 * EACH
        primary.start()
        await scene.is_well(client)

        Prompt(primary)("backup", str(tmp_path / "backup"))
        assert await scene.send(client, queues, "after") == set()
        assert await scene.bring_home() == 2 * EACH
        await scene.work(client, "busy")
        assert scene.suppressed == 0
        assert primary.count("idle") == 3 * EACH

        scene.destroy(primary)
        assert len(await scene.send(client, queues, "outage")) == 2 * EACH
        scene.restore(primary, tmp_path / "backup")
        await scene.is_well(client)
        # What was completed before the backup is not there; what was completed after it is there again.
        assert (primary.count("busy"), primary.count("idle")) == (EACH - 1, EACH)
        assert await scene.bring_home() == 2 * EACH
        for queue in queues:
            await scene.work(client, queue)
    scene.notices(scene.secondary, "primary")
    assert scene.suppressed == EACH - 1
    # Only the primary had these when it was destroyed: sent to it after the backup, or brought home after it.
    lost = [f"idle {mark} {number}" for mark in ("after", "diverted") for number in range(EACH)]
    settle(scene.log.path, scene.worked, lost=lost)


async def test_a_secondary_from_a_backup(scene: Scene, tmp_path: Path) -> None:
    """`plain` leaves duplicates to the ledger, `strict` has the broker detect them."""
    primary, secondary, queues = scene.primary, scene.secondary, ("plain", "strict")
    primary.create_queue("plain")
    primary.create_queue("strict", RequiresDuplicateDetection=True)
    already_lost = lost_so_far(scene)
    async with scene.client() as client:
        primary.kill()
        assert len(await scene.send(client, queues, "held")) == 2 * EACH
        Prompt(secondary)("backup", str(tmp_path / "backup"))
        assert len(await scene.send(client, queues, "later")) == 2 * EACH
        primary.start()
        await scene.is_well(client)
        assert await scene.bring_home() == 4 * EACH
        for queue in queues:
            await scene.work(client, queue)
        suppressed = scene.suppressed
        primary.kill()
        assert len(await scene.send(client, queues, "only there")) == 2 * EACH

        scene.destroy(secondary)
        scene.restore(secondary, tmp_path / "backup")
        primary.start()
        await scene.is_well(client)
        assert await scene.bring_home() == 2 * EACH  # Once more, under the same ids.
        assert (primary.count("plain"), primary.count("strict")) == (EACH, 0)
        for queue in queues:
            await scene.work(client, queue)
    scene.notices(primary, "secondary")
    assert scene.suppressed - suppressed == EACH
    lost = [f"{queue} only there {number}" for queue in queues for number in range(EACH)]
    settle(scene.log.path, scene.worked, lost=[*already_lost, *lost])


def lost_so_far(scene: Scene) -> tuple[str, ...]:
    """What a test before this one has lost on purpose, in the same log."""
    return judge(scene.log.path, scene.worked).lost
