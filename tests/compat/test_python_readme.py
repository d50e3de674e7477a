"""The samples of the azure-servicebus package's own README, taken from the installed package and run.

Only what a new user changes is changed: the connection string for the cloud's credential, names for those from the
environment, and shorter waits, since some samples never end by themselves. All run at once, each on its own queue. Left
out is what sends and receives nothing: setting up logging, and the older transport.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.metadata
import inspect
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode, ServiceBusReceiver, ServiceBusSubQueue

from support.broker import SOON_S, BrokerProcess
from support.prompt import Prompt
from support.queues import put
from twinbus.client.messages import build

pytestmark = pytest.mark.feature("readme-samples")

TOPICS = "Working with topics"
SUBSCRIPTION = "the-subscription"
REPLACED = {
    "from azure.identity import DefaultAzureCredential\n": "",
    "from azure.identity.aio import DefaultAzureCredential\n": "",
    "ServiceBusClient(fully_qualified_namespace=SERVICE_BUS_NAMESPACE, credential=credential)": (
        "ServiceBusClient.from_connection_string(connection_string)"
    ),
    '"<your-queue-name>"': "queue",
    "os.environ['SERVICE_BUS_TOPIC_NAME']": "queue",
    "os.environ['SERVICE_BUS_SUBSCRIPTION_NAME']": f"'{SUBSCRIPTION}'",
    "get_subscription_receiver(topic_name, subscription_name)": (
        "get_subscription_receiver(topic_name, subscription_name, max_wait_time=8)"
    ),
    "credential = DefaultAzureCredential()\n": "",
    "fully_qualified_namespace = os.environ['SERVICEBUS_FULLY_QUALIFIED_NAMESPACE']\n": "",
    "ServiceBusClient(fully_qualified_namespace, credential)": (
        "ServiceBusClient.from_connection_string(connection_string)"
    ),
    "os.environ['SERVICE_BUS_QUEUE_NAME']": "queue",
    "os.environ['SERVICE_BUS_SESSION_QUEUE_NAME']": "queue",
    "os.environ['SERVICE_BUS_SESSION_ID']": "'the session'",
    "max_wait_time=30": "max_wait_time=8",
    "get_queue_receiver(queue_name)": "get_queue_receiver(queue_name, max_wait_time=8)",
    "session_id=session_id) as receiver": "session_id=session_id, max_wait_time=8) as receiver",
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
    "Thread safety": (),
    "Thread safety, 2": (),
    TOPICS: (),
}


@dataclass
class Sample:
    """A sample that ran: its queue, and what it printed."""

    queue: str
    printed: list[str]


def samples() -> dict[str, str]:
    """The README's Python blocks by the texts of their headings; of several under one, the further are numbered."""
    text = str(importlib.metadata.metadata("azure-servicebus").get_payload())
    found: dict[str, str] = {}
    for section in re.split(r"\n#{2,4} |\n\* (?=\w+ lock automatic renewing)", text):
        heading = re.sub(r"[\[\]]|\(.*|\]\[.*", "", section.partition("\n")[0]).strip()
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL), 1):
            found.setdefault(heading if number == 1 else f"{heading}, {number}", block)
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
    # Some samples await outside of any function, as in a notebook.
    code = compile(source, "README of azure-servicebus", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = FunctionType(code, names)()
    if inspect.iscoroutine(waiting):
        asyncio.run(waiting)
    return Sample(queue, printed)


def make_topic(broker: BrokerProcess, name: str) -> str:
    """A topic with a subscription, at a prompt."""
    prompt = Prompt(broker)
    prompt("entity", "create", name, "--topic")
    prompt("entity", "create", f"{name}:{SUBSCRIPTION}")
    return name


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
            if heading == TOPICS:
                queue = make_topic(broker, "readme-topic")
            else:
                queue = broker.create_queue(f"readme-{next(numbers)}", **settings)
                session_id = "the session" if has_sessions else None
                put(broker, queue, [build(body.encode(), session_id=session_id) for body in bodies])
            source = under.get(heading) or next(code for name, code in under.items() if name.startswith(heading))
            started[heading] = pool.submit(run, source, broker, queue)
        yield started


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        yield client


Running = dict[str, Future[Sample]]


def bodies(receiver: ServiceBusReceiver, count: int) -> list[str]:
    found: list[str] = []
    with receiver:
        while len(found) < count:
            messages = receiver.receive_messages(count - len(found), max_wait_time=SOON_S)
            assert messages, f"only {found} came"
            found += map(str, messages)
    return found


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
        (message,) = receiver.receive_messages(max_wait_time=SOON_S)
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


@pytest.mark.parametrize("heading", ["Thread safety", "Thread safety, 2"])
def test_several_share_a_sender(running: Running, broker: BrokerProcess, heading: str) -> None:
    sample = running[heading].result()
    assert sorted(sample.printed) == [f"Sender {number} sent messages." for number in range(5)]
    assert broker.count(sample.queue) == 50


def test_a_topic_and_its_subscription(running: Running) -> None:
    assert running[TOPICS].result().printed == ["Data"]
