"""It starts whatever is down, and a message reaches the namespace that it was meant for. No option is set but a state.

Each test has a log of what was acknowledged and a log of what was received, and compares them.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from support.broker import BrokerProcess, running, wait_for
from twinbus.pair import BacklogError, PairedSender, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.aio import PairedServiceBusClient as AsyncPaired
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.syphon.standalone import StandaloneSyphon

AT_MOST_S = 5.0  # From the moment at which the primary stops answering to the first diverted send.
QUEUE = "orders"
PRIMARY = f"""
[[queues]]
Name = "{QUEUE}"
[[queues]]
Name = "sessions"
RequiresSession = true
[[policies]]
Name = "app"
Rights = ["Send"]
PrimaryKey = "secret-of-app"
"""
SECONDARY = '[[policies]]\nName = "app"\nRights = ["Send", "Listen"]\nPrimaryKey = "secret-of-app"\n'


class Two:
    """A primary and a secondary that nobody has paired yet, and both logs."""

    def __init__(self, directory: Path, name: str = "contoso", secondary: BrokerProcess | None = None) -> None:
        self.primary = BrokerProcess(
            _made(directory / "primary"), namespace=name, config=PRIMARY, options=("--faults",)
        )
        self.secondary = secondary or BrokerProcess(
            _made(directory / "secondary"), namespace="fabrikam", config=SECONDARY
        )
        self.state = str(directory / "state")
        self.acknowledged: list[str] = []
        self.received: Counter[str] = Counter()

    def strings(self) -> tuple[str, str]:
        return self.primary.connection_string(), self.secondary.connection_string()

    def client(self, state: str = "", strings: tuple[str, str] | None = None) -> PairedServiceBusClient:
        options = SendAvailabilityOptions(state_directory=state)
        return PairedServiceBusClient.from_connection_strings(*(strings or self.strings()), options)

    def send(self, client: PairedServiceBusClient, *ids: str, timeout: float | None = None) -> float:
        """Send, and write down what was acknowledged; how long it took."""
        began = time.monotonic()
        with client.get_queue_sender(QUEUE) as sender:
            for each in ids:
                sender.send_messages(ServiceBusMessage(b"x", message_id=each), timeout=timeout)
                self.acknowledged.append(each)
        return time.monotonic() - began

    def bring_home(self, strings: tuple[str, str] | None = None) -> None:
        """As `twinbus syphon --once` does."""
        first, second = map(NamespaceDescription, strings or self.strings())
        description = PairDescription(first, second, SendAvailabilityOptions(state_directory="", announce=False))

        async def drain() -> None:
            async with StandaloneSyphon(description) as syphon:
                await syphon.pair()
                await syphon.drain()

        asyncio.run(drain())

    def receive(self) -> None:
        with (
            ServiceBusClient.from_connection_string(self.primary.connection_string()) as client,
            client.get_queue_receiver(QUEUE) as receiver,
        ):
            while self.primary.count(QUEUE):
                for message in receiver.receive_messages(100, max_wait_time=1):
                    self.received[str(message.message_id)] += 1
                    receiver.complete_message(message)

    def check(self) -> None:
        """Everything is at home, once."""
        self.bring_home()
        self.receive()
        assert self.received == Counter(self.acknowledged)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    pair = Two(tmp_path)
    with running(pair.primary, pair.secondary):
        yield pair


def test_in_the_middle_of_an_outage_for_the_first_time_ever(two: Two) -> None:
    """Nobody knows the primary's name: not even a backlog queue was made."""
    two.primary.kill()
    with two.client() as client:
        two.send(client, "1", "2", "3")
        assert client.status().diverted == 3
    two.primary.start()
    two.check()


def test_whatever_is_down(two: Two) -> None:
    """No state is kept between two starts: each time the client is in a fresh container."""
    two.secondary.kill()
    with two.client() as client:
        two.send(client, "without the secondary")
    two.secondary.start()
    with two.client() as client:
        two.send(client, "with both")
        wait_for(lambda: len(client.status().backlog_queues) == 10, "the backlog queues")
    two.primary.kill()
    with two.client() as client:
        assert client.status().primary == "contoso"  # The backlog queues say whose they are.
        two.send(client, "without the primary")
        two.secondary.kill()
        with pytest.raises(BacklogError):
            two.send(client, "without either")
    with two.client() as client, pytest.raises(ServiceBusError):
        two.send(client, "started without either")
    two.secondary.start()
    two.primary.start()
    two.check()


def test_what_the_primary_would_refuse_is_refused_after_a_restart_while_it_is_down(two: Two) -> None:
    """Its limit, and that a queue requires sessions, are remembered."""
    with two.client(two.state) as client, client.get_queue_sender("sessions") as sender:
        two.send(client, "before")
        sender.send_messages(ServiceBusMessage(b"x", session_id="s"))
        known = client._core.carrier.entities
        wait_for(lambda: known.of("sessions").requires_session is True, "what kind of queue it is")
    two.primary.kill()
    with two.client(two.state) as client, client.get_queue_sender("sessions") as sender:
        two.send(client, "diverted")
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 300_000, session_id="s"))
        with pytest.raises(ServiceBusError, match="requires sessions"):
            sender.send_messages(ServiceBusMessage(b"no session"))
    two.primary.start()
    two.check()


