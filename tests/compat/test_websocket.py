"""AMQP over WebSocket, plain and with TLS: the official clients, and bytes cut into messages in every way.

What Service Bus does is judged elsewhere; here it is that a WebSocket carries it, refuses what it must, and breaks off
and ends as a socket does.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import websocket
from azure.servicebus import ServiceBusMessage, TransportType

from support import frames, optional
from support.broker import ROOT_POLICY, SOON_S, BrokerProcess, NewQueue
from support.sdk import FLAVOURS, Bus, both, nothing_comes, receive, receive_one, until
from support.websocket import BYTES_MAX, PATH, SUBPROTOCOLS, over_websocket, url
from twinbus.client import Connection, ReceivedMessage, connect
from twinbus.wire import outgoing
from twinbus.wire.sas import make_token

pytest_plugins = ["compat.conftest_admin"]
pytestmark = [
    pytest.mark.feature("websocket"),
    # The official client's own call; aiohttp warns of it.
    pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"),
]

JS = Path(__file__).parent / "js"
HELLO = frames.SASL_HEADER + frames.SASL_INIT + frames.AMQP_HEADER + frames.OPEN + frames.BEGIN
BEGUN = b"\x00\x53\x11"


@pytest.fixture(scope="module")
def broker(admin_endpoint: Any) -> BrokerProcess:
    """A broker that also serves HTTPS."""
    return admin_endpoint.broker


class WebSocketBus(Bus):
    """The official Python client over a WebSocket, plain or with TLS."""

    def __init__(self, flavour: str, endpoint: Any, secure: bool) -> None:
        super().__init__(flavour, endpoint.broker)
        self._options: dict[str, Any] = {"transport_type": TransportType.AmqpOverWebsocket}
        host = f"localhost:{endpoint.broker.http_port}"
        if secure:
            host = endpoint.host
            self.connection_string = endpoint.connection_string()
            self._options["connection_verify"] = str(endpoint.ca_file)
        self._options["custom_endpoint_address"] = f"sb://{host}"

    def client(self, connection_string: str | None = None, **options: Any) -> Any:
        return super().client(connection_string, **self._options, **options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus(admin_endpoint: Any) -> AsyncIterator[list[Bus]]:
    """Both flavours of the client, each plain and with TLS; a test runs with all four."""
    buses = [WebSocketBus(flavour, admin_endpoint, secure) for flavour in FLAVOURS for secure in (False, True)]
    yield buses
    for one in buses:
        await one.closed()


# The official clients


@both
async def test_messages_are_sent_peeked_received_and_completed(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.send(queue, *[ServiceBusMessage(f"m{number}") for number in range(5)])
    async with bus.receiver(queue) as receiver:
        assert [str(message) for message in await receiver.peek_messages(5)] == ["m0", "m1", "m2", "m3", "m4"]
        messages = await receive(receiver, 5)
        assert [str(message) for message in messages] == ["m0", "m1", "m2", "m3", "m4"]
        for message in messages:
            await receiver.complete_message(message)
        assert await nothing_comes(receiver)
        assert await receiver.peek_messages(1) == []


@both
async def test_a_large_message_comes_back_whole(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue()
    body = os.urandom(200 * 1024)
    await bus.send(queue, ServiceBusMessage(body))
    async with bus.receiver(queue) as receiver:
        message = await receive_one(receiver)
        assert b"".join(message.body) == body
        await receiver.complete_message(message)


@both
async def test_a_session_is_accepted_read_and_remembered(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await bus.send(queue, *[ServiceBusMessage(f"m{number}", session_id="s") for number in range(3)])
    async with bus.receiver(queue, session_id="s") as receiver:
        messages = await receive(receiver, 3)
        assert [str(message) for message in messages] == ["m0", "m1", "m2"]
        await receiver.session.set_state(b"half way")
        assert await receiver.session.get_state() == b"half way"
        for message in messages:
            await receiver.complete_message(message)


def test_javascript(admin_endpoint: Any) -> None:
    optional.needs("node")
    broker = admin_endpoint.broker
    http = f"http://{broker.host}:{broker.http_port}"
    environment = {
        **os.environ,
        "TWINBUS_CONNECTION_STRING": admin_endpoint.connection_string(),
        "TWINBUS_HTTP": http,
        "TWINBUS_HTTP_TOKEN": make_token(f"{http}/", ROOT_POLICY, broker.key, int(time.time()) + 3600),
        "NODE_EXTRA_CA_CERTS": str(admin_endpoint.ca_file),
    }
    command = ["node", "--test", "--test-reporter=./report.mjs", "websocket.mjs"]
    run = subprocess.run(command, cwd=JS, env=environment, capture_output=True, text=True, timeout=50, check=False)
    passed = {each["name"]: each["passed"] for each in map(json.loads, run.stdout.splitlines())}
    # A file that runs no test passes as well, so what ran is counted.
    assert len(passed) == (JS / "websocket.mjs").read_text().count("\n  test(") > 0, run.stdout + run.stderr
    assert all(passed.values()), run.stdout + run.stderr


# The upgrade


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize(
    ("offered", "taken"),
    [(["AMQPWSB10"], "AMQPWSB10"), (["amqp"], "amqp"), (["mqtt", "amqp", "AMQPWSB10"], "amqp")],
)
async def test_a_subprotocol_that_is_spoken_is_taken(
    broker: BrokerProcess, http: aiohttp.ClientSession, offered: list[str], taken: str
) -> None:
    async with http.ws_connect(url(broker), protocols=offered, compress=15) as ws:
        assert ws.protocol == taken
        assert ws.compress == 0
        await begun(ws, [HELLO])


@pytest.mark.parametrize("offered", [[], ["mqtt"], ["AMQP"], ["amqpwsb10", "v10.stomp"]])
async def test_without_a_subprotocol_that_is_spoken_it_is_refused_with_a_sentence(
    broker: BrokerProcess, offered: list[str]
) -> None:
    handshake = {
        "Connection": "keep-alive, Upgrade",
        "Upgrade": "WebSocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    if offered:
        handshake["Sec-WebSocket-Protocol"] = ", ".join(offered)
    status, text = broker.request("GET", PATH, headers=handshake)
    assert (status, text) == (400, "The WebSocket must offer the subprotocol AMQPWSB10 or amqp.\n")
    status, text = broker.request("GET", PATH, headers={**handshake, "Sec-WebSocket-Version": "8"})
    assert (status, text) == (426, "Only version 13 of the WebSocket protocol is spoken here.\n")


async def test_an_ordinary_request_is_told_to_upgrade(broker: BrokerProcess, http: aiohttp.ClientSession) -> None:
    async with http.get(url(broker)) as answer:
        assert answer.status == 426
        assert answer.headers["Upgrade"] == "websocket"
        assert "upgrade" in await answer.text()
    async with http.post(url(broker), data=b"x") as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET"


async def test_only_its_own_path_upgrades(broker: BrokerProcess, http: aiohttp.ClientSession) -> None:
    async with http.ws_connect(url(broker, PATH + "/"), protocols=SUBPROTOCOLS) as ws:
        await begun(ws, [HELLO])
    for path in ("/", "/$servicebus", "/$servicebus/websocket/more", "/queue/$servicebus/websocket"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url(broker, path), protocols=SUBPROTOCOLS)
        assert refused.value.status in (400, 401, 404)


# Messages


async def begun(ws: aiohttp.ClientWebSocketResponse, messages: list[bytes]) -> None:
    """Send bytes in these messages; the broker must answer up to its begin."""
    for message in messages:
        await ws.send_bytes(message)
    received = b""
    async with asyncio.timeout(SOON_S):
        while BEGUN not in received:
            received += await ws.receive_bytes()


@pytest.mark.parametrize("cuts", [[1], [len(HELLO)], [7, 1, 0, 30]], ids=["bytes", "one message", "odd pieces"])
async def test_bytes_may_be_cut_anywhere(broker: BrokerProcess, http: aiohttp.ClientSession, cuts: list[int]) -> None:
    messages, rest = [], HELLO
    while rest:
        for size in cuts:
            messages.append(rest[:size])
            rest = rest[size:]
    async with http.ws_connect(url(broker), protocols=SUBPROTOCOLS) as ws:
        await begun(ws, messages)


@pytest.mark.parametrize("piece_bytes", [1, 4096])
async def test_a_message_makes_the_round_trip_in_pieces(
    broker: BrokerProcess, new_queue: NewQueue, piece_bytes: int
) -> None:
    queue = new_queue()
    sent = [outgoing.build(b"body %d" % number * 100, message_id=f"id-{number}") for number in range(20)]
    async with over_websocket(broker, piece_bytes) as (connection, _):
        await (await connection.sender(queue)).send(sent)
        receiver = await connection.receiver(queue)
        messages: list[ReceivedMessage] = []
        while len(messages) < 20:
            more = await receiver.receive(20 - len(messages), SOON_S)
            assert more, f"only {len(messages)} came"
            messages += more
        assert [message.payload[-600:] for message in messages] == [payload[-600:] for payload in sent]
        await receiver.settle(messages)
    assert broker.count(queue) == 0


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[websocket.WebSocket]:
    """A WebSocket whose frames a test can make itself."""
    address = f"ws://{broker.host}:{broker.http_port}{PATH}"
    ws = websocket.create_connection(address, subprotocols=["amqp"], timeout=SOON_S)
    yield ws
    ws.shutdown()  # Its `close` would leave the socket open where the broker closed first.


def read_until_begun(raw: websocket.WebSocket) -> None:
    received = b""
    while BEGUN not in received:
        received += raw.recv()


def test_a_message_may_come_in_fragments_with_pings_between(raw: websocket.WebSocket) -> None:
    frame = websocket.ABNF.create_frame
    raw.send_frame(frame(HELLO[:5], websocket.ABNF.OPCODE_BINARY, fin=0))
    raw.ping(b"first")
    raw.send_frame(frame(HELLO[5:9], websocket.ABNF.OPCODE_CONT, fin=0))
    raw.send_frame(frame(HELLO[9:], websocket.ABNF.OPCODE_CONT, fin=1))
    read_until_begun(raw)


def test_a_ping_is_answered(raw: websocket.WebSocket) -> None:
    raw.ping(b"are you there?")
    opcode, answer = raw.recv_data_frame(control_frame=True)
    assert (opcode, answer.data) == (websocket.ABNF.OPCODE_PONG, b"are you there?")


def closed_with(raw: websocket.WebSocket) -> int:
    """The code in the broker's close frame."""
    while True:
        opcode, frame = raw.recv_data_frame(control_frame=True)
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return int.from_bytes(frame.data[:2], "big")


