"""The load that measurements use, against a peer that keeps what it gets in one queue."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from twinbus.client import load
from twinbus.client.load import Figures, Load, Place
from twinbus.wire import message


class Queue:
    """Makes of the peer a broker with one queue: what is sent is delivered to whoever has credit."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.waiting: deque[bytes] = deque()
        self.completed = 0
        self._take, self._confirm = peer.take, peer.confirm
        peer.take, peer.confirm = self.take, self.confirm
        self._flush = peer.flush
        peer.flush = self.flush

    def take(self, link: Any, items: list[Any]) -> None:
        self._take(link, items)
        self.waiting.extend(item[4] for item in items)

    def confirm(self, link: Any, items: list[Any]) -> None:
        self._confirm(link, items)
        self.completed += len(items)

    def flush(self) -> None:
        link = self.peer.links.get("orders out")
        while self.waiting and link is not None and link.sendable:
            link.transfer(b"tag of 16 bytes.", self.waiting.popleft(), False)
        self._flush()


@pytest.fixture
def queue(peer: Any) -> Queue:
    return Queue(peer)


@pytest.fixture
def place(peer: Any, open_connection: Any) -> Place:
    return Place(open_connection, "orders")


def test_messages_are_durable_and_each_has_its_own_id() -> None:
    make = load.template(100)
    read = [message.read(make(number), 0, ttl_ceiling_ms=None, new_id=str) for number in range(3)]
    assert len({unit[0].message_id for unit in read}) == 3
    assert all(len(unit[0].message_id) == 32 for unit in read)
    assert make(0).startswith(b"\x00\x53\x70\xc0\x02\x01\x41")


@pytest.mark.parametrize("messages", [1, 9, 10, 95])
async def test_sending_counts_every_message_once(place: Place, queue: Queue, messages: int) -> None:
    advanced: list[int] = []
    figures = await load.send(place, Load(messages, 10, window=20), advanced.append)
    assert len(queue.waiting) == messages == figures.messages
    assert figures.per_s > 0
    assert len(figures.latencies_ms) == -(-messages // 10)
    assert sum(advanced) >= messages


async def test_sending_one_by_one_takes_the_time_of_each(place: Place, queue: Queue) -> None:
    figures = await load.send_one_by_one(place, Load(7, 10), lambda count: None)
    assert figures.messages == len(figures.latencies_ms) == len(queue.waiting) == 7


class OneConnection:
    """Both ends of a load over the peer's only connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def __call__(self) -> OneConnection:
        return self

    async def __aenter__(self) -> Any:
        return self.connection

    async def __aexit__(self, *problem: object) -> None:
        pass


async def test_receiving_takes_no_more_than_asked_for(open_connection: Any, queue: Queue) -> None:
    queue.waiting.extend(load.template(10)(number) for number in range(60))
    async with open_connection() as connection:
        figures = await load.receive(Place(OneConnection(connection), "orders"), Load(50, 10, window=20), print)
        assert queue.completed == figures.messages == 50


async def test_both_at_once_completes_what_it_sends(open_connection: Any, queue: Queue) -> None:
    async with open_connection() as connection:
        figures = await load.both(Place(OneConnection(connection), "orders"), Load(50, 10, window=20), print)
        assert queue.completed == figures.messages == 50
        assert not queue.waiting


async def test_somebody_elses_messages_are_given_back(place: Place, queue: Queue) -> None:
    queue.waiting.append(b"not ours")
    with pytest.raises(load.NotEmptyError, match="give the benchmark a queue of its own"):
        await load.check_empty(place)


def test_percentiles_are_taken_from_the_ordered_times() -> None:
    figures = Figures(100, 2.0, 0.5, latencies_ms=[float(number) for number in reversed(range(1, 101))])
    assert (figures.percentile_ms(50), figures.percentile_ms(99)) == (51.0, 100.0)
    assert (figures.per_s, figures.client_share) == (50.0, 0.25)
    assert Figures().percentile_ms(50) == 0.0
