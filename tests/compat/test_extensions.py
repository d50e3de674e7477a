"""What goes beyond Service Bus, seen with the official client: purge, redrive, reset, delays, a moved clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError

from support.broker import SOON_S, BrokerProcess, NewQueue, wait_for

DELAY = "x-twinbus-abandon-delay"
DEAD = ServiceBusSubQueue.DEAD_LETTER
Api = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = '[[queues]]\nName = "declared"\n'
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config, options=("--test-clock",)) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log, process.log[-8000:]


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> ServiceBusClient:
    """Not closed politely, which takes the client a second for each sender and receiver."""
    return ServiceBusClient.from_connection_string(broker.connection_string())


@pytest.fixture
def api(broker: BrokerProcess) -> Api:
    def ask(path: str, expected: int = 200, **body: Any) -> dict[str, Any]:
        status, text = broker.request("POST", f"/$api/{path}", json.dumps(body))
        assert status == expected, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    return ask


@pytest.fixture
def advance(api: Api) -> Callable[[str], None]:
    return lambda duration: api("clock", advance=duration) and None


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    sender = client.get_queue_sender(queue)
    sender.send_messages(list(messages))


def receive(receiver: ServiceBusReceiver, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        page = receiver.receive_messages(max_message_count=count - len(found), max_wait_time=SOON_S)
        assert page, f"only {len(found)} of {count} came"
        found += page
    return found


def bury(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage, reason: str = "test") -> None:
    """Have messages die."""
    send(client, queue, *messages)
    receiver = client.get_queue_receiver(queue)
    for message in receive(receiver, len(messages)):
        receiver.dead_letter_message(message, reason=reason, error_description=f"it is {message.message_id}")


def peeked(client: ServiceBusClient, queue: str, **options: Any) -> list[Any]:
    return client.get_queue_receiver(queue, **options).peek_messages(max_message_count=100)


def ids(messages: list[Any]) -> list[str]:
    return [message.message_id for message in messages]


@pytest.mark.feature("extension: purge")
class TestPurge:
    def test_everything_goes_but_what_is_locked(
        self, broker: BrokerProcess, client: ServiceBusClient, new_queue: NewQueue, api: Api
    ) -> None:
        queue = new_queue()
        send(client, queue, *(ServiceBusMessage("x", message_id=f"m{n}") for n in range(5)))
        later = ServiceBusMessage("x", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(days=1))
        send(client, queue, later)
        receiver = client.get_queue_receiver(queue)
        locked, deferred = receive(receiver, 2)
        receiver.defer_message(deferred)
        assert api("purge", entity=queue) == {"removed": 5}
        assert ids(peeked(client, queue)) == [locked.message_id]
        receiver.complete_message(locked)
        assert broker.count(queue) == broker.count(queue, "ScheduledMessageCount") == 0

    def test_dead_letters_alone(self, client: ServiceBusClient, new_queue: NewQueue, api: Api) -> None:
        queue = new_queue()
        bury(client, queue, ServiceBusMessage("x"), ServiceBusMessage("y"))
        send(client, queue, ServiceBusMessage("stays"))
        assert api("purge", entity=queue, sub_queue="dead-letter") == {"removed": 2}
        assert len(peeked(client, queue)) == 1

    def test_all_fragments(
        self, broker: BrokerProcess, client: ServiceBusClient, new_queue: NewQueue, api: Api
    ) -> None:
        queue = new_queue(EnablePartitioning=True)
        send(client, queue, *(ServiceBusMessage("x", partition_key="k") for _ in range(3)))
        for key in range(5):
            send(client, queue, ServiceBusMessage("x", partition_key=str(key)))
        assert api("purge", entity=queue) == {"removed": 8}
        assert broker.count(queue) == 0

    def test_what_is_not_there_is_told(self, api: Api) -> None:
        assert api("purge", 404, entity="nowhere")["error"]["code"] == "entity-not-found"


@pytest.mark.feature("extension: redrive")
class TestRedrive:
    def test_dead_letters_come_back_as_new_messages(
        self, client: ServiceBusClient, new_queue: NewQueue, api: Api
    ) -> None:
        queue = new_queue()
        properties: dict[str | bytes, Any] = {"colour": "red", "n": 5}
        bury(client, queue, ServiceBusMessage("body", message_id="m", application_properties=properties))
        [dead] = peeked(client, queue, sub_queue=DEAD)
        assert dead.dead_letter_reason == "test"
        assert api("redrive", entity=queue) == {"moved": 1, "kept": 0}
        assert peeked(client, queue, sub_queue=DEAD) == []
        receiver = client.get_queue_receiver(queue)
        [again] = receive(receiver, 1)
        assert (again.message_id, str(again), again.delivery_count) == ("m", "body", 0)
        assert again.application_properties == {b"colour": b"red", b"n": 5}
        assert (again.dead_letter_reason, again.dead_letter_error_description) == (None, None)
        receiver.complete_message(again)

    def test_a_filter_chooses_and_the_others_are_not_touched(
        self, client: ServiceBusClient, new_queue: NewQueue, api: Api
    ) -> None:
        queue = new_queue()
        bury(client, queue, *(coloured(n, "red" if n % 2 else "blue") for n in range(6)), reason="late")
        bury(client, queue, *(coloured(n, "red") for n in range(6, 8)), reason="other")
        before = [(m.message_id, m.delivery_count) for m in peeked(client, queue, sub_queue=DEAD)]
        wanted = "DeadLetterReason = 'late' AND colour = 'red' AND sys.MessageId <> 'm5'"
        assert api("redrive", entity=queue, filter=wanted) == {"moved": 2, "kept": 6}
        assert ids(peeked(client, queue)) == ["m1", "m3"]
        after = [(m.message_id, m.delivery_count) for m in peeked(client, queue, sub_queue=DEAD)]
        assert after == [each for each in before if each[0] not in ("m1", "m3")]
        # And they can be had at once: nothing is still locked.
        assert len(receive(client.get_queue_receiver(queue, sub_queue=DEAD), 6)) == 6

    def test_a_limit_is_kept(self, client: ServiceBusClient, new_queue: NewQueue, api: Api) -> None:
        queue = new_queue()
        bury(client, queue, *(ServiceBusMessage("x", message_id=f"m{n}") for n in range(5)))
        assert api("redrive", entity=queue, limit=2)["moved"] == 2
        assert ids(peeked(client, queue)) == ["m0", "m1"]
        assert api("redrive", entity=queue, filter="sys.MessageId LIKE 'm%'", limit=1)["moved"] == 1
        assert ids(peeked(client, queue)) == ["m0", "m1", "m2"]

    def test_duplicate_detection_does_not_swallow_them(
        self, client: ServiceBusClient, new_queue: NewQueue, api: Api
    ) -> None:
        queue = new_queue(RequiresDuplicateDetection=True)
        bury(client, queue, ServiceBusMessage("x", message_id="m"))
        assert api("redrive", entity=queue) == {"moved": 1, "kept": 0}
        assert ids(peeked(client, queue)) == ["m"]

    def test_fragments_keep_their_own(
        self, broker: BrokerProcess, client: ServiceBusClient, new_queue: NewQueue, api: Api
    ) -> None:
        queue = new_queue(EnablePartitioning=True)
        for key in ("a", "b", "c"):
            keyed = [ServiceBusMessage("x", message_id=f"{key}{n}", partition_key=key) for n in range(2)]
            bury(client, queue, *keyed)
        assert api("redrive", entity=queue, filter="sys.PartitionKey <> 'b'") == {"moved": 4, "kept": 2}
        assert sorted(ids(peeked(client, queue))) == ["a0", "a1", "c0", "c1"]
        assert sorted(ids(peeked(client, queue, sub_queue=DEAD))) == ["b0", "b1"]
        receiver = client.get_queue_receiver(queue)
        for message in receive(receiver, 4):
            assert message.partition_key == message.message_id[0]
            receiver.complete_message(message)

    def test_into_a_session(self, client: ServiceBusClient, new_queue: NewQueue, api: Api) -> None:
        queue = new_queue(RequiresSession=True)
        send(client, queue, ServiceBusMessage("x", session_id="s"))
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            [message] = receive(receiver, 1)
            receiver.dead_letter_message(message)
            assert api("redrive", entity=queue) == {"moved": 1, "kept": 0}
            [again] = receive(receiver, 1)
            assert again.session_id == "s"

    def test_to_one_subscription_alone(self, broker: BrokerProcess, client: ServiceBusClient, api: Api) -> None:
        entry = (
            '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{0} xmlns='
            '"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
        )
        for path, kind in (("", "Topic"), ("/Subscriptions/a", "Subscription"), ("/Subscriptions/b", "Subscription")):
            address = f"/redriven{path}?api-version=2021-05"
            assert broker.request("PUT", address, entry.format(f"{kind}Description"))[0] == 201
        client.get_topic_sender("redriven").send_messages(ServiceBusMessage("x", message_id="m"))
        for name in ("a", "b"):
            receiver = client.get_subscription_receiver("redriven", name)
            [message] = receive(receiver, 1)
            receiver.dead_letter_message(message)
        assert api("redrive", entity="redriven/Subscriptions/a") == {"moved": 1, "kept": 0}
        assert ids(client.get_subscription_receiver("redriven", "a").peek_messages()) == ["m"]
        assert client.get_subscription_receiver("redriven", "b").peek_messages() == []

    def test_what_cannot_be_is_refused(self, new_queue: NewQueue, api: Api) -> None:
        queue = new_queue()
        assert "position" in api("redrive", 400, entity=queue, filter="colour =")["error"]["message"]
        assert "main queue" in api("redrive", 400, entity=queue, sub_queue="main")["error"]["message"]
        assert "positive" in api("redrive", 400, entity=queue, limit=0)["error"]["message"]


def coloured(number: int, colour: str) -> ServiceBusMessage:
    return ServiceBusMessage("x", message_id=f"m{number}", application_properties={"colour": colour})


@pytest.mark.feature("extension: abandon with a delay")
class TestDelay:
    def test_a_message_that_says_so_waits_after_it_was_abandoned(
        self, broker: BrokerProcess, client: ServiceBusClient, new_queue: NewQueue, advance: Callable[[str], None]
    ) -> None:
        queue = new_queue()
        delayed = ServiceBusMessage("x", message_id="delayed", application_properties={DELAY: 3600})
        send(client, queue, delayed, ServiceBusMessage("x", message_id="plain"))
        receiver = client.get_queue_receiver(queue)
        for message in receive(receiver, 2):
            receiver.abandon_message(message)
        [plain] = receive(receiver, 1)
        assert (plain.message_id, plain.delivery_count) == ("plain", 1)
        receiver.complete_message(plain)
        assert broker.count(queue, "ScheduledMessageCount") == 1
        assert receiver.receive_messages(max_wait_time=0.3) == []
        advance("PT50M")
        assert receiver.receive_messages(max_wait_time=0.3) == []
        advance("PT10M")
        [again] = receive(receiver, 1)
        assert (again.message_id, again.delivery_count) == ("delayed", 1)
        assert again.application_properties == {DELAY.encode(): 3600}
        receiver.complete_message(again)

    def test_an_abandon_that_says_so_keeps_the_property_to_itself(
        self, broker: BrokerProcess, client: ServiceBusClient, new_queue: NewQueue, advance: Callable[[str], None]
    ) -> None:
        from proton import Delivery

        from support.peer import Receiver, connected

        queue = new_queue()
        send(client, queue, ServiceBusMessage("x"))
        with connected(broker) as connection:
            receiver = Receiver(connection, queue, credit=1)
            _, delivery = receiver.take()
            delivery.local.annotations = {DELAY: "PT1H", "tried": 1}
            delivery.local.failed = True
            receiver.decide(delivery, Delivery.MODIFIED)
        assert broker.count(queue, "ScheduledMessageCount") == 1
        advance("PT1H")
        [again] = receive(client.get_queue_receiver(queue), 1)
        assert again.application_properties == {b"tried": 1}

    def test_a_message_without_it_is_back_at_once(self, client: ServiceBusClient, new_queue: NewQueue) -> None:
        queue = new_queue()
        odd = ServiceBusMessage("x", application_properties={DELAY: "soon"})
        send(client, queue, ServiceBusMessage(f"a body that tells of {DELAY}"), odd)
        receiver = client.get_queue_receiver(queue)
        for message in receive(receiver, 2):
            receiver.abandon_message(message)
        assert [message.delivery_count for message in receive(receiver, 2)] == [1, 1]


@pytest.mark.feature("extension: movable clock")
class TestClock:
    def test_locks_end(self, client: ServiceBusClient, new_queue: NewQueue, advance: Callable[[str], None]) -> None:
        queue = new_queue(LockDuration="PT5M")
        send(client, queue, ServiceBusMessage("x"))
        receiver = client.get_queue_receiver(queue)
        [message] = receive(receiver, 1)
        advance("PT5M")
        [again] = receive(receiver, 1)
        assert again.delivery_count == 1
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)

    def test_a_waiting_receiver_gets_a_scheduled_message(
        self, client: ServiceBusClient, new_queue: NewQueue, advance: Callable[[str], None], broker: BrokerProcess
    ) -> None:
        queue = new_queue()
        at = datetime.fromisoformat(json.loads(broker.request("GET", "/$api/clock")[1])["now"].replace("Z", "+00:00"))
        send(client, queue, ServiceBusMessage("x", scheduled_enqueue_time_utc=at + timedelta(days=3)))
        receiver = client.get_queue_receiver(queue).__enter__()  # Only opened: see above.
        assert receiver.receive_messages(max_wait_time=0.3) == []
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(receive, receiver, 1)
            wait_for(receiver._receive_context.is_set, "the receiver waits")
            advance("P3D")
            assert len(waiting.result()) == 1

    def test_messages_expire_and_idle_entities_go(
        self, broker: BrokerProcess, client: ServiceBusClient, new_queue: NewQueue, advance: Callable[[str], None]
    ) -> None:
        expiring = new_queue(DeadLetteringOnMessageExpiration=True)
        idle = broker.create_queue("idle", AutoDeleteOnIdle="PT5M")
        send(client, expiring, ServiceBusMessage("x", time_to_live=timedelta(hours=1)))
        advance("PT1H")
        wait_for(lambda: broker.count(expiring, "DeadLetterMessageCount") == 1, "the dead letter")
        wait_for(lambda: broker.request("GET", f"/{idle}?api-version=2021-05")[0] == 404, "the end of the idle queue")


@pytest.mark.feature("extension: reset")
def test_a_reset_leaves_what_the_configuration_declares(
    broker: BrokerProcess, client: ServiceBusClient, api: Api
) -> None:
    broker.create_queue("of-a-test")
    send(client, "declared", ServiceBusMessage("x"))
    assert api("reset", 400, confirm="another")["error"]["code"] == "argument"
    assert api("reset", confirm="compat")["created"] == 1
    assert broker.count("declared") == 0
    assert broker.request("GET", "/of-a-test?api-version=2021-05")[0] == 404
    with client.get_queue_sender("declared") as sender:
        sender.send_messages(ServiceBusMessage("y"))
    assert broker.count("declared") == 1
