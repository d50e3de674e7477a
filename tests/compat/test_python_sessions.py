"""Sessions with the official client: accepting, order, one holder, state, locks, and what ends them.

Messages without a session id are refused; see `test_python_rejections`.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from support.broker import SOON_S, BrokerProcess, NewQueue
from support.sdk import Bus, bare, both, break_off, nothing_comes, receive, receive_one, together

pytestmark = pytest.mark.feature("sessions")

# The client's own renewer renews when ten seconds are left: so much may go wrong on a busy machine.
LOCK_S = 12


async def send(bus: Bus, queue: str, session_id: str, *bodies: str) -> None:
    await bus.put(queue, *bodies, session_id=session_id)


async def open_fails(bus: Bus, queue: str, kind: type[ServiceBusError], **options: Any) -> None:
    """Accepting a session must fail in this way, without retries."""
    async with bus.client(retry_total=0) as client:
        receiver = client.get_queue_receiver(queue, **options)
        with pytest.raises(kind):
            await receiver.__aenter__()
        await receiver.close()


@pytest.mark.gateways
@both
async def test_a_named_session_gives_its_messages_in_order_and_no_others(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "a", "a0", "a1")
    await send(bus, queue, "b", "b0", "b1", "b2", "b3")
    await send(bus, queue, "a", "a2", "a3")
    receivers = [bus.receiver(queue, session_id=name) for name in ("a", "b")]
    async with together(*receivers) as (of_a, of_b):
        assert of_a.session.session_id == "a"
        received = await receive(of_a, 4)
        assert [str(message) for message in received] == ["a0", "a1", "a2", "a3"]
        assert {message.session_id for message in received} == {"a"}
        for message in received:
            await of_a.complete_message(message)
        assert await nothing_comes(of_a)
        assert [str(message) for message in await receive(of_b, 4)] == ["b0", "b1", "b2", "b3"]


@both
async def test_order_holds_when_a_message_is_abandoned(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "s", "one", "two", "three")
    async with bus.receiver(queue, session_id="s") as receiver:
        first = await receive_one(receiver)
        await receiver.abandon_message(first)
        received = await receive(receiver, 3)
        assert [(str(m), m.delivery_count) for m in received] == [("one", 1), ("two", 0), ("three", 0)]
        for message in received:
            await receiver.complete_message(message)


@pytest.mark.gateways
@both
async def test_the_next_available_session_is_one_with_messages_that_nobody_holds(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "one", "m")
    await send(bus, queue, "two", "m")
    async with together(
        bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON_S),
        bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON_S),
    ) as (first, second):
        assert {first.session.session_id, second.session.session_id} == {"one", "two"}
        for receiver in (first, second):
            message = await receive_one(receiver)
            assert message.session_id == receiver.session.session_id
            await receiver.complete_message(message)


@both
async def test_a_waiting_accept_gets_the_session_whose_first_message_arrives(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)

    async def accept() -> str:
        options = {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": SOON_S}
        async with bus.receiver(queue, **options) as receiver:
            message = await receive_one(receiver)
            await receiver.complete_message(message)
            return str(receiver.session.session_id)

    waiting = asyncio.create_task(accept())
    await asyncio.sleep(0.7)
    assert not waiting.done()
    await send(bus, queue, "new", "m")
    assert await waiting == "new"


@both
async def test_without_a_free_session_the_accept_times_out_after_max_wait_time(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    began = time.monotonic()
    await open_fails(bus, queue, OperationTimeoutError, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)
    assert time.monotonic() - began > 1.8


@pytest.mark.gateways
@both
async def test_a_session_that_is_held_cannot_be_locked_until_its_receiver_closes(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "s", "m")
    async with bus.receiver(queue, session_id="s") as receiver:
        message = await receive_one(receiver)
        await open_fails(bus, queue, SessionCannotBeLockedError, session_id="s")
    await bus.closed()
    async with bus.receiver(queue, session_id="s") as receiver:
        again = await receive_one(receiver)
        assert again.sequence_number == message.sequence_number
        assert again.delivery_count == 0, "a session given back does not count a delivery"
        await receiver.complete_message(again)


@both
async def test_a_session_whose_connection_broke_off_is_free_again(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "s", "m")
    async with bus.receiver(queue, session_id="s") as receiver:
        message = await receive_one(receiver)
        break_off(receiver)
        async with bus.receiver(queue, session_id="s") as other:
            again = await receive_one(other)
            assert again.sequence_number == message.sequence_number
            await other.complete_message(again)
        with pytest.raises(ServiceBusError):
            await receiver.complete_message(message)


@pytest.mark.gateways
@both
async def test_state_is_set_read_elsewhere_and_cleared(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    async with bus.receiver(queue, session_id="s") as receiver:
        assert await receiver.session.get_state() is None
        await receiver.session.set_state("first")
        await receiver.session.set_state(b"\x00second\xff")
    await bus.closed()
    async with bus.receiver(queue, session_id="s") as receiver:
        assert await receiver.session.get_state() == b"\x00second\xff"
        await receiver.session.set_state("")
        assert await receiver.session.get_state() == b""
        await receiver.session.set_state(None)
        assert await receiver.session.get_state() is None


@both
async def test_sessions_are_listed_by_messages_and_by_state(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=5)

    async def listed(**options: Any) -> list[str]:
        async with bus.client() as client:
            return [session async for session in client.list_queue_sessions(queue, **options)]

    assert await listed() == []
    async with bus.sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage("m", session_id=f"m{n:03}") for n in range(105)])
    async with bus.receiver(queue, session_id="with state") as receiver:
        await receiver.session.set_state("x")
    everything, changed, changed_later = await asyncio.gather(
        listed(),
        listed(state_updated_after=before),
        listed(state_updated_after=before + datetime.timedelta(hours=1)),
    )
    assert sorted(everything) == sorted([*(f"m{n:03}" for n in range(105)), "with state"])
    assert changed == ["with state"]
    assert changed_later == []


async def past(end: datetime.datetime) -> None:
    await asyncio.sleep(end.timestamp() + 0.7 - time.time())


async def renewed_by_hand(receiver: Any) -> None:
    message = await receive_one(receiver)
    first_end = receiver.session.locked_until_utc
    await asyncio.sleep(LOCK_S / 2)
    before = time.time()
    renewed = await receiver.session.renew_lock()
    assert before - 0.5 < renewed.timestamp() - LOCK_S < time.time() + 0.5
    assert receiver.session.locked_until_utc == renewed
    await past(first_end)
    await receiver.complete_message(message)


async def renewed_automatically(bus: Bus, receiver: Any) -> None:
    renewer = bus.renewer()
    renewer.register(bare(receiver), bare(receiver.session), max_lock_renewal_duration=30)
    first_end = receiver.session.locked_until_utc
    message = await receive_one(receiver)
    await past(first_end)
    assert receiver.session.auto_renew_error is None
    await receiver.complete_message(message)
    closing = renewer.close()
    if closing is not None:
        await closing


async def not_renewed(receiver: Any) -> None:
    message = await receive_one(receiver)
    await past(receiver.session.locked_until_utc)
    # The client looks at its own clock first; told otherwise, it asks, and the broker says the same.
    bare(receiver).session._locked_until_utc = None
    with pytest.raises(SessionLockLostError):
        await receiver.complete_message(message)
    with pytest.raises(SessionLockLostError):
        await receiver.session.renew_lock()


@both
async def test_renewing_keeps_a_session_and_without_it_the_lock_is_lost(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True, LockDuration=f"PT{LOCK_S}S")
    names = "by hand", "automatically", "not at all"
    for name in names:
        await send(bus, queue, name, "m")
    receivers = [bus.receiver(queue, session_id=name) for name in names]
    async with together(*receivers) as (by_hand, automatic, lost):
        await asyncio.gather(renewed_by_hand(by_hand), renewed_automatically(bus, automatic), not_renewed(lost))
    await bus.closed()
    async with bus.receiver(queue, session_id="not at all") as receiver:
        again = await receive_one(receiver)
        assert again.delivery_count == 1, "a session lock that expired counts a delivery"
        await receiver.complete_message(again)


@both
async def test_a_change_of_the_queue_ends_session_locks(bus: Bus, new_queue: NewQueue, broker: BrokerProcess) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "s", "m")
    async with bus.receiver(queue, session_id="s") as receiver:
        message = await receive_one(receiver)
        broker.update_queue(queue, RequiresSession=True, LockDuration="PT40S")
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(message)
        async with bus.receiver(queue, session_id="s") as other:
            again = await receive_one(other)
            assert again.delivery_count == 1
            await other.complete_message(again)


@both
async def test_settling_deferring_and_dead_lettering_in_a_session(
    bus: Bus, new_queue: NewQueue, broker: BrokerProcess
) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "s", "done", "later", "dead")
    async with bus.receiver(queue, session_id="s") as receiver:
        done, later, dead = await receive(receiver, 3)
        await receiver.complete_message(done)
        await receiver.defer_message(later)
        await receiver.dead_letter_message(dead, reason="r")
        assert [str(message) for message in await receiver.peek_messages(10, sequence_number=1)] == ["later"]
        (deferred,) = await receiver.receive_deferred_messages(later.sequence_number)
        await receiver.complete_message(deferred)
    # The dead-letter queue of a session queue has no sessions of its own.
    async with bus.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = await receive_one(receiver)
        assert (message.session_id, message.dead_letter_reason) == ("s", "r")
        await receiver.complete_message(message)
    assert broker.queue(queue)["MessageCount"] == "0"


@both
async def test_receive_and_delete_from_a_session(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "s", "one", "two")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with bus.receiver(queue, session_id="s", receive_mode=mode) as receiver:
        assert [str(message) for message in await receive(receiver, 2)] == ["one", "two"]


@both
async def test_a_session_peeks_only_its_own_messages(bus: Bus, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    await send(bus, queue, "a", "a1", "a2")
    await send(bus, queue, "b", "b1")
    async with bus.receiver(queue, session_id="a") as receiver:
        assert [str(message) for message in await receiver.peek_messages(10)] == ["a1", "a2"]


@both
async def test_a_receiver_of_the_wrong_kind_is_refused(bus: Bus, new_queue: NewQueue) -> None:
    without, with_sessions = new_queue(), new_queue(RequiresSession=True)
    await asyncio.gather(
        open_fails(bus, with_sessions, ServiceBusError), open_fails(bus, without, ServiceBusError, session_id="s")
    )
