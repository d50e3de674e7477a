"""Completions overtake: with one store slow, everything that lies on other stores is settled while its sends wait.

The slow store is one whose file somebody else has locked, which to the broker is a disk that does not answer yet.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import NamedTuple

import pytest

from support.broker import SOON_S, BrokerProcess, NewQueue
from support.gateways import ON_POSTGRES
from support.storage import stalled
from twinbus.client import Connection, connect
from twinbus.entities.partitions import FRAGMENTS, fragment_of
from twinbus.model.message import Outcome
from twinbus.wire import outgoing

pytestmark = [
    pytest.mark.feature("partitions"),
    pytest.mark.skipif(ON_POSTGRES, reason="the slow store is a locked file"),
]


class Places(NamedTuple):
    """A partitioned queue seen from a plain one: keys that lie on its store, and keys that do not."""

    slow: str
    partitioned: str
    beside: list[str]
    elsewhere: list[str]


def message(name: str, key: str | None = None) -> bytes:
    return outgoing.build(b"body", message_id=name, partition_key=key)


@pytest.fixture
def places(broker: BrokerProcess, new_queue: NewQueue) -> Places:
    slow, partitioned = new_queue(), new_queue(EnablePartitioning=True)
    with closing(sqlite3.connect(broker.data / "catalog.db")) as catalog:
        rows = dict(catalog.execute("SELECT name, store FROM entity WHERE kind = 'queue'"))
        document = catalog.execute("SELECT document FROM entity WHERE name = ?", (partitioned,)).fetchone()[0]
    fragments = json.loads(document)["fragments"]
    assert len(fragments) == FRAGMENTS
    keys = [f"key {n}" for n in range(64)]
    beside = [key for key in keys if fragments[fragment_of(key)] == rows[slow]]
    return Places(slow, partitioned, beside, [key for key in keys if key not in beside])


@pytest.fixture
async def connection(broker: BrokerProcess) -> AsyncIterator[Connection]:
    async with connect(broker.connection_string()) as one:
        yield one


async def test_sends_to_other_fragments_and_entities_are_settled_while_earlier_ones_wait(
    broker: BrokerProcess, new_queue: NewQueue, places: Places, connection: Connection
) -> None:
    others = [new_queue() for _ in range(4)]  # On each store one.
    senders = [await connection.sender(name) for name in (places.slow, places.partitioned, *others)]
    with stalled(broker, places.slow):
        waiting = [
            senders[0].send_nowait([message("plain")]),
            senders[1].send_nowait([message("pinned", places.beside[0])]),
        ]
        later = [senders[1].send_nowait([message(f"k {key}", key)]) for key in places.elsewhere[:20]]
        beside_them = [sender.send_nowait([message("other")]) for sender in senders[2:]]
        await asyncio.wait_for(asyncio.gather(*later), SOON_S)
        async with asyncio.timeout(SOON_S):
            stuck = set(beside_them)
            while len(stuck) > 1:
                _, stuck = await asyncio.wait(stuck, return_when=asyncio.FIRST_COMPLETED)
        assert len(stuck) == 1
        assert not any(each.done() for each in waiting)
    await asyncio.wait_for(asyncio.gather(*waiting, *stuck), SOON_S)


async def test_of_one_read_each_fragment_is_settled_for_itself(
    broker: BrokerProcess, places: Places, connection: Connection
) -> None:
    sender = await connection.sender(places.partitioned)
    mixed = [key for pair in zip(places.beside, places.elsewhere, strict=False) for key in pair][:12]
    with stalled(broker, places.slow):
        sent = {key: sender.send_nowait([message(key, key)]) for key in mixed}
        quick = [sent[key] for key in mixed if key in places.elsewhere]
        await asyncio.wait_for(asyncio.gather(*quick), SOON_S)
        assert not any(sent[key].done() for key in mixed if key in places.beside)
    await asyncio.wait_for(asyncio.gather(*sent.values()), SOON_S)


async def test_a_receiver_gets_and_settles_what_other_fragments_hold(
    broker: BrokerProcess, places: Places, connection: Connection
) -> None:
    sender = await connection.sender(places.partitioned)
    keys = places.elsewhere[:20] + places.beside[:5]
    receiver = await connection.receiver(places.partitioned)
    with stalled(broker, places.slow):
        sent = [sender.send_nowait([message(key, key)]) for key in keys]
        found = 0
        while found < 20:
            messages = await receiver.receive(50, SOON_S)
            assert messages
            await asyncio.wait_for(receiver.settle(messages, Outcome.COMPLETE), SOON_S)
            found += len(messages)
        assert not sent[-1].done()
    await asyncio.wait_for(asyncio.gather(*sent), SOON_S)
    rest = await receiver.receive(50, SOON_S)
    assert rest
    await receiver.settle(rest, Outcome.COMPLETE)
