"""A client that breaks in a way that no retry mends ends its partner, where a syphon runs; one that is away does not.

Afterwards nothing new is opened on either.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from support.broker import ROOT_POLICY, BrokerProcess
from support.pair_scene import QUICK, Scene, until
from twinbus.client import ConnectionString, messages
from twinbus.pair import PairedServiceBusClient as BlockingClient
from twinbus.pair import PartnerError
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import ClientState, RemoteNamespace
from twinbus.pair.namespace.soundness import Sign
from twinbus.pair.sdk.namespace import SdkNamespace

OTHER_KEY = "another-key-for-tests-that-opens-nothing-else"
BOTH_FAULTED = {"primary": "faulted", "secondary": "faulted"}
SYPHON: dict[str, Any] = {"enable_syphon": True, "poll": 60, "backlog_queue_count": 1}


def restart(broker: BrokerProcess, key: str) -> None:
    """With another key for the same policy, on the same data."""
    broker.kill()
    broker.key = key
    broker.start()


@asynccontextmanager
async def rekeyed(broker: BrokerProcess) -> AsyncIterator[None]:
    """A broker that has another key, for the time of a block."""
    key = broker.key
    try:
        await asyncio.to_thread(restart, broker, OTHER_KEY)
        yield
    finally:
        await asyncio.to_thread(restart, broker, key)


async def refuses_everything(client: PairedServiceBusClient, queue: str, sender: Any, receiver: Any) -> None:
    """Every way to use either client raises a PartnerError."""
    message = ServiceBusMessage(b"x")
    for each in (client, client.primary, client.secondary):
        for get in (each.get_queue_sender, each.get_topic_sender, each.get_queue_receiver):
            with pytest.raises(PartnerError):
                get(queue)
        with pytest.raises(PartnerError):
            each.get_subscription_receiver(queue, "s")
    outcomes = await sender.send_many([message])
    assert isinstance(outcomes[0].error, PartnerError)
    async with sender.overlapped() as window:
        outcome = await window.submit(message)
        await window.finish()
        assert isinstance(outcome.error, PartnerError)
    later = datetime.now(UTC) + timedelta(hours=1)
    for call in (
        lambda: sender.send_messages(message),
        lambda: sender.schedule_messages(message, later),
        lambda: sender.cancel_scheduled_messages(1),
        lambda: sender.create_message_batch(),
        lambda: receiver.receive_messages(1, max_wait_time=1),
    ):
        with pytest.raises(PartnerError):
            await call()


async def test_a_refused_credential_of_the_secondary_is_noticed_with_nothing_sent(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(**SYPHON) as client:
        sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue)
        assert await scene.send(sender, "before")
        async with rekeyed(scene.secondary):
            began = time.monotonic()
            await until(lambda: client.status().namespaces == BOTH_FAULTED, "the end of both")
            assert time.monotonic() - began < 5.0
            await refuses_everything(client, queue, sender, receiver)
            assert "its credential is refused" in str(client._core.primary.reason)
            pump = client._core.background.syphon
            assert pump is not None
            await until(lambda: not pump.is_running, "the end of the pump")
    await scene.receive(queue, 1)

    assert scene.received == {"before": 1}


async def test_a_refused_credential_of_the_primary_opens_nothing_new(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(**SYPHON, ping_primary_interval=1) as client:
        sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue)
        assert await scene.send(sender, "before")
        async with rekeyed(scene.primary):
            assert not await scene.send(sender, "refused")
            began = time.monotonic()
            await until(lambda: client.status().namespaces == BOTH_FAULTED, "the end of both")
            assert time.monotonic() - began < 5.0
            await until(lambda: len(client._core.background._tasks) == 0, "the end of all work")
            dialled, opened = scene.proxy.connections, scene.secondary.metric("twinbus_connections_total")
            await refuses_everything(client, queue, sender, receiver)
            await asyncio.sleep(0.7)  # Longer than from one look of a syphon to the next.
            assert scene.proxy.connections == dialled
            assert scene.secondary.metric("twinbus_connections_total") == opened


async def test_a_peer_that_breaks_the_protocol_ends_both(scene: Scene) -> None:
    is_garbled = False

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_broker: bool) -> None:
        said = b""
        with suppress(OSError):
            while data := await reader.read(65536):
                said += data
                # After the open, when the client listens to a connection that is one.
                writer.write(b"\xff" * 64 if from_broker and is_garbled and len(said) > 400 else data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", scene.secondary.amqp_port)
        await asyncio.gather(forward(reader, back, False), forward(there, writer, True))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    direct = scene.secondary.connection_string()
    async with PairedServiceBusClient.from_connection_strings(
        scene.connection_string(),
        direct.replace(f":{scene.secondary.amqp_port};", f":{port};"),
        SendAvailabilityOptions(**QUICK | SYPHON | {"poll": 1, "syphon_pause": 0.5}),
        primary_name=scene.name,
    ) as client:
        await until(lambda: client._core.secondary._taken.path != "", "the first receive")
        is_garbled = True
        await until(lambda: client.status().namespaces == BOTH_FAULTED, "the end of both")
        assert "breaks the protocol" in str(client._core.primary.reason)
    server.close()


@pytest.mark.parametrize("ended", ["primary", "secondary"])
async def test_a_close_of_one_opens_nothing_there_at_once(scene: Scene, ended: str) -> None:
    queue = scene.queue()
    async with scene.client(**SYPHON, partner_grace=60, failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "before")
        await getattr(client, ended).close()
        with pytest.raises(PartnerError, match=f"{ended} namespace of the pair is closed"):
            getattr(client, ended).get_queue_sender(queue)
        if ended == "primary":
            with pytest.raises(PartnerError, match="primary namespace of the pair is closed"):
                client.get_queue_receiver(queue)
            return
        assert await scene.send(sender, "still")  # The primary has its grace.
        scene.primary.kill()
        with pytest.raises(PartnerError, match="secondary namespace of the pair is closed"):
            await sender.send_messages(ServiceBusMessage(b"x"))
        assert client.status().diverted == 0


def test_the_blocking_client_raises_too(scene: Scene) -> None:
    queue = scene.queue()
    with BlockingClient.from_connection_strings(
        scene.primary.connection_string(),
        scene.secondary.connection_string(),
        SendAvailabilityOptions(**QUICK | SYPHON),
        primary_name=scene.name,
    ) as client:
        sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue)
        sender.send_messages(ServiceBusMessage(b"x"))
        client._core.secondary.fault(RuntimeError("the key was taken away"))
        deadline = time.monotonic() + 20
        while client.status().namespaces != BOTH_FAULTED and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        for call in (
            lambda: client.get_queue_sender(queue),
            lambda: client.primary.get_queue_receiver(queue),
            lambda: client.secondary.get_queue_sender(queue),
            lambda: sender.send_messages(ServiceBusMessage(b"x")),
            lambda: sender.create_message_batch(),
            lambda: receiver.receive_messages(1, max_wait_time=1),
        ):
            with pytest.raises(PartnerError, match="the key was taken away"):
                call()
        outcome = sender.send_many([ServiceBusMessage(b"x")])[0]
        assert isinstance(outcome.error, PartnerError)


@pytest.mark.parametrize("kind", [OwnClientNamespace, SdkNamespace])
async def test_what_a_look_shows(scene: Scene, kind: Any) -> None:
    """A wrong key is one thing; a missing right, another namespace in its place, and silence are others."""
    queue, other = scene.queue(), scene.queue()

    def namespace(**proof: str) -> RemoteNamespace:
        text = scene.primary.connection_string(**proof)
        made: RemoteNamespace = kind("primary", ConnectionString.parse(text), timeout_s=5.0)
        return made

    for_one = namespace(signature=scene.primary.token(queue))
    assert await for_one.examine() is Sign.SILENT  # Nothing is known of it.
    await for_one.message_bytes_max(queue)
    with suppress(Exception):
        await for_one.message_bytes_max(other)
    assert await for_one.examine() is Sign.TAKEN
    wrong = namespace(key=OTHER_KEY)
    with suppress(Exception):
        await wrong.message_bytes_max(queue)
    assert await wrong.examine() is Sign.REFUSED
    known = namespace()
    await known.facts()
    await known.message_bytes_max(queue)
    key = scene.primary.key
    scene.primary.kill()
    assert await known.examine() is Sign.SILENT
    scene.primary.data.rename(scene.primary.directory / "lost")
    try:
        scene.primary.key = OTHER_KEY
        await asyncio.to_thread(scene.primary.start)
        assert await known.examine() is Sign.REPLACED
    finally:
        scene.primary.kill()
        shutil.rmtree(scene.primary.data)
        (scene.primary.directory / "lost").rename(scene.primary.data)
        scene.primary.key = key
        await asyncio.gather(*(each.close() for each in (for_one, wrong, known)))


@pytest.mark.parametrize("adapter", ["own", "sdk"])
async def test_a_key_that_the_application_changes_is_the_pairs_too(scene: Scene, adapter: str) -> None:
    queue = scene.queue()
    credential = AzureNamedKeyCredential(ROOT_POLICY, scene.secondary.key)
    primary = ServiceBusClient.from_connection_string(scene.connection_string(), retry_total=0)
    host = f"127.0.0.1:{scene.secondary.amqp_port}"
    secondary = ServiceBusClient(host, credential, use_tls=False)
    options = SendAvailabilityOptions(**QUICK | SYPHON | {"adapter": adapter})
    async with PairedServiceBusClient(primary, secondary, options, primary_name=scene.name) as client:
        await until(lambda: client._core.secondary._taken.path != "", "the first receive")
        async with rekeyed(scene.secondary):
            credential.update(ROOT_POLICY, OTHER_KEY)
            assert await client._core.secondary.examine() is Sign.TAKEN
            diverted = await client._core.carrier.backlog.send(  # type: ignore[union-attr]
                [messages.build(b"x", message_id="diverted")], queue, None, None
            )
            assert diverted.endswith("/x-servicebus-transfer/0")
            await until(lambda: (client.status().syphon or {})["moved"] == {queue: 1}, "the way home")


async def test_without_a_syphon_nobody_is_watched(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client() as client:
        client._core.secondary.fault(RuntimeError("whatever"))
        await asyncio.sleep(0.3)
        assert client._core.primary.state is ClientState.OPEN
        assert "get_queue_sender" not in vars(client.primary)
        assert await scene.send(client.get_queue_sender(queue), "m")
