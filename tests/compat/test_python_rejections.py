"""Every kind of refusal of a send, as the caller of the official client meets it.

For each: the exception, its tracking id found again in the broker's log, and whether the client tried again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from support import optional
from support.atom import Rule
from support.broker import BrokerProcess, NewQueue, Refusal, wait_for
from support.sdk import Bus, both, told, tracking_id
from support.storage import fill, stalled

pytestmark = pytest.mark.feature("rejections")

ONCE, WITH_RETRIES = 1, 4
KIB = 1024
# One more than the broker keeps waiting for the commit of one store.
MESSAGES_OF_FLOOD = 64 * KIB // 200 + 1
LISTEN_KEY = "a-key-that-may-only-listen"


async def refused(
    bus: Bus, queue: str, message: Any, kind: type[ServiceBusError], connection_string: str | None = None
) -> ServiceBusError:
    """The exception of a send; exactly of this class."""
    async with bus.client(connection_string) as client, client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError) as caught:
            await sender.send_messages(message)
    assert type(caught.value) is kind
    return caught.value


def check_log(broker: BrokerProcess, queue: str, problem: ServiceBusError, fault: str, attempts: int) -> list[Refusal]:
    """The log has the caller's tracking id, and as many refusals as the client made attempts."""
    refusals = broker.refusals(queue)
    assert [refusal.fault for refusal in refusals] == [fault] * attempts
    assert refusals[-1].tracking_id == tracking_id(problem)
    return refusals


async def still_works(bus: Bus, queue: str, broker: BrokerProcess, session_id: str | None = None) -> bool:
    await bus.put(queue, "m", session_id=session_id)
    return broker.count(queue) == 1


