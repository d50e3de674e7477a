"""What the relay costs: memory while a receiver is slow and while listeners are idle, and throughput of a socket.

The relay is a process of its own here, so that its memory can be read and its work is not done by the test.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from support.broker import ROOT_POLICY, BrokerProcess, free_ports
from twinbus.wire.sas import make_token

pytestmark = [pytest.mark.feature("relay"), pytest.mark.alone]

MEGABYTE = 1024 * 1024
IDLE_LISTENERS, LISTENERS_AT_ONE = 1000, 25
ROUNDS, ROUND_MEGABYTES = 4, 60

PROXY = """
import asyncio, sys

async def pass_on(reader, writer):
    while data := await reader.read(256 * 1024):
        writer.write(data)
        await writer.drain()
    writer.close()

async def main():
    async def carry(reader, writer):
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
        await asyncio.gather(pass_on(reader, onward_writer), pass_on(onward_reader, writer))
    server = await asyncio.start_server(carry, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    names = ["service", *(f"idle-{number}" for number in range(IDLE_LISTENERS // LISTENERS_AT_ONE))]
    config = "".join(f'[[hybrid_connections]]\nName = "{name}"\n' for name in names)
    with BrokerProcess(tmp_path_factory.mktemp("relay"), config=config, forked=False) as started:
        yield started


@pytest.fixture
async def session(broker: BrokerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    token = make_token(f"http://{broker.host}/", ROOT_POLICY, broker.key, int(time.time()) + 300)
    headers = {"ServiceBusAuthorization": token}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as opened:
        yield opened


def memory_mb(broker: BrokerProcess) -> float:
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def url(broker: BrokerProcess, action: str, path: str = "service") -> str:
    return f"ws://{broker.host}:{broker.http_port}/$hc/{path}?sb-hc-action={action}"


@asynccontextmanager
async def joined(
    broker: BrokerProcess, session: aiohttp.ClientSession
) -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, aiohttp.ClientWebSocketResponse]]:
    """A sender's socket and the listener's end of it."""
    async with session.ws_connect(url(broker, "listen")) as control:
        connecting = asyncio.create_task(session.ws_connect(url(broker, "connect"), max_msg_size=0))
        address = (await control.receive_json())["accept"]["address"]
        async with session.ws_connect(address, max_msg_size=0) as listener, await connecting as sender:
            yield sender, listener


async def pump(
    sender: aiohttp.ClientWebSocketResponse, receiver: aiohttp.ClientWebSocketResponse, megabytes: int
) -> float:
    """How many megabytes a second pass."""
    data = bytes(MEGABYTE)

    async def send() -> None:
        for _ in range(megabytes):
            await sender.send_bytes(data)

    began = time.perf_counter()
    sending = asyncio.create_task(send())
    received = 0
    while received < megabytes * MEGABYTE:
        received += len(await receiver.receive_bytes())
    await sending
    return megabytes / (time.perf_counter() - began)


async def test_a_slow_receiver_does_not_grow_the_relay(broker: BrokerProcess, session: aiohttp.ClientSession) -> None:
    async with joined(broker, session) as (sender, listener):
        await pump(sender, listener, 2)
        before = memory_mb(broker)
        assert listener._response.connection is not None
        transport = listener._response.connection.transport
        assert transport is not None
        transport.pause_reading()
        sending = asyncio.create_task(_send_all(sender))
        # Until nothing moves any more, it goes into buffers, of which most are the kernel's.
        await asyncio.sleep(0.5)
        assert not sending.done()
        assert memory_mb(broker) - before < 10
        transport.resume_reading()
        received = 0
        while received < 100 * MEGABYTE:
            received += len(await listener.receive_bytes())
        await sending
        assert memory_mb(broker) - before < 10


async def _send_all(sender: aiohttp.ClientWebSocketResponse) -> None:
    """One message of fifty megabytes, and many of one."""
    await sender.send_bytes(bytes(50 * MEGABYTE))
    for _ in range(50):
        await sender.send_bytes(bytes(MEGABYTE))


async def test_a_socket_has_half_the_throughput_of_a_bare_proxy(
    broker: BrokerProcess, session: aiohttp.ClientSession
) -> None:
    opened: asyncio.Future[web.WebSocketResponse] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        opened.set_result(socket)
        await over.wait()
        return socket

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    proxy_port, server_port = free_ports(2)
    await web.TCPSite(runner, "127.0.0.1", server_port).start()
    command = [sys.executable, "-c", PROXY, str(proxy_port), str(server_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        assert proxy.stdout.readline() == "ready\n"
        try:
            async with (
                joined(broker, session) as (sender, listener),
                session.ws_connect(f"ws://127.0.0.1:{proxy_port}/") as through,
            ):
                server = await opened
                relayed, bare = [], []
                for _ in range(ROUNDS):  # In turns, so that what else the machine does meets both.
                    relayed.append(await pump(sender, listener, ROUND_MEGABYTES))
                    bare.append(await pump(through, server, ROUND_MEGABYTES))  # type: ignore[arg-type]
                over.set()
        finally:
            over.set()
            proxy.kill()
            await runner.cleanup()
    print(f"relayed {[round(each) for each in relayed]}, bare {[round(each) for each in bare]} MB/s")
    assert max(relayed) >= max(bare) / 2


async def test_a_thousand_idle_listeners_take_less_than_a_hundred_megabytes(
    broker: BrokerProcess, session: aiohttp.ClientSession
) -> None:
    before = memory_mb(broker)
    listeners = [
        await session.ws_connect(url(broker, "listen", f"idle-{number // LISTENERS_AT_ONE}"))
        for number in range(IDLE_LISTENERS)
    ]
    print(f"{before:.0f} MB, and with {IDLE_LISTENERS} listeners {memory_mb(broker):.0f} MB")
    assert memory_mb(broker) < 100
    await asyncio.gather(*(listener.close() for listener in listeners))
