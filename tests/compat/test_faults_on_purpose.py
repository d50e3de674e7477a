"""Faults on purpose, as the official client meets them: begun over the JSON API, for a time or until lifted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from support.broker import SOON_S, BrokerProcess, NewQueue, wait_for
from support.journals import outcomes
from support.prompt import Prompt

pytestmark = pytest.mark.feature("extension: faults on purpose")

Connect = Callable[[], ServiceBusClient]
Fault = Callable[..., Any]
DOORS = ("namespace-down", "blackholed", "throttled", "answers-lost", "visibility-delayed")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), options=("--faults", "--stores", "1")) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log, process.log[-8000:]


@pytest.fixture
def fault(broker: BrokerProcess) -> Iterator[Fault]:
    """Begins a fault; all are lifted afterwards."""

    def ask(method: str, path: str, expected: int = 200, **body: Any) -> Any:
        status, text = broker.request(method, f"/$api/faults{path}", json.dumps(body) if body else None)
        assert status == expected, text
        return json.loads(text)

    yield ask
    ask("DELETE", "")
    assert ask("GET", "")["faults"] == []


@pytest.fixture(scope="module")
def connect(broker: BrokerProcess) -> Iterator[Connect]:
    """Makes clients; all are closed together in the end, since each takes a second for that."""
    made: list[ServiceBusClient] = []

    def client() -> ServiceBusClient:
        made.append(ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0))
        return made[-1]

    yield client
    with ThreadPoolExecutor(len(made)) as threads:
        list(threads.map(ServiceBusClient.close, made))


def ids(receiver: ServiceBusReceiver, count: int = 1) -> list[str]:
    """The ids of so many messages, in order of the alphabet."""
    found: list[str] = []
    while len(found) < count:
        messages = receiver.receive_messages(count - len(found), max_wait_time=SOON_S)
        assert messages, f"only {found} came"
        found += [str(message.message_id) for message in messages]
    return sorted(found)


def states(broker: BrokerProcess) -> list[str]:
    return [store["state"] for store in json.loads(broker.request("GET", "/$api/status")[1])["stores"]]


def test_a_namespace_that_is_down_cuts_everyone_off_until_its_time_is_over(
    connect: Connect, new_queue: NewQueue, fault: Fault
) -> None:
    queue = new_queue()
    sender = connect().get_queue_sender(queue)
    sender.send_messages(ServiceBusMessage("before", message_id="before"))
    fault("PUT", "/namespace-down", **{"for": "PT1H"})
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("lost", message_id="lost"))
    with pytest.raises(ServiceBusError):
        connect().get_queue_receiver(queue).receive_messages(max_wait_time=SOON_S)
    assert fault("GET", "")["faults"]
    fault("PUT", "/namespace-down", **{"for": "PT0.5S"})
    wait_for(lambda: not fault("GET", "")["faults"], "the end of the fault")
    client = connect()
    client.get_queue_sender(queue).send_messages(ServiceBusMessage("after", message_id="after"))
    assert ids(client.get_queue_receiver(queue), 2) == ["after", "before"]


def test_a_blackholed_namespace_says_nothing_and_goes_on_where_it_was(
    connect: Connect, new_queue: NewQueue, fault: Fault
) -> None:
    sender = connect().get_queue_sender(new_queue())
    sender.send_messages(ServiceBusMessage("before"))
    fault("PUT", "/blackholed")
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(sender.send_messages, ServiceBusMessage("patient"), timeout=SOON_S)
        time.sleep(1)
        assert not sending.done()
        fault("DELETE", "/blackholed")
        sending.result()


def test_a_throttled_namespace_is_busy_for_senders_and_requests_alike(
    broker: BrokerProcess, connect: Connect, new_queue: NewQueue, fault: Fault
) -> None:
    queue = new_queue()
    client = connect()
    sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue)
    sender.send_messages(ServiceBusMessage("before"))
    fault("PUT", "/throttled")
    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(ServiceBusMessage("refused"))
    with pytest.raises(ServiceBusServerBusyError):
        receiver.peek_messages(1)
    assert broker.request("POST", f"/{queue}/messages", "over HTTP")[0] == 503
    fault("DELETE", "/throttled")
    sender.send_messages(ServiceBusMessage("after"))


def test_an_answer_that_is_lost_leaves_the_message_stored(connect: Connect, new_queue: NewQueue, fault: Fault) -> None:
    queue = new_queue()
    sender = connect().get_queue_sender(queue)
    fault("PUT", "/answers-lost")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("kept", message_id="kept"))
    fault("DELETE", "/answers-lost")
    assert ids(connect().get_queue_receiver(queue)) == ["kept"]


def test_what_is_sent_is_visible_after_the_delay(connect: Connect, new_queue: NewQueue, fault: Fault) -> None:
    queue = new_queue()
    client = connect()
    fault("PUT", "/visibility-delayed", delay="PT1.5S")
    began = time.monotonic()
    client.get_queue_sender(queue).send_messages(ServiceBusMessage("late", message_id="late"))
    assert ids(client.get_queue_receiver(queue)) == ["late"]
    assert time.monotonic() - began >= 1.4


def test_a_slow_store_delays_each_commit(connect: Connect, new_queue: NewQueue, fault: Fault) -> None:
    sender = connect().get_queue_sender(new_queue())
    sender.send_messages(ServiceBusMessage("quick"))
    fault("PUT", "/store-slow", delay="PT0.7S", store=0)
    began = time.monotonic()
    sender.send_messages(ServiceBusMessage("slow"))
    assert time.monotonic() - began >= 0.7


@pytest.mark.parametrize("name", ["store-full", "store-down"])
def test_a_store_that_is_full_or_down_refuses_and_comes_back(
    broker: BrokerProcess, connect: Connect, new_queue: NewQueue, fault: Fault, name: str
) -> None:
    queue = new_queue()
    client = connect()
    client.get_queue_sender(queue).send_messages(ServiceBusMessage("before", message_id="before"))
    fault("PUT", f"/{name}")
    with pytest.raises(ServiceBusError):
        connect().get_queue_sender(queue).send_messages(ServiceBusMessage("refused"))
    if name == "store-full":
        assert ids(client.get_queue_receiver(queue)) == ["before"]
    fault("DELETE", f"/{name}")
    wait_for(lambda: states(broker) == ["up"], "the store")
    connect().get_queue_sender(queue).send_messages(ServiceBusMessage("after"))


def test_every_fault_is_journaled(broker: BrokerProcess, fault: Fault) -> None:
    for name in DOORS:
        fault("PUT", f"/{name}")
        fault("DELETE", f"/{name}")
    expected = {f"{name} {change}" for name in DOORS for change in ("begin", "end")}
    wait_for(
        lambda: expected <= outcomes(broker, "fault"),
        "the journal's entries",
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("PUT", "/earthquake", {}, 404, "There is no fault 'earthquake'"),
        ("PUT", "/throttled", {"delay": "PT1S"}, 400, "'delay' is not known for 'throttled'"),
        ("PUT", "/store-slow", {"store": 7}, 400, "There is no messaging store 7"),
        ("PUT", "/store-slow", {"delay": "P1D"}, 400, "at most PT15M"),
        ("PUT", "/throttled", {"for": 3}, 400, "'for' must be a duration"),
    ],
)
def test_what_makes_no_sense_is_refused(
    fault: Fault, method: str, path: str, body: dict[str, Any], status: int, sentence: str
) -> None:
    assert sentence in fault(method, path, status, **body)["error"]["message"]


def test_faults_at_the_prompt(broker: BrokerProcess) -> None:
    run = Prompt(broker)
    assert "since" in run("fault", "begin", "throttled", "--for", "1m").stdout
    assert run.json("fault", "list")[0]["faults"][0]["name"] == "throttled"
    assert run("fault", "lift").stdout == "1 fault lifted\n"
    assert run("fault", "lift", "throttled").stdout == "nothing was going on\n"


def test_a_namespace_that_was_not_started_for_it_suffers_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("plain")) as plain:
        status, text = plain.request("PUT", "/$api/faults/throttled", "{}")
        assert (status, "start the broker with --faults" in text) == (409, True)
        assert json.loads(plain.request("GET", "/$api/faults")[1])["allowed"] is False
