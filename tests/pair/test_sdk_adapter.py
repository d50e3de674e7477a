"""A pair whose namespaces are reached over the official SDK: by choice, over WebSockets, and through a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from support.broker import BrokerProcess
from support.pair_scene import QUICK, Scene, until
from twinbus.client import ConnectionString
from twinbus.client.messages import build
from twinbus.faults.proxy import Mode
from twinbus.pair import SendAvailabilityOptions, State
from twinbus.pair.aio import PairedServiceBusClient
from twinbus.pair.sdk.namespace import SdkNamespace

# The official client's own call; aiohttp warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

SYPHONING: dict[str, Any] = {"enable_syphon": True, "poll": 2}


async def moved(client: PairedServiceBusClient, scene: Scene) -> None:
    """Until everything that was diverted is home."""
    syphon = client._core.background.syphon
    assert syphon is not None
    await until(lambda: syphon.progress.moved.total() >= len(scene.diverted), "draining")


def over_sdk(client: PairedServiceBusClient) -> bool:
    """Whether both namespaces are."""
    return all(isinstance(each, SdkNamespace) for each in (client._core.primary, client._core.secondary))


async def test_a_pair_over_the_sdk_diverts_pings_heals_and_brings_home(scene: Scene) -> None:
    queue = scene.queue(RequiresDuplicateDetection=True)
    async with scene.client(adapter="sdk", **SYPHONING) as client:
        assert over_sdk(client)
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.proxy.set(Mode.REFUSE)
        assert not await scene.send(sender, "during")
        await until(lambda: scene.changes[-1].after is State.FAILED_OVER, "the failover")
        for number in range(5):
            assert await scene.send(sender, f"diverted-{number}")
        await until(lambda: client._core.background.pings_failed > 0, "a ping that fails")
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert await scene.send(sender, "after")
        await moved(client, scene)

    assert scene.diverted == {f"diverted-{number}" for number in range(5)}
    await scene.receive(queue, 7)
    scene.settle()


async def test_order_is_held_over_the_sdk(scene: Scene) -> None:
    """The ordered backlog is received session by session, and looked at by those who send."""
    queue = scene.queue(RequiresSession=True)
    async with scene.client(adapter="sdk", ordered=True, failover_interval=0, **SYPHONING) as client:
        sender = client.get_queue_sender(queue)
        scene.proxy.set(Mode.REFUSE)
        for number in range(6):
            session = f"s{number % 2}"
            assert await scene.send(sender, f"m{number}", session_id=session)
        assert len(scene.diverted) == 6
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        await moved(client, scene)
        for number in range(6, 8):
            assert await scene.send(sender, f"m{number}", session_id=f"s{number % 2}")
        await moved(client, scene)

    async with ServiceBusClient.from_connection_string(scene.primary.connection_string()) as plain:
        for session in range(2):
            async with plain.get_queue_receiver(queue, session_id=f"s{session}") as receiver:
                got: list[str] = []
                while len(got) < 4:
                    got += [str(message.message_id) for message in await receiver.receive_messages(4)]
            assert got == [f"m{number}" for number in range(8) if number % 2 == session]


def over_websocket(broker: BrokerProcess) -> ServiceBusClient:
    """The official client over a WebSocket, which a broker has on its HTTP port."""
    return ServiceBusClient.from_connection_string(
        broker.connection_string(),
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://localhost:{broker.http_port}",
        retry_total=1,
        retry_backoff_factor=0.2,
    )


async def test_a_pair_over_websockets_needs_nothing_else(scene: Scene) -> None:
    """Nobody chose an adapter: the way that the clients use is one that only the SDK knows."""
    queue = scene.queue(RequiresDuplicateDetection=True)
    client = PairedServiceBusClient(
        over_websocket(scene.primary),
        over_websocket(scene.secondary),
        SendAvailabilityOptions(**{**QUICK, **SYPHONING}),
        primary_name=scene.name,
        on_change=scene.changes.append,
        on_diverted=scene._was_diverted,
    )
    async with client:
        assert over_sdk(client)
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        scene.primary.kill()
        assert not await scene.send(sender, "during")
        await until(lambda: scene.changes[-1].after is State.FAILED_OVER, "the failover")
        for number in range(3):
            assert await scene.send(sender, f"diverted-{number}")
        await asyncio.to_thread(scene.primary.start)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        await moved(client, scene)

    assert len(scene.diverted) == 3
    await scene.receive(queue, 4)
    scene.settle()


@asynccontextmanager
async def http_proxy() -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy for plain HTTP and WebSockets: its port, and the paths that were asked for through it."""
    asked: list[str] = []
    ended: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, address, rest = head.split(b" ", 2)
        target = urlsplit(address.decode())
        asked.append(target.path)
        there, out = await asyncio.open_connection(target.hostname, target.port)
        out.write(b" ".join((method, target._replace(scheme="", netloc="").geturl().encode(), rest)))

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    sink.write(data)
            finally:
                sink.close()

        ended.add(asyncio.create_task(carry(reader, out)))
        ended.add(asyncio.create_task(carry(there, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


async def test_what_goes_through_a_proxy_goes_through_it_with_everything(scene: Scene) -> None:
    """Messages, questions and the administration."""
    queue = scene.queue()
    async with http_proxy() as (port, asked):
        settings = {
            "http_proxy": {"proxy_hostname": "http://127.0.0.1", "proxy_port": port},
            "custom_endpoint_address": f"sb://localhost:{scene.primary.http_port}",
            "transport_type": TransportType.AmqpOverWebsocket,
        }
        target = ConnectionString.parse(scene.primary.connection_string())
        namespace = SdkNamespace("primary", target, settings=settings)
        assert await namespace.is_twinbus()
        await namespace.send(queue, [build(b"x")])
        assert await namespace.name() == "contoso"
        async with await namespace.administer() as administration:
            assert (await administration.namespace()).name == "contoso"
        await namespace.close()

    assert scene.primary.count(queue) == 1
    assert [path for path in asked if "websocket" in path] == ["/$servicebus/websocket"] * 2
    assert len(asked) == 3
