"""A sending link with a partitioned queue behind it: outcomes go out as each store has finished, in any order."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.amqp.performatives import ACCEPTED, Rejected
from twinbus.entities.fragments import fragments_of
from twinbus.entities.partitioned import PartitionedQueue
from twinbus.entities.partitions import FRAGMENTS, fragment_of
from twinbus.gateway.ingress import Ingress
from twinbus.model.disturbance import Suffering
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Command, Send
from twinbus.wire import outgoing


class SlowStore:
    """Keeps what it is asked until the test lets it answer."""

    pending_bytes = 0
    is_available = True

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, command: Command) -> None:
        assert isinstance(command, Send)
        self.waiting.append(command)

    def call(self, command: Any) -> Any:
        raise AssertionError("a link does not wait")

    def answer(self, error: BusError | None = None) -> None:
        for command in self.waiting:
            command.error = error
            command.result = [[1] * len(unit) for unit in command.units]
            command.done(command)
        self.waiting.clear()


class Sender:
    """A link and what it was told, in order."""

    def __init__(self, stores: list[SlowStore]) -> None:
        self.outcomes: list[tuple[list[int], Any]] = []
        session = SimpleNamespace(hold=False, settle=lambda ids, state, role: self.outcomes.append((ids, state)))
        link: Any = SimpleNamespace(name="l", session=session, role=None, credit_left=2000, grant=lambda credit: None)
        context = SimpleNamespace(
            clock=SimpleNamespace(now_ms=lambda: 0),
            new_id=lambda: "0" * 32,
            counters=Counter(),
            namespace=SimpleNamespace(suffering=Suffering()),
            refusal=lambda error, path, doing: error,
        )
        self.counters = context.counters
        self.gateway = SimpleNamespace(is_closing=False)
        connection: Any = SimpleNamespace(label="c", context=context, gateway=self.gateway, mark_dirty=lambda: None)
        fragments = fragments_of(1, [index % len(stores) for index in range(FRAGMENTS)], stores)
        queue = PartitionedQueue(1, QueueDescription(name="q", partitioned=True), fragments)
        self.ingress = Ingress(connection, link, queue, "q")

    def send(self, *keys: str) -> None:
        """One read with a delivery for each key, numbered from zero."""
        payloads = [outgoing.build(b"body", message_id=key, partition_key=key) for key in keys]
        self.ingress.received([(number, b"", 0, False, payload) for number, payload in enumerate(payloads)])

    @property
    def accepted(self) -> list[int]:
        return [number for ids, state in self.outcomes if state is ACCEPTED for number in ids]


@pytest.fixture
def stores() -> list[SlowStore]:
    return [SlowStore(), SlowStore()]


def keys_on(store: int, count: int) -> list[str]:
    found = (key for key in map(str, range(1000)) if fragment_of(key) % 2 == store)
    return [next(found) for _ in range(count)]


def test_what_is_durable_is_accepted_while_earlier_deliveries_wait(stores: list[SlowStore]) -> None:
    sender = Sender(stores)
    slow, quick = keys_on(0, 2), keys_on(1, 2)
    sender.send(slow[0], quick[0], slow[1], quick[1])
    assert sender.outcomes == []
    stores[1].answer()
    assert sorted(sender.accepted) == [1, 3]
    stores[0].answer()
    assert sorted(sender.accepted) == [0, 1, 2, 3]
    assert sender.counters["messages_accepted"] == 4


def test_what_one_store_refuses_is_rejected_alone(stores: list[SlowStore]) -> None:
    sender = Sender(stores)
    sender.send(keys_on(0, 1)[0], keys_on(1, 1)[0])
    stores[0].answer(BusError(Fault.STORE_UNAVAILABLE, "the disk failed"))
    ((ids, state),) = sender.outcomes
    assert ids == [0]
    assert isinstance(state, Rejected)
    stores[1].answer()
    assert sender.accepted == [1]


def test_a_key_whose_store_is_down_is_rejected_at_once(stores: list[SlowStore]) -> None:
    sender = Sender(stores)
    stores[0].is_available = False
    sender.send(keys_on(0, 1)[0], keys_on(1, 1)[0])
    ((ids, state),) = sender.outcomes
    assert (ids, isinstance(state, Rejected)) == ([0], True)
    assert len(stores[1].waiting) == 1


def test_a_link_of_a_gateway_that_stops_answers_what_it_has_taken_and_takes_nothing_more() -> None:
    stores = [SlowStore(), SlowStore()]
    sender = Sender(stores)
    assert not sender.ingress.owes_answers
    sender.send(*(f"key-{number}" for number in range(10)))
    sender.gateway.is_closing = True
    stores[0].answer()
    assert sender.ingress.owes_answers
    stores[1].answer(BusError(Fault.SERVER_BUSY, "not now"))
    assert not sender.ingress.owes_answers
    outcomes = list(sender.outcomes)
    sender.send("late")
    assert [*stores[0].waiting, *stores[1].waiting] == []
    assert (sender.outcomes, sender.ingress.owes_answers) == (outcomes, False)
