"""The REST data plane beside the official client: what one of them sends the other receives, and either can settle."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageLockLostError

from support.broker import BrokerProcess, NewQueue, wait_for
from support.rest import Rest
from support.sdk import Bus, both, nothing_comes, receive, receive_one

pytestmark = pytest.mark.feature("rest")

BODY = bytes(range(256))
ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{kind}Description '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)
INSTANT = datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)


@pytest.fixture(scope="module")
def rest(broker: BrokerProcess) -> Rest:
    return Rest(broker)


async def do(call: Any, *args: Any, **options: Any) -> Any:
    """A request beside the client's own work."""
    return await asyncio.to_thread(call, *args, **options)


def requests(broker: BrokerProcess) -> float:
    """How many requests about messages have begun."""
    return broker.metric("twinbus_rest_requests_total")


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


@both
async def test_what_rest_sends_the_client_receives(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    system = {
        "MessageId": "m-1",
        "Label": "subject",
        "CorrelationId": "c-1",
        "ReplyTo": "replies",
        "ReplyToSessionId": "r-1",
        "To": "somewhere",
        "SessionId": "s-1",
        "PartitionKey": "s-1",
        "TimeToLive": 90,
    }
    headers = {
        "Content-Type": "application/octet-stream",
        "Customer": '"12345,ABC"',
        "Count": "42",
        "Price": "299.98",
        "Paid": "true",
        "Ordered": '"Sun, 06 Nov 1994 08:49:37 GMT"',
    }
    assert (await do(rest.send, queue, BODY, system, **headers)).status == 201
    async with bus.receiver(queue) as receiver:
        message = await receive_one(receiver)
        await receiver.complete_message(message)
    assert b"".join(message.body) == BODY
    properties = {text(name): text(value) for name, value in message.application_properties.items()}
    ordered = properties.pop("Ordered")
    assert properties == {"Customer": "12345,ABC", "Count": 42, "Price": 299.98, "Paid": True}
    assert ordered in (INSTANT, INSTANT.timestamp() * 1000)
    said = (message.message_id, message.subject, message.correlation_id, message.content_type)
    assert said == ("m-1", "subject", "c-1", "application/octet-stream")
    said = (message.reply_to, message.reply_to_session_id, message.to, message.session_id, message.partition_key)
    assert said == ("replies", "r-1", "somewhere", "s-1", "s-1")
    assert message.time_to_live == timedelta(seconds=90)


@both
async def test_what_the_client_sends_rest_receives(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    guid = uuid4()
    message = ServiceBusMessage(
        BODY,
        message_id="m-1",
        subject="größe",
        correlation_id="c-1",
        content_type="text/plain",
        session_id="s-1",
        reply_to="replies",
        reply_to_session_id="r-1",
        to="somewhere",
        time_to_live=timedelta(seconds=90),
        application_properties={
            "text": 'say "hi"',
            "int": 7,
            "float": 0.5,
            "bool": False,
            "guid": guid,
            "when": INSTANT,
            "two words": 1,
            "Content-Length": 3,
        },
    )
    await bus.send(queue, message)
    answer = await do(rest.peek_lock, queue)
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (201, BODY, "text/plain")
    found = answer.broker_properties
    assert {"MessageId": "m-1", "Label": "größe", "CorrelationId": "c-1", "To": "somewhere"}.items() <= found.items()
    assert {"SessionId": "s-1", "ReplyTo": "replies", "ReplyToSessionId": "r-1"}.items() <= found.items()
    assert (found["TimeToLive"], found["DeliveryCount"], found["State"]) == (90, 1, "Active")
    names = ("text", "int", "float", "bool", "guid", "when")
    assert {name: answer.headers[name] for name in names} == {
        "text": '"say \\"hi\\""',
        "int": "7",
        "float": "0.5",
        "bool": "false",
        "guid": f'"{guid}"',
        "when": '"Sun, 06 Nov 1994 08:49:37 GMT"',
    }
    assert "two words" not in answer.headers
    assert answer.headers["Content-Length"] == str(len(BODY))


@both
async def test_bodies_that_only_amqp_has_are_told_as_text_or_json(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        await sender.send_messages(AmqpAnnotatedMessage(value_body="größe"))
        await sender.send_messages(AmqpAnnotatedMessage(value_body={"a": [1, 2.5, None]}))
        await sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, "two"], [True]]))
    bodies = [(await do(rest.receive_delete, queue)).body.decode() for _ in range(3)]
    assert bodies == ["größe", '{"a":[1,2.5,null]}', '[1,"two",true]']


