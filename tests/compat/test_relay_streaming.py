"""Bodies pass a listener while they are made: nobody holds one whole, and who is slow is waited for.

The relay runs in this process; where memory is read, the listener is a process of its own.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from support.broker import KEY, ROOT_POLICY, SOON_S
from support.relay import Relay, relay_in
from twinbus.relay import RelayedRequest, RelayedResponse, RelayEndpoint, RelayListener
from twinbus.relay.limits import Limits
from twinbus.relay.messages import Handler
from twinbus.relay.serving import aiohttp_application, asgi

pytestmark = [pytest.mark.feature("relay"), pytest.mark.asyncio(loop_scope="module")]

MEGABYTE = 1024 * 1024
LISTENER = """
import asyncio, sys
from twinbus.relay import RelayEndpoint, RelayListener
from twinbus.relay.serving import asgi

async def app(scope, receive, send):
    taken, more = 0, True
    while more:
        event = await receive()
        taken, more = taken + len(event["body"]), event["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-taken", str(taken).encode())]})
    for _ in range(int(scope["query_string"] or 0)):
        await send({"type": "http.response.body", "body": bytes(1024 * 1024), "more_body": True})
    await send({"type": "http.response.body"})

async def main():
    async with RelayListener([RelayEndpoint(*sys.argv[1:])], asgi(app)) as listener:
        await listener.listening()
        print("listening", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Relay]:
    async with relay_in(tmp_path_factory.mktemp("relay"), Limits()) as started:
        yield started


def endpoint(relay: Relay) -> RelayEndpoint:
    return RelayEndpoint(f"http://{relay.host}/service", ROOT_POLICY, KEY)


@asynccontextmanager
async def serving(relay: Relay, handler: Handler) -> AsyncIterator[None]:
    async with RelayListener([endpoint(relay)], handler) as listener:
        await asyncio.wait_for(listener.listening(), SOON_S)
        yield


@asynccontextmanager
async def called(relay: Relay, method: str = "GET", **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    options.setdefault("headers", relay.headers())
    timeout = aiohttp.ClientTimeout(sock_read=SOON_S)
    async with relay.session.request(method, f"http://{relay.host}/service", timeout=timeout, **options) as answer:
        yield answer


async def echoing_asgi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    more = True
    while more:
        event = await receive()
        more = event["more_body"]
        await send({"type": "http.response.body", "body": event["body"], "more_body": more})


async def echoing_aiohttp(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    async for part in request.content.iter_any():
        await response.write(part)
    return response


@asynccontextmanager
async def asgi_handler() -> AsyncIterator[Handler]:
    yield asgi(echoing_asgi)


@asynccontextmanager
async def aiohttp_handler() -> AsyncIterator[Handler]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", echoing_aiohttp)
    async with aiohttp_application(application) as handler:
        yield handler


@pytest.mark.parametrize("handler", [asgi_handler, aiohttp_handler])
async def test_an_application_has_the_first_part_and_answers_it_before_the_second_is_sent(
    relay: Relay, handler: Callable[[], Any]
) -> None:
    answered = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"first "
        await answered.wait()
        yield b"second"

    async with handler() as made, serving(relay, made), called(relay, "POST", data=parts()) as answer:
        assert await answer.content.readany() == b"first "
        answered.set()
        assert await answer.content.read() == b"second"


@pytest.mark.parametrize("handler", [asgi_handler, aiohttp_handler])
async def test_many_streams_at_once_do_not_mix(relay: Relay, handler: Callable[[], Any]) -> None:
    async def echoed(number: int) -> bool:
        chance = random.Random(number)
        sent = [chance.randbytes(chance.randrange(1, 200_000)) for _ in range(20)]

        async def parts() -> AsyncIterator[bytes]:
            for part in sent:
                yield part
                await asyncio.sleep(chance.random() / 100)

        async with called(relay, "POST", data=parts()) as answer:
            return await answer.read() == b"".join(sent)

    async with handler() as made, serving(relay, made):
        assert await asyncio.gather(*map(echoed, range(20))) == [True] * 20


async def test_a_response_begins_to_leave_although_its_service_makes_a_pause(relay: Relay) -> None:
    seen = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"one "
        await seen.wait()
        yield b"two"

    async def answer_slowly(request: RelayedRequest) -> RelayedResponse:
        return RelayedResponse(200, b"zero ", more=events())

    async with serving(relay, answer_slowly), called(relay) as answer:
        assert await answer.content.readexactly(9) == b"zero one "
        seen.set()
        assert await answer.read() == b"two"


async def test_a_caller_that_does_not_read_makes_the_service_wait(relay: Relay) -> None:
    made = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield bytes(MEGABYTE)

    async def answer_much(request: RelayedRequest) -> RelayedResponse:
        return RelayedResponse(more=flood())

    async with serving(relay, answer_much), called(relay) as answer:
        before = -1
        while before != made or not made:  # Until buffers, of which most are the kernel's, are full.
            before = made
            await asyncio.sleep(0.3)
        assert 0 < made < 40
        received = 0
        async for part in answer.content.iter_any():
            received += len(part)
        assert (received, made) == (100 * MEGABYTE, 100)


async def test_a_caller_that_goes_away_ends_what_the_service_does_for_it(relay: Relay) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"more to come", "more_body": True})
        try:
            told.put_nowait((await receive())["type"])
        except asyncio.CancelledError:
            told.put_nowait("cancelled")
            raise

    async with serving(relay, asgi(app)):
        async with called(relay, "POST", data=b"x" * 100_000) as answer:
            assert await answer.content.readany() == b"more to come"
            assert told.empty()
            answer.close()
        assert await asyncio.wait_for(told.get(), SOON_S) in ("http.disconnect", "cancelled")


