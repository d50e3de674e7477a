"""An outage of the token service: who depends on it, until when, and who never notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from support.pair_scene import Scene, until
from support.token_service import LIFETIME_S, AsyncServiceCredential, ServiceCredential, TokenService
from twinbus.client import ClientError, ConnectionString, connect, messages
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions

SHORT_S = 8  # Long enough for whoever is slow to use a token before it ends.


@pytest.fixture
def service(scene: Scene) -> Iterator[TokenService]:
    made = TokenService(scene.primary.key)
    yield made
    made.stop()


def target(scene: Scene, service: TokenService) -> ConnectionString:
    return ConnectionString(
        host="127.0.0.1", port=scene.primary.amqp_port, tls=False, credential=ServiceCredential(service)
    )


def test_the_service_hands_out_tokens_for_three_hours(scene: Scene, service: TokenService) -> None:
    before = time.time()
    token = ServiceCredential(service).get_token("sb://localhost/q")

    assert before + LIFETIME_S <= token.expires_on <= time.time() + LIFETIME_S + 1
    assert LIFETIME_S == 10_800


async def test_while_the_service_is_down_holders_go_on_until_their_token_ends(scene: Scene) -> None:
    queue = scene.queue()
    service, made_at = TokenService(scene.primary.key, lifetime_s=SHORT_S), time.time()
    async with connect(target(scene, service)) as connection:
        sender = await connection.sender(queue)
        await sender.send([messages.build(b"before", message_id="before")])
        service.stop()

        # Nobody gets a new token.
        with pytest.raises(ClientError, match="no token"):
            async with connect(target(scene, service)) as another:
                await another.sender(queue)
        # Who has one goes on.
        for _ in range(3):
            await sender.send([messages.build(b"during")])
        # Until it ends: then the broker detaches.
        await until(lambda: sender.error is not None, "the end of the token")
        assert time.time() >= made_at + SHORT_S
        assert sender.error is not None
        assert sender.error.condition == "amqp:unauthorized-access"


async def test_who_signs_for_itself_never_notices(scene: Scene, service: TokenService) -> None:
    queue = scene.queue()
    service.stop = lambda: None  # type: ignore[method-assign]  # Stopped here, once.
    TokenService.stop(service)
    async with scene.client() as client:
        sender = client.get_queue_sender(queue)
        for number in range(3):
            assert await scene.send(sender, f"m{number}")

    assert service.handed_out == 0


async def test_a_tokens_renewal_comes_early(scene: Scene) -> None:
    """The client's own clock is moved: a tenth of the token's life before its end there is a new one."""
    queue = scene.queue()

    class Clock:
        offset_ms = 0

        def now_ms(self) -> int:
            return time.time_ns() // 1_000_000 + self.offset_ms

    clock = Clock()
    async with connect(scene.primary.connection_string(), clock=clock, token_lifetime_ms=30_000) as connection:
        sender = await connection.sender(queue)
        authorisation = connection._authorisation
        assert authorisation is not None
        first = authorisation._tokens[queue].renew_at_ms
        clock.offset_ms = 28_000  # Less than the silence after which a peer counts as gone.
        await until(lambda: authorisation._tokens[queue].renew_at_ms > first, "the renewal")
        await sender.send([messages.build(b"x")])


async def test_a_pair_of_sdk_clients_with_credentials(scene: Scene, service: TokenService) -> None:
    """Senders, pings and the syphon all ask the credential that the application gave the SDK."""
    queue = scene.queue()
    host = f"127.0.0.1:{scene.primary.amqp_port}"
    primary = ServiceBusClient(host, AsyncServiceCredential(service), use_tls=False, retry_total=0)  # type: ignore[arg-type]
    secondary = ServiceBusClient.from_connection_string(scene.secondary.connection_string())
    options = SendAvailabilityOptions(
        backlog_queue_count=1, failover_interval=0, ping_primary_interval=1, enable_syphon=True, poll=1
    )
    async with PairedServiceBusClient(primary, secondary, options, primary_name=scene.name) as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage(b"x", message_id="before"))
        scene.primary.kill()
        await sender.send_messages(ServiceBusMessage(b"x", message_id="diverted"))
        assert client.status().diverted == 1
        await asyncio.to_thread(scene.primary.start)
        await until(lambda: client.status().ill == {}, "healing")
        await until(lambda: (client.status().syphon or {})["moved"] == {queue: 1}, "the way home")
    await scene.receive(queue, 2)

    assert scene.received == {"before": 1, "diverted": 1}
    assert service.handed_out >= 3