@both
async def test_a_batch_is_sent_whole_or_not_at_all(
    bus: Bus, rest: Rest, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    good = {"Body": "one", "BrokerProperties": {"Label": "M1"}, "UserProperties": {"Priority": "Low", "n": 1}}
    bad = {"Body": "two", "BrokerProperties": {"TimeToLive": "soon"}}
    assert (await do(rest.send_batch, queue, good, bad)).status == 400
    assert broker.count(queue) == 0
    assert (await do(rest.send_batch, queue, good, {"Body": "zwei ü"})).status == 201
    async with bus.receiver(queue) as receiver:
        first, second = await receive(receiver, 2)
    assert (str(first), first.subject, str(second)) == ("one", "M1", "zwei ü")
    properties = {text(name): text(value) for name, value in first.application_properties.items()}
    assert properties == {"Priority": "Low", "n": 1}


@both
async def test_a_lock_outlives_its_request_until_it_is_given_up(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "work")
    locked = await do(rest.peek_lock, queue)
    async with bus.receiver(queue) as receiver:
        assert await nothing_comes(receiver)
        renewed = await do(rest.ask, "POST", locked.location)
        assert (renewed.status, renewed.broker_properties["LockToken"]) == (200, locked.broker_properties["LockToken"])
        assert (await do(rest.ask, "PUT", locked.location)).status == 200
        message = await receive_one(receiver)
        assert message.delivery_count == 1
        for method in ("PUT", "POST", "DELETE"):
            assert (await do(rest.ask, method, locked.location)).status == 404


@both
async def test_a_message_is_completed_by_number_or_by_id(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    for _ in range(2):
        assert (await do(rest.send, queue, b"work", {"MessageId": "a/b ü"})).status == 201
    by_number = await do(rest.peek_lock, queue)
    by_id = await do(rest.peek_lock, queue)
    token = by_id.broker_properties["LockToken"]
    assert (await do(rest.ask, "DELETE", f"/{queue}/messages/other/{token}")).status == 404
    assert (await do(rest.ask, "DELETE", by_number.location)).status == 200
    assert (await do(rest.ask, "DELETE", f"/{queue}/messages/a%2Fb%20%C3%BC/{token}")).status == 200
    assert (await do(rest.receive_delete, queue, 0)).status == 204


@both
async def test_what_the_client_locked_rest_can_complete(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "work")
    async with bus.receiver(queue) as receiver:
        message = await receive_one(receiver)
        address = f"/{queue}/messages/{message.sequence_number}/{UUID(str(message.lock_token))}"
        assert (await do(rest.ask, "DELETE", address)).status == 200
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)


@both
async def test_who_waits_over_rest_is_woken_by_what_the_client_sends(
    bus: Bus, rest: Rest, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    waiting = asyncio.create_task(do(rest.receive_delete, queue, 20))
    await bus.send(queue, ServiceBusMessage("at last"))
    answer = await waiting
    assert (answer.status, answer.body) == (200, b"at last")


async def test_a_client_that_hangs_up_while_it_waits_costs_no_message_and_no_delivery(
    rest: Rest, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    for method in ("POST", "DELETE"):
        before = requests(broker)
        with socket.create_connection((broker.host, broker.http_port)) as waiting:
            head = f"{method} /{queue}/messages/head?timeout=30 HTTP/1.1\r\nHost: {broker.host}\r\n"
            waiting.sendall(f"{head}Authorization: {rest.token()}\r\nContent-Length: 0\r\n\r\n".encode())
            wait_for(partial(lambda known: requests(broker) > known, before), "the request")
    assert rest.send(queue, b"kept").status == 201
    answer = rest.peek_lock(queue)
    assert (answer.body, answer.broker_properties["DeliveryCount"]) == (b"kept", 1)


@both
async def test_dead_letters_are_received_with_their_reason(bus: Bus, rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    await bus.put(queue, "bad")
    async with bus.receiver(queue) as receiver:
        await receiver.dead_letter_message(await receive_one(receiver), reason="Why", error_description="two\nlines")
    answer = await do(rest.peek_lock, f"{queue}/$DeadLetterQueue")
    assert (answer.status, answer.body) == (201, b"bad")
    assert answer.headers["DeadLetterReason"] == '"Why"'
    assert answer.headers["DeadLetterErrorDescription"] == '"two lines"'
    assert (await do(rest.ask, "DELETE", answer.location)).status == 200
    assert (await do(rest.receive_delete, f"{queue}/$deadletterqueue", 0)).status == 204


@both
async def test_a_queue_with_sessions_takes_messages_over_rest_and_gives_none(
    bus: Bus, rest: Rest, new_queue: NewQueue
) -> None:
    queue = new_queue(RequiresSession=True)
    refused = await do(rest.send, queue, b"no session")
    assert (refused.status, b"session" in refused.body) == (400, True)
    assert (await do(rest.send, queue, b"in session", {"SessionId": "s"})).status == 201
    refused = await do(rest.peek_lock, queue)
    assert (refused.status, b"requires sessions" in refused.body) == (400, True)
    async with bus.receiver(queue, session_id="s") as receiver:
        assert str(await receive_one(receiver)) == "in session"


async def test_a_topic_is_sent_to_and_its_subscriptions_are_received_from(rest: Rest, broker: BrokerProcess) -> None:
    for path, kind in (("rest-topic", "Topic"), ("rest-topic/subscriptions/sub", "Subscription")):
        assert broker.request("PUT", f"/{path}?api-version=2021-05", ENTRY.format(kind=kind))[0] == 201
    assert rest.send("REST-Topic", b"to all", None, Priority="7").status == 201
    answer = rest.peek_lock("rest-topic/SUBSCRIPTIONS/sub")
    assert (answer.status, answer.body, answer.headers["Priority"]) == (201, b"to all", "7")
    assert rest.ask("DELETE", answer.location).status == 200
    refused = rest.peek_lock("rest-topic", 0)
    assert (refused.status, b"topic" in refused.body) == (400, True)


async def test_a_scheduled_message_waits(rest: Rest, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    due = {"ScheduledEnqueueTimeUtc": "Sun, 06 Nov 2094 08:49:37 GMT"}
    assert rest.send(queue, b"later", due).status == 201
    assert broker.count(queue, "ScheduledMessageCount") == 1
    assert rest.receive_delete(queue, 0).status == 204


async def test_refusals_are_documents_with_a_tracking_id_that_the_log_has(
    rest: Rest, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    wrong = {"Authorization": rest.token(key="not the key")}
    answers = {
        401: rest.ask("POST", f"/{queue}/messages", b"", wrong),
        410: rest.send("nowhere", b""),
        400: rest.send(queue, b"", None, Priority="High"),
        403: rest.send(queue, b"x" * 300_000),
        404: rest.ask("DELETE", f"/{queue}/messages/1/{uuid4()}"),
        405: rest.ask("GET", f"/{queue}/messages"),
    }
    for status, answer in answers.items():
        assert answer.status == status
        document = answer.body.decode()
        assert document.startswith(f"<Error><Code>{status}</Code><Detail>")
        assert document.partition("TrackingId:")[2][:36] in broker.log


async def test_the_largest_message_fits(rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue()
    body = b"x" * 262_000
    assert rest.send(queue, body).status == 201
    assert rest.receive_delete(queue).body == body


def test_a_broker_that_stops_sends_home_who_waits(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ThreadPoolExecutor(1) as others:
        broker.create_queue("q")
        waiting = others.submit(Rest(broker).peek_lock, "q", 30)
        wait_for(lambda: requests(broker) == 1, "the request")
        assert broker.stop() == 0
        assert waiting.result().status == 503


async def test_a_partitioned_queue_is_looked_through_even_by_who_does_not_wait(rest: Rest, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    sent = {str(number).encode() for number in range(5)}
    for body in sent:
        assert rest.send(queue, body).status == 201
    locked = [rest.peek_lock(queue, 0) for _ in sent]
    assert {answer.body for answer in locked} == sent
    assert [rest.ask("DELETE", answer.location).status for answer in locked] == [200] * 5
    assert rest.receive_delete(queue, 0).status == 204