@both
async def test_a_message_that_is_too_large_is_not_tried_again(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    problem = await refused(bus, queue, ServiceBusMessage(bytes(256 * 1024)), MessageSizeExceededError)
    check_log(broker, queue, problem, "message-too-large", ONCE)
    assert await still_works(bus, queue, broker)


@both
async def test_a_message_larger_than_any_buffer_is_refused_and_its_sender_goes_on(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    async with bus.sender(queue) as sender:
        with pytest.raises(MessageSizeExceededError) as caught:
            await sender.send_messages(ServiceBusMessage(bytes(5 * 1024 * 1024)))
        await sender.send_messages(ServiceBusMessage("small"))
    check_log(broker, queue, caught.value, "message-too-large", ONCE)
    assert broker.count(queue) == 1


async def refused_while(bus: Bus, broker: BrokerProcess, queue: str, status: str, *, early: bool) -> None:
    """A sender that was there before, or one that comes when the queue is disabled already."""
    async with bus.client() as client:
        sender = client.get_queue_sender(queue)
        if early:
            await sender.send_messages(ServiceBusMessage("while it was active"))
        broker.update_queue(queue, Status=status)
        with pytest.raises(MessagingEntityDisabledError) as caught:
            await sender.send_messages(ServiceBusMessage("too late"))
        await sender.close()
    check_log(broker, queue, caught.value, "entity-disabled", WITH_RETRIES)
    broker.update_queue(queue, Status="Active")
    assert broker.count(queue) == (1 if early else 0)


@both
async def test_a_disabled_queue_is_tried_again(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    cases = itertools.product(("Disabled", "SendDisabled"), (True, False))
    await asyncio.gather(*[refused_while(bus, broker, new_queue(), status, early=early) for status, early in cases])


@both
async def test_a_policy_that_may_only_listen_cannot_send(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(AuthorizationRules=[Rule("listener", ("Listen",), LISTEN_KEY)])
    async with bus.client(broker.connection_string("listener", LISTEN_KEY)) as client:
        sender = client.get_queue_sender(queue)
        with pytest.raises(ServiceBusAuthorizationError) as caught:
            await sender.send_messages(ServiceBusMessage("m"))
        await sender.close()
    check_log(broker, queue, caught.value, "unauthorized", ONCE)
    assert broker.count(queue) == 0


@both
async def test_a_missing_session_id_is_not_tried_again(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(RequiresSession=True)
    problem = await refused(bus, queue, ServiceBusMessage("m"), ServiceBusError)
    check_log(broker, queue, problem, "not-allowed", ONCE)
    assert await still_works(bus, queue, broker, session_id="s")


@both
async def test_a_queue_that_was_deleted_meanwhile_is_told_by_its_name(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue()
    # The client takes the end of the link for that of the connection, tries again, and is told at $cbs.
    async with bus.client(retry_total=1) as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("m"))
        broker.delete_queue(queue)
        with pytest.raises(ServiceBusAuthenticationError) as caught:
            await sender.send_messages(ServiceBusMessage("too late"))
        await sender.close()
    assert queue in told(caught.value)


@pytest.fixture
def full_queue(broker: BrokerProcess, new_queue: NewQueue) -> str:
    queue = new_queue(MaxSizeInMegabytes=1024)
    fill(broker, queue, megabytes=1024)
    return queue


@both
async def test_a_full_queue_is_not_tried_again_and_takes_messages_when_it_is_made_larger(
    bus: Bus, full_queue: str, broker: BrokerProcess
) -> None:
    problem = await refused(bus, full_queue, ServiceBusMessage("m"), ServiceBusQuotaExceededError)
    await bus.barrier.wait()
    refusals = broker.refusals(full_queue)
    assert [refusal.fault for refusal in refusals] == ["quota-exceeded"] * 2, "one for each flavour"
    assert tracking_id(problem) in {refusal.tracking_id for refusal in refusals}
    await bus.once(lambda: broker.update_queue(full_queue, MaxSizeInMegabytes=2048))
    await bus.send(full_queue, ServiceBusMessage("m"))
    await bus.barrier.wait()
    assert broker.count(full_queue) == 3


ACCEPTED = 0x24  # As proton has it, which sends the flood.


class Flood:
    """More messages than the broker keeps waiting for one store's commit, while that store commits nothing."""

    def __init__(self, broker: BrokerProcess, queue: str) -> None:
        self.broker = broker
        self.queue = queue
        self._stall = ExitStack()
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._stall.enter_context(stalled(broker, queue))
        self._outcomes = self._pool.submit(self._send)
        wait_for(self._has_risen, "the flood")

    def _send(self) -> set[int]:
        from proton import Message

        from support.peer import connected, pump_until

        message = Message(body=bytes(200 * KIB), inferred=True)
        with connected(self.broker) as connection:
            sender = connection.create_sender(self.queue)
            pump_until(connection, lambda: sender.link.credit >= MESSAGES_OF_FLOOD, "credit")
            deliveries = [sender.link.send(message) for _ in range(MESSAGES_OF_FLOOD)]
            pump_until(connection, lambda: all(delivery.settled for delivery in deliveries), "outcomes")
            return {delivery.remote_state for delivery in deliveries}

    def _has_risen(self) -> bool:
        return self.broker.metric("twinbus_pending_bytes") > 64 * KIB * KIB

    def end(self) -> None:
        """Let the store commit; everything of the flood is accepted then."""
        self._stall.close()
        self._pool.shutdown()
        assert self._outcomes.result() == {ACCEPTED}


@pytest.fixture
def busy(broker: BrokerProcess, new_queue: NewQueue) -> Iterator[Flood]:
    optional.needs("proton")
    flood = Flood(broker, new_queue())
    yield flood
    flood.end()


@both
async def test_a_broker_that_is_busy_is_tried_again(bus: Bus, busy: Flood, broker: BrokerProcess) -> None:
    async with bus.sender(busy.queue) as sender:
        with pytest.raises(ServiceBusServerBusyError) as caught:
            await sender.send_messages(ServiceBusMessage("m"))
        await bus.barrier.wait()
        refusals = broker.refusals(busy.queue)
        assert [refusal.fault for refusal in refusals] == ["server-busy"] * 2 * WITH_RETRIES
        assert tracking_id(caught.value) in {refusal.tracking_id for refusal in refusals}
        await bus.once(busy.end)
        await sender.send_messages(ServiceBusMessage("m"))
    await bus.barrier.wait()
    assert broker.count(busy.queue) == 1 + MESSAGES_OF_FLOOD + 2
