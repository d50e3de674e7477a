"""`$management` by hand, with a plain AMQP client: what the official client never asks, or only rightly.

Its ordinary use is judged by the official clients themselves.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Link, Message, int32, timestamp, ulong
from proton.utils import BlockingConnection

from support.broker import BrokerProcess, NewQueue
from support.peer import Modes, Receiver, connected, put


class Management:
    """Requests to a queue's management node, and their answers."""

    def __init__(self, connection: BlockingConnection, queue: str) -> None:
        address = f"{queue}/$management"
        self.replies = Receiver(connection, address, credit=100)
        self.requests = connection.create_sender(address)

    def send(self, operation: str, body: Any, message_id: Any = "the request") -> None:
        properties = {"operation": f"com.microsoft:{operation}"}
        reply_to = self.replies.link.name
        self.requests.send(Message(id=message_id, reply_to=reply_to, properties=properties, body=body))

    def answer(self) -> Message:
        return self.replies.take()[0]

    def ask(self, operation: str, body: Any) -> tuple[int, Any]:
        """The status, and the body or the condition."""
        self.send(operation, body)
        answer = self.answer()
        assert answer.correlation_id == "the request"
        status = answer.properties["statusCode"]
        return status, answer.body if status < 300 else str(answer.properties["errorCondition"])


def tokens(*values: uuid.UUID) -> Array:
    return Array(UNDESCRIBED, Data.UUID, *values)


@pytest.mark.feature("batch-delete")
def test_batch_delete_removes_the_oldest_and_spares_the_locked(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    put(broker, queue, "abcdef")
    with connected(broker) as connection:
        holder = Receiver(connection, queue, credit=1, options=Modes(Link.SND_UNSETTLED, Link.RCV_SECOND))
        assert holder.take_bytes() == b"a"
        management = Management(connection, queue)
        now = timestamp(int(time.time() * 1000) + 1000)
        before = timestamp(int(time.time() * 1000) - 60_000)
        request = {"message-count": int32(2), "enqueued-time-utc": before}
        assert management.ask("batch-delete-messages", request)[0] in (200, 204)
        assert broker.count(queue) == 6
        status, body = management.ask("batch-delete-messages", {**request, "enqueued-time-utc": now})
        assert (status, body) == (200, {"message-count": 2})
        receiver = Receiver(connection, queue, credit=10, options=Modes(snd=Link.SND_SETTLED))
        assert [receiver.take_bytes() for _ in range(3)] == [b"d", b"e", b"f"]
    assert broker.count(queue) == 1


@pytest.mark.feature("management-errors")
def test_requests_that_cannot_be_carried_out_are_answered_and_the_link_goes_on(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    lost = uuid.uuid4()
    with connected(broker) as connection:
        management = Management(connection, queue)
        answers = {
            operation: management.ask(operation, body)
            for operation, body in {
                "no-such-operation": {},
                "renew-lock": {"lock-tokens": tokens(lost)},
                "update-disposition": {"disposition-status": "completed", "lock-tokens": tokens(lost)},
                "peek-message": {"message-count": "many"},
                "receive-by-sequence-number": {"sequence-numbers": "no list"},
                "cancel-scheduled-message": {"sequence-numbers": Array(UNDESCRIBED, Data.LONG, 99)},
                "renew-session-lock": {"session-id": "of a queue without sessions"},
            }.items()
        }
        assert answers["no-such-operation"] == (501, "amqp:not-implemented")
        assert answers["renew-lock"] == (410, "com.microsoft:message-lock-lost")
        assert answers["update-disposition"] == (410, "com.microsoft:message-lock-lost")
        assert answers["cancel-scheduled-message"] == (404, "com.microsoft:message-not-found")
        for operation in ("peek-message", "receive-by-sequence-number"):
            assert answers[operation] == (400, "com.microsoft:argument-error")
        assert answers["renew-session-lock"][0] in (400, 410)
        put(broker, queue, "m")
        peek = {"from-sequence-number": 0, "message-count": int32(1)}
        status, body = management.ask("peek-message", peek)
        assert (status, len(body["messages"])) == (200, 1)


@pytest.mark.feature("management-errors")
def test_pipelined_requests_are_answered_under_their_own_ids(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    put(broker, queue, "m")
    ids = ["text", ulong(7), uuid.uuid4()]
    peek = {"from-sequence-number": 0, "message-count": int32(1)}
    with connected(broker) as connection:
        management = Management(connection, queue)
        for message_id in ids:
            management.send("peek-message", peek, message_id)
        answered = [management.answer().correlation_id for _ in ids]
    assert answered == ids
