"""A messaging store is lost and returns: the official client gets transient errors meanwhile, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from faults.disk import BROKEN, FULL
from faults.faulty import FaultyBroker
from support.sdk import told

# `elsewhere` is made first and lies on the first store, the others are on the second: see `broker`.
CONFIG = """
[[queues]]
Name = "elsewhere"
[[queues]]
Name = "plain"
LockDuration = "PT5M"
"""
TOPIC_AND_SESSIONS = ("topic", "sessions")
LATER = timedelta(hours=1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyBroker]:
    process = FaultyBroker(
        tmp_path_factory.mktemp("lost-store"), namespace="faults", config=CONFIG, options=("--stores", "2")
    )
    try:
        process.start()
        assert process.store_of("plain") == STORE
        process.create_queue("filler-0")  # New entities go to the store with the least on it, in turn.
        process.create_queue("sessions", RequiresSession=True)
        process.create_queue("filler-1")
        status, text = process.request("PUT", "/topic?api-version=2021-05", TOPIC)
        assert status == 201, text
        status, text = process.request("PUT", "/topic/Subscriptions/all?api-version=2021-05", SUBSCRIPTION)
        assert status == 201, text
        assert process.store_of("sessions") == STORE
        yield process
    finally:
        process.kill()


STORE = 1
_ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<{0} xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)
TOPIC, SUBSCRIPTION = _ENTRY.format("TopicDescription"), _ENTRY.format("SubscriptionDescription")


@pytest.fixture
def client(broker: FaultyBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as made:
        yield made


class Prepared:
    """Senders, receivers and messages as an application has them when it loses the store."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.client = client
        self.handlers: list[Any] = []
        self.sender = self.enter(client.get_queue_sender("plain"))
        self.topic = self.enter(client.get_topic_sender("topic"))
        to_sessions = self.enter(client.get_queue_sender("sessions"))
        self.sender.send_messages([ServiceBusMessage(f"m{number}") for number in range(8)])
        self.topic.send_messages(ServiceBusMessage("published"))
        to_sessions.send_messages([ServiceBusMessage("s", session_id=name) for name in ("a", "b")])
        [self.scheduled] = self.sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + LATER)
        # Each operation has a receiver of its own, since the client closes one whose operation has failed.
        self.held = [self._held() for _ in range(5)]
        receiver, message = self._held()
        receiver.defer_message(message)
        self.deferred = message.sequence_number
        self.sessions = [self.enter(client.get_queue_receiver("sessions", session_id=name)) for name in ("a", "b")]
        [self.in_session] = self.sessions[0].receive_messages(max_wait_time=30)
        self.rules = self.enter(client.get_subscription_receiver("topic", "all"))

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *problem: object) -> None:
        with ThreadPoolExecutor(len(self.handlers)) as pool:  # The client takes a second to close each of them.
            list(pool.map(lambda handler: handler.close(), self.handlers))

    def enter(self, handler: Any) -> Any:
        self.handlers.append(handler)
        return handler.__enter__()

    def _held(self) -> tuple[ServiceBusReceiver, Any]:
        receiver = self.enter(self.client.get_queue_receiver("plain"))
        [message] = receiver.receive_messages(max_wait_time=30)
        return receiver, message

    def receiver(self, queue: str = "plain", **options: Any) -> ServiceBusReceiver:
        return self.enter(self.client.get_queue_receiver(queue, **options))


def operations(p: Prepared) -> dict[str, Callable[[], object]]:
    """Everything that an application can do with entities of the lost store."""
    (r0, m0), (r1, m1), (r2, m2), (r3, m3), (r4, m4) = p.held
    at = datetime.now(UTC) + LATER
    return {
        "send": lambda: p.sender.send_messages(ServiceBusMessage("x")),
        "send a batch": lambda: batch(p.client.get_queue_sender("plain")),
        "publish": lambda: p.topic.send_messages(ServiceBusMessage("x")),
        "schedule": lambda: p.client.get_queue_sender("plain").schedule_messages(ServiceBusMessage("x"), at),
        "cancel": lambda: p.client.get_queue_sender("plain").cancel_scheduled_messages(p.scheduled),
        "receive": lambda: p.receiver().receive_messages(max_wait_time=20),
        "complete": lambda: r0.complete_message(m0),
        "abandon": lambda: r1.abandon_message(m1),
        "defer": lambda: r2.defer_message(m2),
        "dead-letter": lambda: r3.dead_letter_message(m3),
        "renew": lambda: r4.renew_message_lock(m4),
        "peek": lambda: p.receiver().peek_messages(),
        "receive deferred": lambda: p.receiver().receive_deferred_messages([p.deferred]),
        "complete in a session": lambda: p.sessions[0].complete_message(p.in_session),
        "session state": lambda: p.sessions[1].session.set_state(b"x"),
        "accept a session": lambda: p.receiver("sessions", session_id="c"),
        "accept the next session": lambda: p.receiver("sessions", session_id=NEXT_AVAILABLE_SESSION),
        "receive from a subscription": lambda: p.rules.receive_messages(max_wait_time=20),
    }


