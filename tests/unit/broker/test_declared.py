"""Declared entities: the order in which they can be made."""

from __future__ import annotations

from twinbus.broker.declared import destinations_first
from twinbus.model.entity import QueueDescription


def test_a_queue_comes_after_those_that_it_forwards_to() -> None:
    queues = [
        QueueDescription(name="in", forward_to="Middle", forward_dead_letters_to="dead"),
        QueueDescription(name="middle", forward_to="out"),
        QueueDescription(name="out", forward_to="a-topic"),
        QueueDescription(name="dead"),
    ]
    assert [queue.name for queue in destinations_first(queues)] == ["out", "middle", "dead", "in"]


def test_a_ring_is_left_for_others_to_refuse() -> None:
    queues = [QueueDescription(name="a", forward_to="b"), QueueDescription(name="b", forward_to="a")]
    assert {queue.name for queue in destinations_first(queues)} == {"a", "b"}
