"""The queue samples of the azure-servicebus package's own README, taken from the installed package and run.

Only what a new user changes is changed: the connection string for the cloud's credential, names for those from the
environment, and shorter waits, since some samples never end by themselves. All run at once, each on its own queue.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode, ServiceBusReceiver, ServiceBusSubQueue

from support.broker import BrokerProcess
from support.peer import put

pytestmark = pytest.mark.feature("readme-samples")

REPLACED = {
    "from azure.identity import DefaultAzureCredential\n": "",
    "credential = DefaultAzureCredential()\n": "",
    "fully_qualified_namespace = os.environ['SERVICEBUS_FULLY_QUALIFIED_NAMESPACE']\n": "",
    "ServiceBusClient(fully_qualified_namespace, credential)": (
        "ServiceBusClient.from_connection_string(connection_string)"
    ),
    "os.environ['SERVICE_BUS_QUEUE_NAME']": "queue",
    "os.environ['SERVICE_BUS_SESSION_QUEUE_NAME']": "queue",
    "os.environ['SERVICE_BUS_SESSION_ID']": "'the session'",
    "max_wait_time=30": "max_wait_time=1",
    "get_queue_receiver(queue_name)": "get_queue_receiver(queue_name, max_wait_time=1)",
    "session_id=session_id) as receiver": "session_id=session_id, max_wait_time=1) as receiver",
}

# What is in the queue before the sample under a heading runs.
BEFORE = {
    "Send messages to a queue": (),
    "Receive messages from a queue through iterating": ("one", "two"),
    "Receive messages from a queue through ServiceBusReceiver.receive_messages": ("one", "two", "three"),
    "Send and receive a message from a session enabled queue": (),
    "Complete": ("one", "two"),
    "Abandon": ("poison",),
    "DeadLetter": ("unwanted",),
    "Defer": ("later",),
    "Message lock automatic renewing": ("work",),
    "Session lock automatic renewing": ("work",),
}


@dataclass
class Sample:
    """A sample that ran: its queue, and what it printed."""

    queue: str
    printed: list[str]


def samples() -> dict[str, str]:
    """The README's first Python block under each heading, by the heading's text."""
    text = str(importlib.metadata.metadata("azure-servicebus").get_payload())
    found: dict[str, str] = {}
    for section in re.split(r"\n#{2,4} |\n\* (?=\w+ lock automatic renewing)", text):
        heading = re.sub(r"[\[\]]|\(.*|\]\[.*", "", section.partition("\n")[0]).strip()
        block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
        if block:
            found.setdefault(heading, block[1])
    return found


def run(source: str, broker: BrokerProcess, queue: str) -> Sample:
    """Run a sample as it stands, but for what is replaced."""
    for theirs, ours in REPLACED.items():
        source = source.replace(theirs, ours)
    assert "azure.identity" not in source
    assert "environ" not in source
    printed: list[str] = []
    names = {
        "print": lambda *values: printed.append(" ".join(map(str, values))),
        "connection_string": broker.connection_string(),
        "queue": queue,
    }
    exec(compile(source, "README of azure-servicebus", "exec"), names)
    return Sample(queue, printed)


@pytest.fixture(scope="module")
def running(broker: BrokerProcess) -> Iterator[dict[str, Future[Sample]]]:
    """All samples at once, by their headings."""
    numbers = itertools.count(1)
    under = samples()
    with ThreadPoolExecutor(max_workers=len(BEFORE)) as pool:
        started = {}
        for heading, bodies in BEFORE.items():
            has_sessions = "session" in heading.lower()
            settings = {"RequiresSession": has_sessions, "MaxDeliveryCount": 3}
            queue = broker.create_queue(f"readme-{next(numbers)}", **settings)
            put(broker, queue, bodies, session_id="the session" if has_sessions else None)
            source = next(code for name, code in under.items() if name.startswith(heading))
            started[heading] = pool.submit(run, source, broker, queue)
        yield started


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        yield client


Running = dict[str, Future[Sample]]


def bodies(receiver: ServiceBusReceiver, count: int) -> list[str]:
    with receiver:
        return [str(message) for message in receiver.receive_messages(count, max_wait_time=5)]


def test_send_messages_to_a_queue(running: Running, client: ServiceBusClient) -> None:
    sample = running["Send messages to a queue"].result()
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    received = bodies(client.get_queue_receiver(sample.queue, receive_mode=mode), 3)
    assert received == ["Single message", "First message", "Second message"]


def test_receive_by_iterating_over_the_receiver(running: Running) -> None:
    sample = running["Receive messages from a queue through iterating"].result()
    assert sample.printed == ["one", "two"]


def test_receive_by_calling_receive_messages(running: Running) -> None:
    sample = running["Receive messages from a queue through ServiceBusReceiver.receive_messages"].result()
    assert sample.printed == ["one", "two", "three"]


def test_send_to_and_receive_from_a_session(running: Running) -> None:
    sample = running["Send and receive a message from a session enabled queue"].result()
    assert sample.printed == ["Session Enabled Message"]


def test_complete(running: Running, broker: BrokerProcess) -> None:
    sample = running["Complete"].result()
    assert sample.printed == ["one", "two"]
    assert broker.queue(sample.queue)["MessageCount"] == "0"


def test_abandon_again_and_again_ends_in_the_dead_letter_queue(running: Running, client: ServiceBusClient) -> None:
    sample = running["Abandon"].result()
    assert sample.printed == ["poison"] * 3
    receiver = client.get_queue_receiver(sample.queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    with receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        receiver.complete_message(message)


def test_dead_letter(running: Running, broker: BrokerProcess) -> None:
    sample = running["DeadLetter"].result()
    assert sample.printed == ["unwanted"]
    assert broker.count(sample.queue, "DeadLetterMessageCount") == 1


def test_defer(running: Running, client: ServiceBusClient) -> None:
    sample = running["Defer"].result()
    assert sample.printed == ["later"]
    with client.get_queue_receiver(sample.queue) as receiver:
        (peeked,) = receiver.peek_messages()
        (message,) = receiver.receive_deferred_messages(peeked.sequence_number)
        receiver.complete_message(message)
        assert str(message) == "later"


@pytest.mark.parametrize("heading", ["Message lock automatic renewing", "Session lock automatic renewing"])
def test_lock_renewal(running: Running, broker: BrokerProcess, heading: str) -> None:
    sample = running[heading].result()
    assert broker.queue(sample.queue)["MessageCount"] == "0"