def batch(sender: ServiceBusSender) -> None:
    with sender:
        full = sender.create_message_batch()
        full.add_message(ServiceBusMessage("x"))
        sender.send_messages(full)


def outcome(operation: Callable[[], object]) -> BaseException | None:
    try:
        operation()
    except Exception as problem:
        return problem
    return None


def test_every_operation_fails_with_a_transient_error_and_works_again(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    with Prepared(client) as prepared:
        broker.down(STORE)
        every = operations(prepared)
        with ThreadPoolExecutor(len(every)) as pool:
            outcomes = dict(zip(every, pool.map(outcome, every.values()), strict=True))
        # ServiceBusError itself, and none of its kinds: the client retries it, unlike those that name a cause.
        assert {name: type(problem) for name, problem in outcomes.items()} == dict.fromkeys(every, ServiceBusError)
        assert all("is down: test" in told(problem) for problem in outcomes.values() if problem is not None)
        status, text = broker.request("PUT", "/topic/Subscriptions/all/Rules/r?api-version=2021-05", RULE)
        assert (status, "retry" in text) == (503, True)
        assert broker.queue("plain")["EntityAvailabilityStatus"] == "Limited"
        assert broker.queue("plain")["Status"] == "Active"
        broker.up(STORE)
    assert broker.queue("plain")["EntityAvailabilityStatus"] == "Available"
    with client.get_queue_receiver("plain") as receiver:
        [message] = receiver.receive_messages(max_wait_time=30)
        assert message.delivery_count == 1
        receiver.renew_message_lock(message)
        receiver.complete_message(message)
        assert receiver.peek_messages(max_message_count=1)


RULE = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><RuleDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><Filter i:type="TrueFilter">'
    "<SqlExpression>1=1</SqlExpression></Filter><Name>r</Name></RuleDescription></content></entry>"
)


