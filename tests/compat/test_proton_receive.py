"""Receiving with a plain AMQP client: settle modes, every outcome, credit, drain.

What the outcomes mean to Service Bus is in the wire contract; here stands that a client without its SDK gets by.
"""

from __future__ import annotations

import pytest
from proton import Delivery, Described, Link, Message, symbol, ulong
from proton.reactor import Filter
from proton.utils import BlockingConnection

from support.broker import BrokerProcess, NewQueue, wait_for
from support.peer import Modes, Receiver, connected, pump, pump_until, put

SESSION = symbol("com.microsoft:session-filter")
SESSION_CODE = ulong(0x137000000C)


def send(connection: BlockingConnection, queue: str, *bodies: str) -> None:
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body))
    sender.close()


def is_empty(broker: BrokerProcess, queue: str) -> bool:
    return broker.queue(queue)["MessageCount"] == "0"


@pytest.mark.feature("amqp-settle-modes")
def test_first_mode_is_settled_by_the_receiver_alone(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=1, options=Modes(Link.SND_UNSETTLED, Link.RCV_FIRST))
        message, delivery = receiver.take()
        assert message.body == "m"
        assert not delivery.settled
        assert broker.count(queue) == 1
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        pump_until(connection, lambda: is_empty(broker, queue), "completion")


