"""Our own clients at two relays: a service behind both, calls that fail over, and one relay killed under load.

Relays are broker processes here, because they are killed; roles and rights by themselves are unit tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from support.broker import ROOT_POLICY, SOON_S, BrokerProcess
from support.ports import free_ports
from twinbus.broker.certs import make_certificates
from twinbus.relay import (
    RelayClient,
    RelayedRequest,
    RelayedResponse,
    RelayEndpoint,
    RelayError,
    RelayListener,
)
from twinbus.relay.serving import aiohttp_application, asgi

pytestmark = pytest.mark.feature("relay")

NAMES = ("myPrimaryService", "mySecondaryService")
CALLERS = 16


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with contextlib.ExitStack() as started:
        yield [
            started.enter_context(
                BrokerProcess(
                    tmp_path_factory.mktemp(name),
                    namespace=name,
                    config=f'[[hybrid_connections]]\nName = "{name}"\n',
                )
            )
            for name in NAMES
        ]


@pytest.fixture
def endpoints(brokers: list[BrokerProcess]) -> list[RelayEndpoint]:
    for broker in brokers:
        if broker.process is None:
            broker.start()
    return [
        RelayEndpoint(f"http://{broker.host}:{broker.http_port}/{name}", ROOT_POLICY, broker.key)
        for broker, name in zip(brokers, NAMES, strict=True)
    ]


async def echo(request: RelayedRequest) -> RelayedResponse:
    """Answers with what was asked, so that an answer to another question is noticed."""
    await asyncio.sleep(0)
    body = await request.read() or request.target.encode()
    return RelayedResponse(200, body, [("X-Question", request.headers.get("X-Question", ""))])


@asynccontextmanager
async def listening(endpoints: list[RelayEndpoint], **more: object) -> AsyncIterator[RelayListener]:
    async with RelayListener(endpoints, echo, **more) as listener:  # type: ignore[arg-type]
        await asyncio.wait_for(listener.listening(), SOON_S)
        yield listener


@pytest.mark.parametrize("size", [0, 1000, 100 * 1024, 10_000_000])
async def test_a_service_is_called_through_either_relay(endpoints: list[RelayEndpoint], size: int) -> None:
    body = b"q" * size
    async with listening(endpoints):
        for active in range(2):
            async with RelayClient(*endpoints, choose=lambda _, active=active: active) as client:  # type: ignore[misc]
                response = await client.request("POST", "below?a=1", body=body)
                expected = body or f"/{NAMES[active]}/below?a=1".encode()
                assert (response.status, response.endpoint, response.body == expected) == (200, active, True)


async def test_an_asgi_application_and_an_aiohttp_application_are_served_behind_both_endpoints_at_once(
    endpoints: list[RelayEndpoint],
) -> None:
    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 202, "headers": [(b"x-path", scope["path"].encode())]})
        await send({"type": "http.response.body", "body": body + scope["query_string"]})

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.path} {await request.text()}", status=203)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with RelayListener(endpoints, asgi(app)) as listener:
        await listener.listening()
        for endpoint in endpoints:
            async with RelayClient(endpoint) as client:
                response = await client.request("POST", "a/b?c=d", body=b"text ")
                assert (response.status, response.header("X-Path"), response.body) == (202, "/a/b", b"text c=d")
    async with aiohttp_application(application) as handler, RelayListener(endpoints, handler) as listener:
        await listener.listening()
        for endpoint in endpoints:
            async with RelayClient(endpoint) as client:
                response = await client.request("PUT", "a", body=b"text")
                assert (response.status, response.body) == (203, b"/a text")


async def test_a_socket_is_had_through_a_relay_and_rejected_by_a_service_without_sockets(
    endpoints: list[RelayEndpoint],
) -> None:
    async def shout(socket: aiohttp.ClientWebSocketResponse, headers: Mapping[str, str]) -> None:
        async for message in socket:
            await socket.send_str(str(message.data).upper())

    async with listening(endpoints, on_socket=shout), RelayClient(*endpoints) as client:
        socket = await client.connect()
        await socket.send_str("hello")
        assert await socket.receive_str() == "HELLO"
        await socket.close()
    async with listening(endpoints), RelayClient(*endpoints) as client:
        before = client.active
        with pytest.raises(RelayError) as refusal:
            await client.connect()
        assert (refusal.value.statuses, client.active) == ([501], before)  # The service said no, and not a relay.


async def test_a_service_s_error_is_passed_on_and_a_relay_s_own_swaps_the_roles(
    endpoints: list[RelayEndpoint],
) -> None:
    async def teapot(request: RelayedRequest) -> RelayedResponse:
        return RelayedResponse(503)

    async with RelayListener(endpoints[1:], teapot) as listener, RelayClient(*endpoints, choose=lambda _: 0) as client:
        await listener.listening()
        response = await client.request("POST")  # Nobody listens at the first: certainly not delivered.
        assert (response.status, response.endpoint, client.active) == (503, 1, endpoints[1])
        assert (await client.request("POST")).status == 503
        assert client.active is endpoints[1]
    async with RelayClient(*endpoints, choose=lambda _: 0) as client:
        with pytest.raises(RelayError) as problem:
            await client.request("GET")
        assert (problem.value.statuses, problem.value.is_definite, client.active) == ([502, 502], True, endpoints[0])


async def test_what_may_have_arrived_is_issued_again_only_if_that_is_safe(endpoints: list[RelayEndpoint]) -> None:
    asked: list[tuple[str, int]] = []

    async def lost(request: RelayedRequest) -> RelayedResponse:
        asked.append((request.method, request.endpoint))
        if request.endpoint == 0:
            await listener.close_endpoint(0)
        return RelayedResponse(200)

    for method, reissue, seen in [("POST", None, 1), ("GET", None, 2), ("POST", True, 2)]:
        asked.clear()
        async with RelayListener(endpoints, lost) as listener, RelayClient(*endpoints, choose=lambda _: 0) as client:
            await listener.listening()
            if seen == 1:
                with pytest.raises(RelayError) as problem:
                    await client.request(method, reissue=reissue)
                assert (problem.value.is_definite, client.active) == (False, endpoints[1])  # For the next one.
            else:
                assert (await client.request(method, reissue=reissue)).endpoint == 1
                assert client.active is endpoints[1]
            assert len(asked) == seen


@contextlib.contextmanager
def hanging(broker: BrokerProcess) -> Iterator[None]:
    """It takes connections and requests, and does nothing."""
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("ends", ["by its own time", "by the caller's"])
async def test_a_relay_that_hangs_costs_one_post_and_the_next_ones_go_through_the_other(
    brokers: list[BrokerProcess], endpoints: list[RelayEndpoint], ends: str
) -> None:
    asked: list[str] = []

    async def note(request: RelayedRequest) -> RelayedResponse:
        asked.append((await request.read()).decode())
        return RelayedResponse(200)

    async def post(body: str, total_s: float) -> int:
        if ends == "by its own time":
            return (await client.request("POST", body=body.encode(), total_s=total_s)).endpoint
        async with asyncio.timeout(total_s):
            return (await client.request("POST", body=body.encode())).endpoint

    async with RelayListener(endpoints, note) as listener, RelayClient(*endpoints, choose=lambda _: 0) as client:
        await asyncio.wait_for(listener.listening(), SOON_S)
        assert await post("before", SOON_S) == 0
        with hanging(brokers[0]):
            with pytest.raises((RelayError, TimeoutError)):
                await post("into the silence", 0.5)
            assert [await post(f"after {number}", SOON_S) for number in range(3)] == [1, 1, 1]
            assert asked == ["before", "after 0", "after 1", "after 2"]  # Not issued again: it may be there yet.


async def test_a_listener_at_two_relays_of_one_datacenter_warns_once(
    tmp_path: Path, endpoints: list[RelayEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    config = '[[hybrid_connections]]\nName = "third"\n'
    with BrokerProcess(tmp_path, config=config, options=("--datacenter", "north")) as broker:
        third = RelayEndpoint(f"http://{broker.host}:{broker.http_port}/third", ROOT_POLICY, broker.key)
        for datacenter, warnings in (("south", 0), ("North", 1)):
            caplog.clear()
            async with listening([replace(endpoints[0], datacenter=datacenter), third]) as listener:
                await listener.close_endpoint(1)
                while listener._listening[1].is_set():
                    await asyncio.sleep(0)
                await asyncio.wait_for(listener.listening(1), SOON_S)
            told = [record for record in caplog.records if "would be lost together" in record.getMessage()]
            assert len(told) == warnings


@pytest.mark.alone
async def test_a_killed_relay_costs_less_than_a_second_and_no_answer_goes_to_another_question(
    brokers: list[BrokerProcess], endpoints: list[RelayEndpoint]
) -> None:
    numbers = itertools.count()
    slowest, answered, killed_at, moved = 0.0, 0, 0.0, 0

    async def ask(client: RelayClient, until: asyncio.Event) -> None:
        nonlocal slowest, answered, moved
        while not until.is_set():
            number = next(numbers)
            # Every part of a body tells whose it is, so that no part of another can be in it unseen.
            body = random.Random(number).randbytes((10, 3_000, 90_000, 200_000)[number % 4])
            began, at = time.monotonic(), client.active
            response = await client.request("PUT", headers={"X-Question": str(number)}, body=body)
            if killed_at and began >= killed_at:
                slowest = max(slowest, time.monotonic() - began)
            assert response.header("X-Question") == str(number)
            assert response.body == body
            moved += endpoints[response.endpoint] is not at
            answered += 1
            await asyncio.sleep(0.02)  # So that the relay which starts has the processor too.

    async def some_more(count: int) -> None:
        goal = answered + count
        while answered < goal:
            await asyncio.sleep(0.01)

    until = asyncio.Event()
    async with listening(endpoints) as listener, RelayClient(*endpoints, choose=lambda _: 0) as client:
        callers = [asyncio.create_task(ask(client, until)) for _ in range(CALLERS)]
        await asyncio.wait_for(some_more(100), 10)
        await asyncio.to_thread(brokers[0].kill)
        killed_at = time.monotonic()
        await asyncio.wait_for(some_more(100), 10)
        assert client.active is endpoints[1]
        assert moved > CALLERS / 4  # So many were under way, and had their answers from the other one.
        await asyncio.to_thread(brokers[0].start)  # In a thread: here it would hold up the calls that are measured.
        await asyncio.wait_for(listener.listening(0), 10)
        await asyncio.to_thread(brokers[1].kill)
        await asyncio.wait_for(some_more(100), 10)
        assert client.active is endpoints[0]
        until.set()
        await asyncio.gather(*callers)
    assert slowest < 1.0


@pytest.mark.alone
async def test_what_a_killed_relay_cuts_off_is_never_whole_and_the_next_call_and_socket_take_less_than_a_second(
    brokers: list[BrokerProcess], endpoints: list[RelayEndpoint]
) -> None:
    streaming = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(100_000)
            streaming.set()
            await asyncio.sleep(0.01)

    async def stream(request: RelayedRequest) -> RelayedResponse:
        return RelayedResponse(more=endless()) if await request.read() == b"stream" else RelayedResponse(201)

    async def echo_socket(socket: aiohttp.ClientWebSocketResponse, headers: Mapping[str, str]) -> None:
        async for message in socket:
            await socket.send_str(str(message.data))

    async with (
        RelayListener(endpoints, stream, on_socket=echo_socket) as listener,
        RelayClient(*endpoints, choose=lambda _: 0) as client,
    ):
        await asyncio.wait_for(listener.listening(), SOON_S)
        socket = await client.connect()
        calling = asyncio.create_task(client.request("POST", body=b"stream"))
        await asyncio.wait_for(streaming.wait(), 5)
        await asyncio.to_thread(brokers[0].kill)
        with pytest.raises(RelayError) as problem:
            await calling
        assert (problem.value.statuses, problem.value.is_definite) == ([None], False)
        began = time.monotonic()
        assert (await client.request("POST", body=b"next")).status == 201
        other = await client.connect()
        await other.send_str("next")
        assert await other.receive_str() == "next"
        assert time.monotonic() - began < 1.0
        assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        await other.close()


async def test_a_relay_is_reached_with_tls(tmp_path: Path) -> None:
    certificates = tmp_path / "certs"
    make_certificates(certificates, [])
    amqps_port, https_port = free_ports(2)
    options = ("--tls", str(certificates), "--amqps-port", str(amqps_port), "--https-port", str(https_port))
    config = '[[hybrid_connections]]\nName = "service"\n'
    large = b"l" * 1_000_000
    with BrokerProcess(tmp_path / "broker", config=config, options=options) as broker:
        trusting = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        endpoint = RelayEndpoint(f"https://localhost:{https_port}/service", ROOT_POLICY, broker.key)
        async with listening([endpoint], tls=trusting), RelayClient(endpoint, tls=trusting) as client:
            response = await client.request("POST", body=large)
    assert (response.status, response.body == large) == (200, True)