@pytest.mark.parametrize("text", [b"AMQP\x00\x01\x00\x00", b"\xff\xfe not UTF-8"])
def test_text_is_refused(raw: websocket.WebSocket, text: bytes) -> None:
    raw.send_frame(websocket.ABNF.create_frame(text, websocket.ABNF.OPCODE_TEXT))
    assert closed_with(raw) == 1003


def test_a_message_of_1_mib_is_read(raw: websocket.WebSocket) -> None:
    heartbeats = frames.frame(b"") * (BYTES_MAX // 8)
    raw.send_binary(frames.SASL_HEADER + frames.SASL_INIT + frames.AMQP_HEADER + frames.OPEN)
    raw.send_binary(heartbeats)
    raw.send_binary(frames.BEGIN)
    read_until_begun(raw)


def test_a_larger_message_is_refused_before_it_has_come(raw: websocket.WebSocket) -> None:
    mask = b"\x00" * 4
    raw.sock.sendall(b"\x82\xff" + (BYTES_MAX + 1).to_bytes(8, "big") + mask)
    assert closed_with(raw) == 1009


def test_fragments_of_a_larger_message_are_refused(raw: websocket.WebSocket) -> None:
    namespace = b"\x00" * (BYTES_MAX // 2 + 1)
    raw.send_frame(websocket.ABNF.create_frame(namespace, websocket.ABNF.OPCODE_BINARY, fin=0))
    raw.sock.sendall(b"\x80\xff" + len(namespace).to_bytes(8, "big") + b"\x00" * 4)
    assert closed_with(raw) == 1009


def test_bytes_that_are_not_amqp_are_answered_and_the_websocket_closed(raw: websocket.WebSocket) -> None:
    raw.send_binary(b"GET / HTTP/1.1\r\n\r\n")
    assert raw.recv() == frames.SASL_HEADER
    assert closed_with(raw) == 1000


# Breaking off, slowness, the end


async def hold_one(connection: Connection, queue: str) -> None:
    """Send a message and receive it, so that it is locked."""
    await (await connection.sender(queue)).send([outgoing.build(b"held", message_id="held")])
    assert len(await (await connection.receiver(queue)).receive(1, SOON_S)) == 1


def taken_again(broker: BrokerProcess, queue: str) -> int:
    """Receive the message with another client, and complete it: how many deliveries had been counted."""
    from support import peer

    with peer.connected(broker) as connection:
        receiver = peer.Receiver(connection, queue, credit=1)
        message, delivery = receiver.take()
        receiver.decide(delivery, delivery.ACCEPTED)
        return message.delivery_count


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_connection_that_breaks_off_drops_its_locks(
    broker: BrokerProcess, new_queue: NewQueue, admin_endpoint: Any, secure: bool
) -> None:
    optional.needs("proton")
    queue = new_queue(LockDuration="PT5M")
    tls = ssl.create_default_context(cafile=admin_endpoint.ca_file) if secure else None
    address = f"https://{admin_endpoint.host}{PATH}" if secure else None
    async with over_websocket(broker, tls=tls, address=address) as (connection, carrier):
        await hold_one(connection, queue)
        carrier.abort()
        assert await asyncio.to_thread(taken_again, broker, queue) == 1


async def test_a_websocket_closed_without_an_amqp_close_drops_its_locks(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    optional.needs("proton")
    queue = new_queue(LockDuration="PT5M")
    async with over_websocket(broker) as (connection, carrier):
        await hold_one(connection, queue)
        await carrier.ws.close()
        assert carrier.ws.close_code == 1000
        assert await asyncio.to_thread(taken_again, broker, queue) == 1


async def test_a_connection_closed_politely_keeps_its_locks(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with over_websocket(broker) as (connection, carrier):
        await hold_one(connection, queue)
    assert carrier.ws.close_code == 1000
    async with connect(broker.connection_string()) as connection:
        receiver = await connection.receiver(queue)
        assert await receiver.receive(1, 0.7) == []


async def test_a_peer_that_reads_slowly_is_waited_for_and_still_heard(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue, other, count = new_queue(), new_queue(), 120
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(queue)
        await sender.send([outgoing.build(os.urandom(250_000), message_id=str(number)) for number in range(count)])

    def delivered() -> float:
        return broker.metric("twinbus_messages_delivered_total")

    before = delivered()
    async with over_websocket(broker) as (connection, carrier):
        sender = await connection.sender(other)
        receiver = await connection.receiver(queue, credit=count)
        carrier.may_read.clear()
        seen = before
        await until(lambda: delivered() > before, "the first messages")
        while delivered() != seen:
            seen = delivered()
            await asyncio.sleep(0.5)
        assert seen - before < count * 0.8
        accepted = sender.send_nowait([outgoing.build(b"heard", message_id="heard")])
        await until(lambda: broker.count(other) == 1, "the message that was sent meanwhile")
        assert not accepted.done()
        carrier.may_read.set()
        await accepted
        arrived = 0
        while arrived < count:
            messages = await receiver.receive(count, SOON_S)
            assert messages, f"{arrived} of {count} came"
            await receiver.settle(messages)
            arrived += len(messages)
    assert broker.count(queue) == 0


async def test_a_broker_that_stops_says_goodbye(tmp_path: Path, http: aiohttp.ClientSession) -> None:
    with BrokerProcess(tmp_path) as broker:
        queue = broker.create_queue("queue")
        silent = await http.ws_connect(url(broker), protocols=SUBPROTOCOLS)
        await begun(silent, [HELLO])
        async with over_websocket(broker) as (connection, carrier):
            await connection.receiver(queue)
            assert await asyncio.to_thread(broker.stop) == 0
            await until(lambda: connection.error is not None and carrier.ws.close_code is not None, "the goodbye")
            assert connection.error is not None
            assert connection.error.condition == "amqp:connection:forced"
            assert carrier.ws.close_code == 1000
        assert b"amqp:connection:forced" in await silent.receive_bytes()
        await silent.close()
        assert "Traceback" not in broker.log, broker.log