@pytest.mark.feature("amqp-settle-modes")
def test_second_mode_is_settled_by_the_broker_after_the_commit(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=1, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        _, delivery = receiver.take()
        delivery.update(Delivery.ACCEPTED)
        pump_until(connection, lambda: delivery.settled, "the broker's settlement")
        assert delivery.remote_state == Delivery.ACCEPTED
        assert is_empty(broker, queue)
        delivery.settle()


@pytest.mark.feature("amqp-settle-modes")
def test_a_settled_link_receives_and_deletes(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
        _, delivery = receiver.take()
        assert delivery.settled
        assert is_empty(broker, queue)


@pytest.mark.feature("amqp-outcomes")
def test_released_does_not_count_and_modified_does(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=10, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        for outcome, count in ((Delivery.RELEASED, 0), (Delivery.RELEASED, 0), (Delivery.MODIFIED, 0)):
            message, delivery = receiver.take()
            assert message.delivery_count == count
            delivery.local.failed = outcome == Delivery.MODIFIED
            receiver.decide(delivery, outcome)
            assert delivery.remote_state == outcome
        message, delivery = receiver.take()
        assert message.delivery_count == 1
        receiver.decide(delivery, Delivery.ACCEPTED)
    assert is_empty(broker, queue)


@pytest.mark.feature("amqp-outcomes")
def test_abandon_with_annotations_changes_application_properties(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        connection.create_sender(queue).send(Message(body="m", properties={"kept": 1, "changed": "old"}))
        receiver = Receiver(connection, queue, credit=5, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        _, delivery = receiver.take()
        delivery.local.annotations = {symbol("changed"): "new", symbol("added"): True}
        receiver.decide(delivery, Delivery.MODIFIED)
        message, delivery = receiver.take()
        assert message.properties == {"kept": 1, "changed": "new", "added": True}
        assert message.body == "m"
        receiver.decide(delivery, Delivery.ACCEPTED)


@pytest.mark.feature("amqp-outcomes")
def test_undeliverable_here_defers_the_message(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=5, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        _, delivery = receiver.take()
        delivery.local.undeliverable = True
        receiver.decide(delivery, Delivery.MODIFIED)
        pump(connection, 0.5)
        assert not receiver.arrived
    assert broker.queue(queue)["MessageCount"] == "1"
    assert broker.count(queue, "DeadLetterMessageCount") == 0


@pytest.mark.feature("amqp-outcomes")
def test_rejected_dead_letters_the_message(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=1, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        _, delivery = receiver.take()
        receiver.decide(delivery, Delivery.REJECTED)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition is None, "an error inside the echo would mean failure"
        dead = Receiver(connection, f"{queue}/$DeadLetterQueue", credit=1)
        message, delivery = dead.take()
        assert message.body == "m"
        dead.decide(delivery, Delivery.ACCEPTED)
    assert is_empty(broker, queue)


@pytest.mark.feature("amqp-outcomes")
def test_a_late_outcome_is_answered_with_lock_lost_on_the_link(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, "m")
        receiver = Receiver(connection, queue, credit=1, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        _, delivery = receiver.take()
        broker.update_queue(queue, LockDuration="PT1M")
        receiver.decide(delivery, Delivery.ACCEPTED)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "com.microsoft:message-lock-lost"
        assert broker.refusals(queue)[-1].tracking_id in delivery.remote.condition.description
    assert broker.count(queue) == 1


@pytest.mark.feature("amqp-credit")
def test_no_more_than_the_credit_is_sent(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, *"abcde")
        receiver = Receiver(connection, queue, options=Modes(snd=Link.SND_SETTLED))
        pump(connection, 0.4)
        assert not receiver.arrived
        receiver.link.flow(2)
        pump(connection, 0.5)
        assert [message.body for message, _ in receiver.arrived] == ["a", "b"]
        assert broker.count(queue) == 3
        receiver.link.flow(10)
        pump_until(connection, lambda: len(receiver.arrived) == 5, "the rest")
        # The credit that is left serves a message that comes later.
        send(connection, queue, "f")
        pump_until(connection, lambda: len(receiver.arrived) == 6, "the late one")


@pytest.mark.feature("amqp-drain")
@pytest.mark.parametrize("waiting", [0, 3])
def test_drain_sends_what_is_there_and_uses_up_the_rest_of_the_credit(
    broker: BrokerProcess, new_queue: NewQueue, waiting: int
) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        send(connection, queue, *["m"] * waiting)
        receiver = Receiver(connection, queue, options=Modes(snd=Link.SND_SETTLED))
        receiver.link.drain(10)
        pump_until(connection, lambda: not receiver.link.draining(), "the end of the drain")
        assert len(receiver.arrived) == waiting
        assert receiver.link.credit == 0
        send(connection, queue, "late")
        pump(connection, 0.4)
        assert len(receiver.arrived) == waiting
        receiver.link.drain_mode = False
        receiver.link.flow(1)
        pump_until(connection, lambda: len(receiver.arrived) == waiting + 1, "the late one")


@pytest.mark.feature("amqp-drain")
def test_drain_sends_all_that_is_there_however_much(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    with connected(broker) as connection:
        sender = connection.create_sender(queue)
        pump_until(connection, lambda: sender.link.credit >= 700, "credit")
        deliveries = [sender.link.send(Message(body=number)) for number in range(700)]
        pump_until(connection, lambda: all(delivery.settled for delivery in deliveries), "outcomes")
        receiver = Receiver(connection, queue, options=Modes(snd=Link.SND_SETTLED))
        receiver.link.drain(1000)
        pump_until(connection, lambda: not receiver.link.draining(), "the end of the drain")
        assert [message.body for message, _ in receiver.arrived] == list(range(700))
        assert receiver.link.credit == 0


@pytest.mark.feature("lock-lost")
def test_a_detached_link_keeps_locks_and_a_connection_broken_off_does_not(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    with connected(broker) as other:
        with connected(broker) as connection:
            send(connection, queue, "m")
            receiver = Receiver(connection, queue, credit=1)
            receiver.take()
            receiver.link.close()
            pump(connection, 0.3)
            waiting = Receiver(other, queue, credit=1)
            pump(other, 0.5)
            assert not waiting.arrived
        # Closed politely: the lock stays until it expires, or the settings change.
        pump(other, 0.5)
        assert not waiting.arrived
        broker.update_queue(queue, LockDuration="PT50S")
        message, delivery = waiting.take()
        assert message.delivery_count == 1
        waiting.decide(delivery, Delivery.ACCEPTED)
    wait_for(lambda: is_empty(broker, queue), "completion")


@pytest.mark.feature("sessions")
@pytest.mark.parametrize(
    ("asked", "granted"),
    [("one", "one"), (None, "one"), (Described(SESSION_CODE, "one"), Described(SESSION_CODE, "one")),
     (Described(SESSION_CODE, None), Described(SESSION_CODE, "one"))],
    ids=["by name", "the next", "by name, described", "the next, described"],
)  # fmt: skip
def test_a_session_is_granted_in_the_form_in_which_it_was_asked_for(
    broker: BrokerProcess, new_queue: NewQueue, asked: object, granted: object
) -> None:
    """The Go client describes its filter, and ends its connection when what comes back is not described."""
    queue = new_queue(RequiresSession=True)
    put(broker, queue, ["m"], session_id="one")
    with connected(broker) as connection:
        receiver = Receiver(connection, queue, credit=1, options=[Filter({SESSION: asked}), Modes(Link.SND_UNSETTLED)])
        answer = receiver.link.remote_source.filter
        answer.rewind()
        answer.next()
        assert answer.get_object() == {SESSION: granted}
        assert receiver.take_bytes() == b"m"
