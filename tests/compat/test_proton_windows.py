"""Receive and delete, with frames written by hand: nothing is deleted that the client's window does not let through.

A broker removes a message before it sends it, so that whatever it removes ahead of the window is lost with the
connection. The client here says how many frames it takes, and reads when it likes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from support import queues
from support.broker import BrokerProcess, NewQueue, wait_for
from support.frames import TIMEOUT_S, RawConnection, Receiver, flow, receiving
from support.gateways import ON_POSTGRES
from support.websocket import SUBPROTOCOLS, url
from twinbus.client.messages import build

PLENTY = 100_000
BIG = 60_000
RECEIVE_BYTES = 65_536


class Reader:
    """A receiver on a socket."""

    def __init__(self, connection: RawConnection, receiver: Receiver) -> None:
        self.connection = connection
        self.receiver = receiver

    def write(self, data: bytes) -> None:
        self.connection.write(data)

    def read_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            data = self.connection.socket.recv(65_536)
            assert data, "the broker closed the connection"
            self.receiver.put(data)

    def ask(self, flow_frame: bytes) -> None:
        """Send a flow and wait for its answer: what it leads to is then with the store, in front of any count."""
        self.write(flow_frame)
        self.read_until(self.receiver.answered)


@contextmanager
def reading(
    broker: BrokerProcess, *addresses: str, window: int, max_frame_size: int = 65_536, settled: bool = True
) -> Iterator[Reader]:
    """A session with one link for each address, without credit."""
    receiver = Receiver(broker, window=window, max_frame_size=max_frame_size)
    with RawConnection(broker) as connection:
        reader = Reader(connection, receiver)
        attaches = [receiving(number, address, settled=settled) for number, address in enumerate(addresses)]
        reader.write(receiver.hello + b"".join(attaches))
        reader.read_until(lambda: receiver.codes.count(0x12) == len(addresses))
        yield reader


@pytest.mark.feature("amqp-windows")
def test_a_closed_window_lets_nothing_be_deleted_and_an_open_one_what_it_takes(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    queues.put(broker, queue, queues.numbered(3_000))
    with reading(broker, queue, window=0) as reader:
        reader.ask(flow(0, 0, link=0, credit=2_000))
        assert broker.count(queue) == 3_000
        reader.ask(flow(0, 5))
        reader.read_until(lambda: reader.receiver.transfers == 5)
        assert broker.count(queue) == 2_995
        reader.ask(flow(5, 700))
        reader.read_until(lambda: reader.receiver.transfers == 705)
        wait_for(lambda: broker.count(queue) == 2_295, "what was sent to be gone")
    assert broker.count(queue) == 2_295


@pytest.mark.feature("amqp-windows")
def test_a_closed_window_lets_nothing_be_locked(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    queues.put(broker, queue, queues.numbered(20))
    with reading(broker, queue, window=0, settled=False) as reader, reading(broker, queue, window=50) as other:
        reader.ask(flow(0, 0, link=0, credit=10))
        other.ask(flow(0, 50, link=0, credit=20))
        other.read_until(lambda: other.receiver.transfers == 20)


@pytest.mark.feature("amqp-windows")
def test_of_messages_in_several_frames_only_those_are_deleted_that_have_begun_to_leave(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    queues.put(broker, queue, [build(bytes(2_000), message_id=str(number)) for number in range(20)])
    with reading(broker, queue, window=0, max_frame_size=512) as reader:
        reader.ask(flow(0, 3, link=0, credit=20))
        reader.read_until(lambda: reader.receiver.transfers == 3)
        assert broker.count(queue) == 19
        assert reader.receiver.whole == 0
        reader.ask(flow(3, 40))
        reader.read_until(lambda: reader.receiver.transfers == 43)
        assert reader.receiver.whole == 8, "each has five frames"
        assert broker.count(queue) == 20 - 9
        seen = 43
        while reader.receiver.whole < 20:
            reader.ask(flow(seen, 10))
            seen = reader.receiver.transfers
    assert broker.count(queue) == 0


@pytest.mark.feature("amqp-windows")
def test_links_of_one_session_share_its_window(broker: BrokerProcess, new_queue: NewQueue) -> None:
    first, second, third = new_queue(), new_queue(), new_queue()
    for queue in (first, second):
        queues.put(broker, queue, queues.numbered(50))
    with reading(broker, first, second, third, window=0) as reader:
        for link in range(3):
            reader.ask(flow(0, 0, link=link, credit=50))
        seen = 0
        while seen < 100:
            reader.ask(flow(seen, 4))
            seen = min(seen + 4, 100)
            reader.read_until(lambda seen=seen: reader.receiver.transfers == seen)  # type: ignore[misc]
            assert broker.count(first) + broker.count(second) == 100 - seen
        # The third had nothing, and has not taken the others' share for good.
        queues.put(broker, third, queues.numbered(3))
        reader.ask(flow(100, 3))
        reader.read_until(lambda: reader.receiver.transfers == 103)


@pytest.mark.feature("amqp-windows")
def test_a_drain_waits_for_the_window_and_tells_no_end_before_it(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    queues.put(broker, queue, queues.numbered(3))
    with reading(broker, queue, window=0) as reader:
        reader.write(flow(0, 0, link=0, credit=10, drain=True))
        reader.ask(flow(0, 0))
        assert broker.count(queue) == 3
        reader.ask(flow(0, 2))
        reader.read_until(lambda: reader.receiver.transfers == 2)
        reader.receiver.codes.clear()
        reader.write(flow(2, 10))
        codes = reader.receiver.codes  # Its own answer, the message, and the answer to the drain; perhaps in one piece.
        reader.read_until(lambda: codes.count(0x13) == 2)
        assert (reader.receiver.transfers, codes[-1]) == (3, 0x13)
    assert broker.count(queue) == 0


@pytest.mark.feature("amqp-windows")
def test_who_does_not_read_loses_no_more_than_is_on_its_way_to_him(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    count = 500
    for _ in range(10):
        queues.put(broker, queue, [build(bytes(BIG)) for _ in range(count // 10)])
    with reading(broker, *[queue] * 12, window=PLENTY) as reader:
        reader.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        reader.write(b"".join(flow(0, PLENTY, link=link, credit=count) for link in range(12)))
        left = _settled_count(broker, queue)
        on_its_way = (count - left) * BIG
        # What the two sockets hold, and the broker's own buffer of 1 MiB, with one message more for each link.
        # A balancer in front of gateways has buffers of its own.
        assert ON_POSTGRES or on_its_way < _socket_bytes() + 1024 * 1024 + 12 * BIG, f"{on_its_way} bytes were deleted"
        reader.read_until(lambda: reader.receiver.whole == count)
    assert broker.count(queue) == 0


def _settled_count(broker: BrokerProcess, queue: str) -> int:
    """The count when it has stopped changing."""
    counts = [-1, broker.count(queue)]

    def is_settled() -> bool:
        counts.append(broker.count(queue))
        return len(set(counts[-8:])) == 1

    wait_for(is_settled, "the broker to stop", interval_s=0.1)
    return counts[-1]


def _socket_bytes() -> int:
    """The most that the broker's end of a connection holds, and twice what this end was told to, as the system does."""
    sizes = Path("/proc/sys/net/ipv4/tcp_wmem").read_text()
    return int(sizes.split()[-1]) + 2 * RECEIVE_BYTES


@pytest.mark.feature("amqp-windows")
async def test_a_window_counts_over_a_websocket_too(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    queues.put(broker, queue, queues.numbered(500))
    receiver = Receiver(broker, window=0)
    async with aiohttp.ClientSession() as http, http.ws_connect(url(broker), protocols=SUBPROTOCOLS) as ws:

        async def ask(data: bytes, condition: Callable[[], bool]) -> None:
            await ws.send_bytes(data)
            while not condition():
                receiver.put(await ws.receive_bytes(timeout=TIMEOUT_S))

        await ask(receiver.hello + receiving(0, queue, settled=True), lambda: 0x12 in receiver.codes)
        await ask(flow(0, 0, link=0, credit=400), receiver.answered)
        assert broker.count(queue) == 500
        await ask(flow(0, 7), lambda: receiver.transfers == 7)
        assert broker.count(queue) == 493
