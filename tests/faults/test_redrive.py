"""Dead letters are sent back while the broker is killed: each is among the dead or in the queue, once."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import suppress
from pathlib import Path
from random import Random

from faults.history import Place
from faults.load import BATCH_FORMAT, message, noticed
from faults.remains import look
from support.broker import BrokerProcess
from twinbus.client import connect
from twinbus.model.message import Outcome
from twinbus.wire import outgoing

QUEUE = "buried"
CONFIG = f'[[queues]]\nName = "{QUEUE}"\nLockDuration = "PT5M"\nRequiresDuplicateDetection = true\n'
COUNT = 2_000
KILLS = 3


async def bury(broker: BrokerProcess) -> list[str]:
    ids = [f"{QUEUE}:{number}" for number in range(COUNT)]
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(QUEUE)
        batches = [outgoing.batch(map(message, ids[at : at + 20])) for at in range(0, COUNT, 20)]
        await sender.send(batches, BATCH_FORMAT)
        receiver = await connection.receiver(QUEUE, credit=500)
        dead = 0
        while dead < COUNT:
            page = await receiver.receive(500, timeout_s=30)
            assert page
            await receiver.settle(page, Outcome.DEAD_LETTER)
            dead += len(page)
    return ids


def redrive(broker: BrokerProcess, **options: object) -> dict[str, int]:
    status, text = broker.request("POST", "/$api/redrive", json.dumps({"entity": QUEUE, **options}))
    assert status == 200, text
    answer: dict[str, int] = json.loads(text)
    return answer


async def test_killed_in_the_middle_nothing_is_lost_or_doubled(tmp_path: Path, random: Random) -> None:
    with BrokerProcess(tmp_path, namespace="faults", config=CONFIG, log_level="warning") as broker:
        ids = await bury(broker)
        for _ in range(KILLS):
            with suppress(OSError, http.client.HTTPException):
                running = asyncio.create_task(asyncio.to_thread(redrive, broker, limit=COUNT // (KILLS + 2)))
                await asyncio.sleep(random.uniform(0.01, 0.06))
                broker.kill()
                await running
            broker.start()
        moved = COUNT - broker.count(QUEUE, "DeadLetterMessageCount")
        assert broker.count(QUEUE) == moved
        print(f"{moved} of {COUNT} were sent back by what was killed")
        done = await asyncio.to_thread(redrive, broker, filter="sys.SequenceNumber > 0")
        assert done == {"moved": COUNT - moved, "kept": 0}
        found = await asyncio.to_thread(look, broker, QUEUE)
        assert sorted(found[Place.QUEUE]) == sorted(ids)
        assert found[Place.DEAD] == []


async def test_who_uses_a_dead_letter_meanwhile_keeps_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, namespace="faults", config=CONFIG, log_level="warning") as broker:
        await bury(broker)
        async with connect(broker.connection_string()) as connection:
            receiver = await connection.receiver(f"{QUEUE}/$DeadLetterQueue", credit=0)
            held = await receiver.receive(10, timeout_s=30)
            assert len(held) == 10
            assert await asyncio.to_thread(redrive, broker) == {"moved": COUNT - 10, "kept": 0}
            await receiver.settle(held, Outcome.COMPLETE)
            assert broker.count(QUEUE, "DeadLetterMessageCount") == 0
            broker.kill()
            await noticed(connection)