def test_without_the_manage_right_where_the_queues_exist(two: Two) -> None:
    with two.client():
        pass  # Somebody with the right has made them.
    app = tuple(each.connection_string(policy="app", key="secret-of-app") for each in (two.primary, two.secondary))
    with two.client(two.state, app) as client:
        two.send(client, "direct")
        assert (client.status().primary, len(client.status().backlog_queues)) == ("contoso", 10)
    two.primary.kill()
    with two.client(two.state, app) as client:
        two.send(client, "diverted")
        assert client.status().diverted == 1
    two.primary.start()
    wait_for(lambda: two.primary.is_ready(), "the primary")
    two.bring_home(app)
    two.receive()
    assert two.received == Counter(two.acknowledged)


@pytest.mark.alone  # It measures time.
def test_a_primary_that_hangs_is_left_within_five_seconds(two: Two) -> None:
    """The blocking client, with an open link, and with one that has to be opened; and a call whose time is short."""

    def timed(sender: PairedSender, message_id: str, timeout: float | None = None) -> float:
        began = time.monotonic()
        sender.send_messages(ServiceBusMessage(b"x", message_id=message_id), timeout=timeout)
        two.acknowledged.append(message_id)
        return time.monotonic() - began

    async def at_once() -> list[float]:
        return await asyncio.gather(
            asyncio.to_thread(timed, senders[0], "in a hurry", 2),
            asyncio.to_thread(timed, senders[1], "over an open link"),
            asyncio.to_thread(timed, senders[2], "over a new link"),
        )

    with two.client() as first, two.client() as second, two.client() as third:
        senders = [client.get_queue_sender(QUEUE) for client in (first, second, third)]
        timed(senders[1], "before")
        assert two.primary.process is not None
        two.primary.process.send_signal(signal.SIGSTOP)
        try:
            in_a_hurry, *took = asyncio.run(at_once())
            assert in_a_hurry <= 2
            assert max(took) <= AT_MOST_S
            assert timed(senders[1], "the next one") < 1
        finally:
            two.primary.process.send_signal(signal.SIGCONT)
    two.bring_home()
    two.receive()
    # What was not answered may have arrived all the same: then it came twice, under one id.
    assert set(two.received) == set(two.acknowledged)


@pytest.mark.alone  # It measures time.
async def test_asyncio_leaves_a_primary_that_hangs_within_five_seconds(two: Two) -> None:
    options = SendAvailabilityOptions(state_directory="")
    async with AsyncPaired.from_connection_strings(*two.strings(), options) as client:
        opened, unopened = client.get_queue_sender(QUEUE), client.get_queue_sender(QUEUE)
        await opened.send_messages(ServiceBusMessage(b"x", message_id="before"))
        assert two.primary.process is not None
        two.primary.process.send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(AT_MOST_S):
                await asyncio.gather(
                    *(
                        sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
                        for sender, message_id in ((opened, "over an open link"), (unopened, "over a new link"))
                    )
                )
        finally:
            two.primary.process.send_signal(signal.SIGCONT)
    two.acknowledged += ["before", "over an open link", "over a new link"]
    await asyncio.to_thread(two.bring_home)
    await asyncio.to_thread(two.receive)
    assert set(two.received) == set(two.acknowledged)


def test_two_primaries_of_one_name_share_a_secondary(two: Two, tmp_path: Path) -> None:
    other = Two(tmp_path / "other", secondary=two.secondary)
    other.primary.start()
    try:
        with two.client() as ours, other.client() as theirs:
            two.send(ours, "ours 0")
            other.send(theirs, "theirs 0")
            two.primary.kill()
            other.primary.kill()
            two.send(ours, *(f"ours {number}" for number in range(1, 6)))
            other.send(theirs, *(f"theirs {number}" for number in range(1, 6)))
        two.primary.start()
        other.primary.start()
        two.check()
        assert other.primary.count(QUEUE) == 1
        other.check()
    finally:
        other.primary.kill()


def test_a_primary_that_comes_back_empty_gets_what_was_meant_for_the_one_before_it(two: Two) -> None:
    with two.client() as client:
        two.primary.kill()
        two.send(client, "1", "2")
    shutil.rmtree(two.primary.data)
    two.primary.start()
    two.check()


def test_a_busy_primary_is_waited_for_and_nothing_is_diverted(two: Two) -> None:
    with two.client() as client:
        two.send(client, "before")
        fault = two.primary.request("PUT", "/$api/faults/throttled", '{"for": "PT2S"}')
        assert fault[0] in (200, 201), fault
        assert two.send(client, "busy") > 1
        assert client.status().diverted == 0
        assert client.status().ill == {}
    two.check()
