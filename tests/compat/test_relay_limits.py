"""The relay's counts and times, at their documented values where that is quick: listeners, connections, tokens.

The relay runs in this process; what several gateways make of it is at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from support import journals
from support.broker import KEY, ROOT_POLICY, BrokerProcess
from support.gateways import Gateways, new_database
from support.postgres import PostgresServer
from support.relay import Relay, closing, relay_in
from support.sdk import until
from twinbus.relay import RelayClient, RelayedRequest, RelayedResponse, RelayEndpoint, RelayError, RelayListener
from twinbus.relay.limits import Limits
from twinbus.wire.sas import make_token

pytestmark = [pytest.mark.feature("relay"), pytest.mark.asyncio(loop_scope="module")]

FEW = 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Relay]:
    async with relay_in(tmp_path_factory.mktemp("relay"), replace(Limits(), connections_max=FEW)) as started:
        yield started


async def refused(opening: object) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        await opening  # type: ignore[misc]
    return refusal.value.status


async def greet(request: RelayedRequest) -> RelayedResponse:
    return RelayedResponse(200, b"hello")


async def test_the_limits_are_the_documented_ones() -> None:
    limits = Limits()
    assert (limits.listeners_max, limits.connections_max) == (25, 5_000)
    assert (limits.control_body_bytes_max, limits.header_bytes_max) == (64 * 1024, 32 * 1024)
    assert (limits.accept_s, limits.response_s, limits.idle_s) == (30, 60, 60)


async def test_twenty_five_may_listen_each_gets_its_share_and_one_more_is_refused(relay: Relay) -> None:
    listeners = [await relay.listen() for _ in range(25)]
    assert await refused(relay.listen()) == 403
    answered = [asyncio.create_task(_answer_all(listener)) for listener in listeners]
    for _ in range(500):
        assert (await relay.request())[0] == 200
    for listener in listeners:
        await listener.socket.close()
    shares = [await each for each in answered]
    # At random: that one of them gets nothing of 500 happens once in thirty million runs.
    assert (sum(shares), min(shares) > 0) == (500, True)


async def _answer_all(listener: object) -> int:
    count = 0
    async for message in listener.socket:  # type: ignore[attr-defined]
        await listener.respond(message.json()["request"]["id"])  # type: ignore[attr-defined]
        count += 1
    return count


async def test_a_connection_too_many_is_refused_with_503_until_another_ends(relay: Relay) -> None:
    await until(lambda: relay.connections == 0, "what was before has ended")
    listener = await relay.listen()
    pairs = []
    for _ in range(FEW):
        connecting = asyncio.create_task(relay.connect())
        accepted = await listener.accept()
        pairs.append((await connecting, accepted))
    assert await refused(relay.connect()) == 503
    status, text, headers = await relay.request()
    assert (status, b"3 connections" in text, "Via" in headers) == (503, True, False)
    async with relay.session.get(f"http://{relay.host}/open") as answer:
        assert answer.status == 503  # Another name, but the same namespace.
    sender, accepted = pairs.pop()
    await sender.close()
    assert await closing(accepted) == 1000
    await until(lambda: relay.connections == FEW - 1, "the connection has ended for the relay too")
    connecting = asyncio.create_task(relay.connect())
    pairs.append((await listener.accept(), await connecting))
    for one, other in pairs:
        await one.close()
        await other.close()
    await listener.socket.close()


async def test_a_listener_stays_over_the_expiry_of_its_token_because_it_renews_it(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay:
        endpoint = RelayEndpoint(f"http://{relay.host}/service", ROOT_POLICY, KEY, token_lifetime_s=10)
        async with RelayListener([endpoint], greet) as listener, RelayClient(endpoint) as client:
            await listener.listening()
            began = time.monotonic()
            while time.monotonic() - began < 11.2:  # The first token is over; tokens end at full seconds.
                assert (await client.request("GET")).body == b"hello"
                await asyncio.sleep(0.3)
    listened = [entry for entry in journals.entries_in(tmp_path, "service") if entry.operation == "relay_listen"]
    assert len(listened) == 1


async def test_a_listener_that_comes_for_a_sender_that_is_gone_is_told_410(relay: Relay) -> None:
    listener = await relay.listen()
    connecting = asyncio.create_task(relay.connect())
    told = await listener.command("accept")
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert await refused(relay.session.ws_connect(told["address"])) == 410
    assert await refused(relay.session.ws_connect(told["address"])) == 404
    await listener.socket.close()


# Several gateways


@pytest.fixture(scope="module")
def gateways(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    config = '[[hybrid_connections]]\nName = "service"\n'
    directory = tmp_path_factory.mktemp("gateways")
    with Gateways(directory, [new_database(postgres)], config=config) as started:
        yield started.members


def at(gateway: BrokerProcess, path: str = "service") -> RelayEndpoint:
    return RelayEndpoint(f"http://{gateway.host}:{gateway.http_port}/{path}", ROOT_POLICY, gateway.key)


async def test_a_listener_is_known_to_its_own_gateway_and_the_other_one_says_so(gateways: list[BrokerProcess]) -> None:
    one, other = gateways
    async with RelayListener([at(one)], greet) as listener, RelayClient(at(one)) as near, RelayClient(at(other)) as far:
        await listener.listening()
        assert (await near.request("GET")).body == b"hello"
        with pytest.raises(RelayError) as problem:
            await far.request("GET")
        assert (problem.value.statuses, problem.value.is_definite) == ([502], True)
        assert "Nobody listens at 'service' at this gateway." in str(problem.value)
        async with RelayListener([at(other)], greet) as second:
            await second.listening()
            assert (await far.request("GET")).body == b"hello"


async def test_an_address_is_good_at_the_gateway_that_named_it(gateways: list[BrokerProcess]) -> None:
    one, other = gateways
    token = make_token(f"http://{one.host}/service", ROOT_POLICY, one.key, int(time.time()) + 300)
    async with aiohttp.ClientSession(headers={"ServiceBusAuthorization": token}) as session:
        control = await session.ws_connect(at(one).socket_url("listen"))
        connecting = asyncio.create_task(session.ws_connect(at(one).socket_url("connect")))
        address = (await control.receive_json())["accept"]["address"]
        elsewhere = address.replace(str(one.http_port), str(other.http_port))
        assert await refused(session.ws_connect(elsewhere)) == 404
        async with session.ws_connect(address) as accepted, await connecting as sender:
            await sender.send_str("hello")
            assert await accepted.receive_str() == "hello"
        await control.close()


async def test_each_gateway_takes_twenty_five_listeners_and_a_deletion_through_one_ends_those_of_both(
    gateways: list[BrokerProcess],
) -> None:
    one, other = gateways
    administered, as_json = "/$api/hybrid-connections/shared", {"Content-Type": "application/json"}
    assert (await asyncio.to_thread(one.request, "PUT", administered, "{}", as_json))[0] == 200
    token = make_token(f"http://{one.host}/shared", ROOT_POLICY, one.key, int(time.time()) + 300)
    async with aiohttp.ClientSession(headers={"ServiceBusAuthorization": token}) as session:
        first = [await session.ws_connect(at(one, "shared").socket_url("listen")) for _ in range(25)]
        assert await refused(session.ws_connect(at(one, "shared").socket_url("listen"))) == 403
        second = await session.ws_connect(at(other, "shared").socket_url("listen"))
        assert (await asyncio.to_thread(other.request, "DELETE", administered))[0] == 200
        assert [await closing(each) for each in (*first, second)] == [1001] * 26
