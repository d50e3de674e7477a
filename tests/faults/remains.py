"""What is left in a broker, told by the official client: where each message is, and that the counts agree.

Looks first and then empties the queues; judging what was found is `history`'s business.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)

from faults.history import Place
from faults.load import body_of
from support.broker import BrokerProcess

PAGE = 250
STATES = {ServiceBusMessageState.ACTIVE: Place.QUEUE, ServiceBusMessageState.DEFERRED: Place.DEFERRED}


def peeked(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Everything that a queue shows."""
    seen: list[ServiceBusReceivedMessage] = []
    start = 1
    while page := receiver.peek_messages(max_message_count=PAGE, sequence_number=start):
        seen += page
        assert page[-1].sequence_number is not None
        start = page[-1].sequence_number + 1
    return seen


def drained(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """The ids of so many messages, received and deleted."""
    got: list[str] = []
    while len(got) < count:
        page = receiver.receive_messages(max_message_count=count - len(got), max_wait_time=30)
        assert page, f"only {len(got)} of {count} messages came"
        got += [str(message.message_id) for message in page]
    return got


def same(left: object, right: object, what: str) -> None:
    assert left == right, f"{what}: {left} and {right}"


def look(broker: BrokerProcess, queue: str) -> dict[Place, list[str]]:
    """Where each message of a queue is; counts, peek and receive must tell the same. The queue is empty then."""
    found: dict[Place, list[str]] = {Place.QUEUE: [], Place.DEFERRED: [], Place.DEAD: []}
    deleting = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_receiver(queue, receive_mode=deleting) as receiver:
            for message in peeked(receiver):
                check_body(message)
                found[STATES[message.state]].append(str(message.message_id))
            counts = broker.queue(queue)
            same(drained(receiver, len(found[Place.QUEUE])), found[Place.QUEUE], f"messages from {queue}")
        with client.get_queue_receiver(
            queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=deleting
        ) as receiver:
            found[Place.DEAD] = [str(message.message_id) for message in peeked(receiver)]
            same(drained(receiver, len(found[Place.DEAD])), found[Place.DEAD], f"dead letters from {queue}")
    deferred = len(found[Place.DEFERRED])  # Counted among the active ones, as the service does.
    active = len(found[Place.QUEUE]) + deferred
    same(int(counts["ActiveMessageCount"]), active, f"active messages in {queue}")
    same(int(counts["DeadLetterMessageCount"]), len(found[Place.DEAD]), f"dead letters of {queue}")
    same(broker.count(queue, "ActiveMessageCount"), deferred, f"active messages in {queue} afterwards")
    same(broker.count(queue, "DeadLetterMessageCount"), 0, f"dead letters of {queue} afterwards")
    return found


def look_at_session(broker: BrokerProcess, queue: str, session: str) -> list[str]:
    """The ids of all messages of a session, in order; it is empty then."""
    deleting = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
        client.get_queue_receiver(queue, session_id=session, receive_mode=deleting) as receiver,
    ):
        seen = [str(message.message_id) for message in peeked(receiver)]
        same(drained(receiver, len(seen)), seen, f"messages of session {session}")
    numbers = [int(message_id.rpartition(":")[2]) for message_id in seen]
    same(numbers, sorted(numbers), f"the order of session {session}")
    return seen


def look_at_all(
    broker: BrokerProcess, plain: list[str], with_sessions: str, sessions: list[str]
) -> dict[str, dict[Place, list[str]]]:
    """What is left in each queue; all at once, because the client takes a second to close a receiver."""
    active = broker.count(with_sessions)
    with ThreadPoolExecutor(len(plain) + len(sessions)) as pool:
        in_sessions = pool.map(partial(look_at_session, broker, with_sessions), sessions)
        found = dict(zip(plain, pool.map(partial(look, broker), plain), strict=True))
        found[with_sessions] = {Place.QUEUE: [message_id for ids in in_sessions for message_id in ids]}
    same(active, len(found[with_sessions][Place.QUEUE]), f"active messages in {with_sessions}")
    same(broker.count(with_sessions), 0, f"active messages in {with_sessions} afterwards")
    return found


def check_body(message: ServiceBusReceivedMessage) -> None:
    """A message must hold what it was sent with."""
    assert b"".join(message.body) == body_of(str(message.message_id)), message.message_id