async def test_a_service_that_does_not_want_a_large_body_answers_without_it(relay: Relay) -> None:
    async def refuse(request: RelayedRequest) -> RelayedResponse:
        return RelayedResponse(413, b"too much")

    async with serving(relay, refuse), called(relay, "POST", data=BytesIO(bytes(20 * MEGABYTE))) as answer:
        assert (answer.status, await answer.read()) == (413, b"too much")


@pytest.mark.parametrize("good_bytes", [0, 10, 200_000])
async def test_a_response_that_fails_halfway_is_never_taken_for_whole(relay: Relay, good_bytes: int) -> None:
    begun = asyncio.Event()

    async def breaking() -> AsyncIterator[bytes]:
        if good_bytes:
            yield bytes(good_bytes)
            await begun.wait()  # A listener keeps the beginning back for a moment.
        raise LookupError("the service has a defect")

    async def answer_in_part(request: RelayedRequest) -> RelayedResponse:
        return RelayedResponse(more=breaking())

    async with serving(relay, answer_in_part), called(relay) as answer:
        begun.set()
        if good_bytes:
            assert answer.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        else:
            assert (answer.status, await answer.read()) == (500, b"The service failed.\n")


async def test_a_request_that_breaks_off_is_never_taken_for_whole(relay: Relay) -> None:
    seen: asyncio.Queue[bytes | type[Exception]] = asyncio.Queue()

    async def take(request: RelayedRequest) -> RelayedResponse:
        try:
            seen.put_nowait(await request.read())
        except ConnectionError as problem:
            seen.put_nowait(ConnectionError)
            raise problem
        return RelayedResponse()

    async def parts() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        raise LookupError("the sender has a defect")

    async with serving(relay, take):
        with pytest.raises((LookupError, aiohttp.ClientError)):
            async with called(relay, "POST", data=parts()):
                pass
        assert await asyncio.wait_for(seen.get(), SOON_S) is ConnectionError


def peak_mb(process: asyncio.subprocess.Process) -> float:
    """The most memory that a process ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def upload(relay: Relay, megabytes: int) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(megabytes):
            yield bytes(MEGABYTE)

    async with called(relay, "POST", data=parts()) as answer:
        assert answer.headers["X-Taken"] == str(megabytes * MEGABYTE)


async def download(relay: Relay, megabytes: int) -> None:
    received = 0
    async with called(relay, params=str(megabytes)) as answer:
        async for part in answer.content.iter_any():
            received += len(part)
    assert received == megabytes * MEGABYTE


async def test_a_hundred_megabytes_pass_a_listener_whose_memory_hardly_grows(relay: Relay) -> None:
    place = endpoint(relay)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LISTENER, place.url, place.policy, place.key),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), SOON_S) == b"listening\n"
        passing: list[Callable[[Relay, int], Awaitable[None]]] = [upload, download]
        for pass_on in passing:
            await pass_on(relay, 2)  # What is made once, as a connection, is not what grows.
        before = peak_mb(process)
        for pass_on in passing:
            await pass_on(relay, 100)
        grown = peak_mb(process) - before
        print(f"the listener grew by {grown:.1f} MB")
        assert grown < 10
    finally:
        process.kill()
        await process.wait()