def test_its_locks_are_gone_and_the_messages_come_again_with_a_counted_delivery(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    name = broker.create_queue("counted", LockDuration="PT5M", MaxDeliveryCount=5)
    store = broker.store_of(name)
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        sender.send_messages(ServiceBusMessage("m"))
        [message] = receiver.receive_messages(max_wait_time=30)
        broker.down(store)
        broker.up(store)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
    with client.get_queue_receiver(name) as receiver:
        [again] = receiver.receive_messages(max_wait_time=30)
        assert (str(again), again.delivery_count) == ("m", 1)
        receiver.complete_message(again)


def test_a_waiting_receiver_gets_what_is_sent_after_the_store_has_returned(broker: FaultyBroker) -> None:
    """With the client's own retries nobody even notices."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string(), retry_backoff_factor=0.2) as client,
        client.get_queue_receiver("elsewhere") as receiver,
        client.get_queue_sender("elsewhere") as sender,
        ThreadPoolExecutor(1) as pool,
    ):
        receiver.receive_messages(max_wait_time=0.1)
        waiting = pool.submit(receiver.receive_messages, max_wait_time=40)
        broker.down(0)
        broker.up(0)
        sender.send_messages(ServiceBusMessage("at last"))
        [message] = waiting.result(50)
        assert str(message) == "at last"
        receiver.complete_message(message)


def test_a_session_receiver_that_waits_for_any_session_is_told(broker: FaultyBroker) -> None:
    name = broker.create_queue("waited-for", RequiresSession=True)
    store = broker.store_of(name)
    with (
        ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        receiver = client.get_queue_receiver(name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
        waiting = pool.submit(outcome, receiver.__enter__)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        broker.down(store)
        problem = waiting.result(30)
        broker.up(store)
        assert isinstance(problem, ServiceBusError)
        assert not isinstance(problem, OperationTimeoutError)
        receiver.close()


def test_a_disk_that_fails_takes_its_store_down_and_an_operator_brings_it_back(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    name = broker.create_queue("failing")
    store = broker.store_of(name)
    with client.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        with broker.fault(store, BROKEN):
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("unknown"))
            broker.until(store, "failed")
            status, text = broker.request("POST", f"/$api/stores/{store}/up", "{}")
            assert status == 503
            assert "could not be opened" in text
            metrics = broker.metrics()
            assert metrics[f'twinbus_store_up{{namespace="faults",store="{store}"}}'] == 0
            assert metrics[f'twinbus_store_state{{namespace="faults",state="failed",store="{store}"}}'] == 1
        broker.up(store)
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        sender.send_messages(ServiceBusMessage("after"))
        got: list[str] = []
        while "after" not in got:
            for message in receiver.receive_messages(max_message_count=5, max_wait_time=30):
                got.append(str(message))
                receiver.complete_message(message)
    assert got in (["before", "after"], ["before", "unknown", "after"])


def test_a_store_whose_disk_is_full_takes_nothing_and_gives_everything(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    name = broker.create_queue("drained")
    store = broker.store_of(name)
    with client.get_queue_sender(name) as sender:
        # So that the log has been as large as what follows needs, which the disk need not give anew.
        sender.send_messages([ServiceBusMessage(b"x" * 20_000, message_id=f"m{number}") for number in range(10)])
        broker.api("POST", f"stores/{store}/down", {})
        broker.up(store)
        with broker.fault(store, FULL):
            with pytest.raises(ServiceBusError) as refused:
                client.get_queue_sender(name).send_messages(ServiceBusMessage(b"x" * 200_000))
            assert not isinstance(refused.value, ServiceBusQuotaExceededError)
            assert "full" in told(refused.value)
            got: list[str | None] = []
            with client.get_queue_receiver(name) as receiver:
                while len(got) < 10:
                    for message in receiver.receive_messages(max_message_count=10, max_wait_time=30):
                        got.append(message.message_id)
                        receiver.complete_message(message)
            assert got == [f"m{number}" for number in range(10)]
            assert broker.state(store) == "full"
    broker.until(store, "up")
    with client.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("there is room again"))


def test_the_catalogs_disk_keeps_nobody_from_sending_and_receiving(
    broker: FaultyBroker, client: ServiceBusClient
) -> None:
    place = broker.control / "catalog.db"
    place.write_text(BROKEN)
    try:
        status, text = broker.request("PUT", "/new?api-version=2021-05", _ENTRY.format("QueueDescription"))
        assert (status, "catalog could not be written" in text) == (503, True)
        with client.get_queue_sender("elsewhere") as sender, client.get_queue_receiver("elsewhere") as receiver:
            sender.send_messages(ServiceBusMessage("m"))
            [message] = receiver.receive_messages(max_wait_time=30)
            receiver.complete_message(message)
    finally:
        place.unlink()
    assert broker.create_queue("newer") == "newer"


def test_a_damaged_store_does_not_keep_the_others_from_serving(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path, namespace="faults", config=CONFIG, options=("--stores", "2")) as broker:
        with (
            ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as client,
            client.get_queue_sender("plain") as sender,
        ):
            sender.send_messages(ServiceBusMessage("kept"))
        assert broker.stop() == 0
        path = broker.data / f"store-{STORE}.db"
        intact = path.read_bytes()
        path.write_bytes(b"not a database" * 1000)
        broker.start()
        assert broker.state(STORE) == "failed"
        with ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as client:
            with client.get_queue_sender("plain") as sender, pytest.raises(ServiceBusError, match="failed"):
                sender.send_messages(ServiceBusMessage("refused"))
            with client.get_queue_sender("elsewhere") as sender:
                sender.send_messages(ServiceBusMessage("m"))
            assert broker.queue("plain")["EntityAvailabilityStatus"] == "Limited"
            assert path.read_bytes() == b"not a database" * 1000
            path.write_bytes(intact)
            broker.up(STORE)
            with client.get_queue_receiver("plain") as receiver:
                assert [str(message) for message in receiver.receive_messages(max_wait_time=30)] == ["kept"]


def test_a_store_whose_file_is_gone_for_good_comes_back_empty_when_an_operator_says_so(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path, namespace="faults", config=CONFIG, options=("--stores", "2")) as broker:
        broker.down(STORE)
        for path in broker.data.glob(f"store-{STORE}.db*"):
            path.unlink()
        status, text = broker.request("POST", f"/$api/stores/{STORE}/up", "{}")
        assert status == 503
        assert f"store-{STORE}.db is missing" in text
        broker.api("POST", f"stores/{STORE}/replace", {"confirm": STORE})
        with (
            ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0) as client,
            client.get_queue_sender("plain") as sender,
        ):
            sender.send_messages(ServiceBusMessage("anew"))
        assert broker.count("plain") == 1
        assert "does not hold 'plain' any more" in broker.log
        assert broker.stop() == 0
        for path in broker.data.glob("store-0.db*"):
            path.unlink()
        broker.start()
        broker.api("POST", "stores/0/replace", {"confirm": 0})
        assert (broker.count("plain"), broker.count("elsewhere")) == (1, 0)
