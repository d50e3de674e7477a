"""Order through an outage: a session's messages arrive as they were sent, whatever becomes of the primary meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from support.order import SessionReader
from support.pair_scene import Scene, until
from twinbus.client import ConnectionString
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Mode, Toward
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.pair import State
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.order.table import index_of, session_of

SESSIONS = 4


async def send_on(scene: Scene, sender: Any, name: str, enough: asyncio.Event) -> None:
    """One writer of one session: a message that was not taken is sent again before the next."""
    for number in itertools.count():
        while not await scene.send(sender, f"{name}.{number}", session_id=name):
            await asyncio.sleep(0.05)
        if enough.is_set():
            return
        await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_sessions_stay_in_order_while_the_primary_is_killed_and_restarted(scene: Scene) -> None:
    queue = scene.queue(RequiresSession=True, RequiresDuplicateDetection=True)
    enough = asyncio.Event()
    async with (
        scene.client(ordered=True, enable_syphon=True, failover_interval=0.3, poll=2) as client,
        SessionReader(scene, queue) as reader,
    ):
        sender = client.get_queue_sender(queue)
        async with asyncio.TaskGroup() as writing:  # A writer that outlived a failure here would send for ever.
            for each in range(SESSIONS):
                writing.create_task(send_on(scene, sender, f"s{each}", enough))
            for _ in range(3):
                await asyncio.sleep(0.5)
                scene.primary.kill()
                before = len(scene.diverted)
                await until(lambda before=before: len(scene.diverted) > before + 10, "diverting")
                await asyncio.to_thread(scene.primary.start)
                await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
            route = client._core.background.pairing.ordered
            assert route is not None
            await until(lambda: route.behind == 0, "the return of all sessions", 60)
            enough.set()
        await until(lambda: not scene.verdict().lost, "arrival", 60)

    verdict = scene.settle()
    assert verdict.recovered == verdict.diverted > 30
    assert len(reader.seen) == SESSIONS
    assert reader.disorder() == []


async def test_a_healthy_primary_waits_while_the_backlog_holds_earlier_messages(scene: Scene) -> None:
    """Nobody syphons: the session must not return, however healthy the primary is; nor after a restart."""
    queue = scene.queue(RequiresSession=True)
    async with scene.client(ordered=True, failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "a.0", session_id="a")
        scene.proxy.set(Mode.REFUSE)
        assert await scene.send(sender, "a.1", session_id="a")
        assert scene.diverted == {"a.1"}
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert await scene.send(sender, "a.2", session_id="a")
        assert await scene.send(sender, "b.0", session_id="b")
        assert scene.diverted == {"a.1", "a.2"}
    async with scene.client(ordered=True, failover_interval=0) as client:
        assert await scene.send(client.get_queue_sender(queue), "a.3", session_id="a")
        assert scene.diverted == {"a.1", "a.2", "a.3"}
    async with (
        scene.client(ordered=True, enable_syphon=True, failover_interval=0, poll=2) as client,
        SessionReader(scene, queue) as reader,
    ):
        pump = client._core.background.syphon
        assert pump is not None
        await until(lambda: pump.progress.moved.total() == 3, "draining")
        assert await scene.send(client.get_queue_sender(queue), "a.4", session_id="a")
        assert scene.diverted == {"a.1", "a.2", "a.3"}
        await until(lambda: reader.count == 6, "arrival")

    assert reader.seen == {"a": [0, 1, 2, 3, 4], "b": [0]}
    assert scene.verdict().lost == scene.verdict().duplicated == ()


async def test_a_list_may_mix_messages_with_a_key_and_without(scene: Scene) -> None:
    queue = scene.queue()

    def mixed(first: int) -> list[ServiceBusMessage]:
        """Those with a session are numbered in their order."""
        sessions = ["a", None, "b", "a", None, "a", "b"]
        return [
            ServiceBusMessage(b"x", message_id=f"{session}.{number}", session_id=session)
            for number, session in enumerate(sessions, first)
        ]

    async with scene.client(ordered=True, enable_syphon=True, failover_interval=0, poll=2, attempts=1) as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(mixed(0))
        assert scene.diverted == set()
        scene.proxy.set(Mode.REFUSE)
        await sender.send_messages(mixed(10))
        assert scene.diverted == {message.message_id for message in mixed(10)}
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.primary.count(queue) == 14, "all messages at home")
        async with client.get_queue_receiver(queue) as receiver:
            got = [str(message.message_id) for message in await receiver.receive_messages(20, max_wait_time=5)]

    assert sorted(got) == sorted(str(message.message_id) for message in mixed(0) + mixed(10))
    for session in ("a", "b"):
        numbers = [int(each.partition(".")[2]) for each in got if each.startswith(session)]
        assert numbers == sorted(numbers)


async def test_a_backlog_queue_that_is_down_is_told_as_no_other_may_stand_in(scene: Scene) -> None:
    queue = scene.queue(RequiresSession=True)
    async with scene.client(ordered=True, failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "a.0", session_id="a")
        down = f"{scene.name}/x-servicebus-transfer-ordered/{index_of(session_of(queue, 'a'), 2)}"
        scene.secondary.update_queue(down, RequiresSession=True, LockDuration="PT1M", Status="SendDisabled")
        scene.proxy.set(Mode.REFUSE)

        assert not await scene.send(sender, "a.1", session_id="a")
        assert "ordered backlog queue" in scene.log.path.read_text()


@pytest.mark.parametrize("kind", ["topic", "partitioned queue"])
async def test_topics_and_partitioned_entities_keep_order_too(scene: Scene, kind: str) -> None:
    name = f"{scene.name}-{kind[0]}"
    subscription = None
    if kind == "topic":
        subscription = "all"
        namespace = OwnClientNamespace("primary", ConnectionString.parse(scene.primary.connection_string()))
        async with await namespace.administer() as administration:
            await administration.create(TopicDescription(name=name, requires_duplicate_detection=True))
            await administration.create(SubscriptionDescription(topic=name, name=subscription, requires_session=True))
        await namespace.close()
    else:
        scene.primary.create_queue(name, RequiresSession=True, RequiresDuplicateDetection=True, EnablePartitioning=True)
    async with (
        scene.client(ordered=True, enable_syphon=True, failover_interval=0, poll=2) as client,
        SessionReader(scene, name, subscription=subscription) as reader,
    ):
        sender = client.get_topic_sender(name) if subscription else client.get_queue_sender(name)

        async def write(first: int) -> None:
            for number in range(first, first + 5):
                for session in ("a", "b", "c"):
                    assert await scene.send(sender, f"{session}.{number}", session_id=session)

        await write(0)
        scene.primary.kill()
        await write(5)
        assert len(scene.diverted) == 15
        await asyncio.to_thread(scene.primary.start)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        await write(10)
        await until(lambda: reader.count == 45, "arrival", 60)

    scene.settle()
    assert reader.seen == {session: list(range(15)) for session in ("a", "b", "c")}


@pytest.mark.parametrize(
    ("asked", "handed_out", "given_back"), [(3, ["m0", "m2", "m1"], 1), (1, ["m0", "m1", "m2"], 0)]
)
async def test_the_bare_sdk_hands_out_a_later_message_first_unless_it_is_asked_for_one_at_a_time(
    scene: Scene, caplog: pytest.LogCaptureFixture, asked: int, handed_out: list[str], given_back: int
) -> None:
    """Why docs/outbox.md tells to ask for one at a time.

    Asked for three, the client has credit left when the first has come. What arrives between two calls it gives back
    (released), and while that is on its way the broker sends the next one, which the next call hands out.
    """
    caplog.set_level(logging.DEBUG, "azure.servicebus._pyamqp")
    queue = scene.queue(RequiresSession=True)
    received: list[ServiceBusReceivedMessage] = []
    async with (
        ServiceBusClient.from_connection_string(scene.primary.connection_string()) as near,
        ServiceBusClient.from_connection_string(scene.connection_string(), logging_enable=True) as far,
        near.get_queue_sender(queue) as sender,
        far.get_queue_receiver(queue, session_id="s") as receiver,
    ):

        async def send(message_id: str, transfers: int) -> None:
            """Sent, and with so many before it as far as the proxy, if the client has credit."""
            await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id, session_id="s"))
            await come(Toward.CLIENT, Says.TRANSFER, transfers)

        async def come(toward: Toward, says: Says, count: int) -> None:
            wanted = opened[toward, says] + count
            await until(lambda: scene.proxy.arrived[toward, says] >= wanted, f"{says.name} {count} at the proxy")

        opened = Counter(scene.proxy.arrived)

        pushed = 1 if asked > 1 else 0  # Then there is credit for what follows the first.
        await send("m0", 0)
        received += await receiver.receive_messages(asked, max_wait_time=30)
        scene.proxy.set(Mode.BLACKHOLE)
        await send("m1", 1 + pushed)
        completing = asyncio.create_task(receiver.complete_message(received[0]))
        await come(Toward.BROKER, Says.DISPOSITION, 1)
        scene.proxy.set(Mode.PASS)  # For what is on its way now: m1 to the client, the completion to the broker.
        await asyncio.sleep(0)
        scene.proxy.set(Mode.BLACKHOLE)
        await come(Toward.CLIENT, Says.DISPOSITION, 1)
        await come(Toward.BROKER, Says.DISPOSITION, 1 + pushed)
        await send("m2", 1 + 2 * pushed)
        scene.proxy.set(Mode.PASS)  # The answer and m2 to the client, the release of m1 to the broker.
        await completing
        while len(received) < 3:
            found = await receiver.receive_messages(1, max_wait_time=30)
            received += found
            for message in found:
                await receiver.complete_message(message)

    released = [line for line in caplog.messages if "-> DispositionFrame" in line and "Released()" in line]
    assert [str(message.message_id) for message in received] == handed_out
    numbers = {str(message.message_id): message.sequence_number for message in received}
    assert numbers == {"m0": 1, "m1": 2, "m2": 3}  # In the queue the order is right.
    assert len(released) == given_back
