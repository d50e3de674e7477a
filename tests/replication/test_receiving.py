"""Receivers of two namespaces: settling, lost locks, sessions, subscriptions, and what happens to held copies."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError

from support.broker import BrokerProcess
from support.pair_scene import until
from support.postgres import PostgresServer
from support.replicated import Twins
from support.sdk import confirms_settlements
from twinbus.faults.proxy import Mode
from twinbus.pair.aio import Ledger, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.ledger.decisions import State
from twinbus.pair.replication import held_copies as receiving_holding


async def first(receiver: Any, wait_s: float = 30.0) -> Any:
    (message,) = await receiver.receive_messages(1, max_wait_time=wait_s)
    return message


def create(broker: BrokerProcess, path: str, kind: str) -> None:
    """A topic or a subscription with the settings that are usual."""
    space = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    content = f'<content type="application/xml"><{kind} xmlns="{space}"/></content>'
    entry = f'<entry xmlns="http://www.w3.org/2005/Atom">{content}</entry>'
    status, text = broker.request("PUT", f"/{path}?api-version=2021-05", entry)
    assert status == 201, text


async def send_to(broker: BrokerProcess, queue: str, message_id: str) -> None:
    """A message for one namespace alone."""
    async with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
        client.get_queue_sender(queue) as sender,
    ):
        await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))


async def taken_from(broker: BrokerProcess, queue: str) -> str | None:
    """The message that somebody else gets from a namespace now, long before a lock of the test's queue ends."""
    async with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        for message in await receiver.receive_messages(1, max_wait_time=10):
            await receiver.complete_message(message)
            return message.message_id
    return None


async def filled(twins: Twins, stack: AsyncExitStack, *message_ids: str, **settings: Any) -> tuple[str, Any, Ledger]:
    """A queue with both copies of some messages, a client and its ledger."""
    ledger = twins.ledger(**settings.pop("ledger", {}))
    client_settings = settings.pop("client", {})
    queue = twins.queue(**settings)
    client = await stack.enter_async_context(twins.client("active", ledger=ledger, **client_settings))
    async with client.get_queue_sender(queue) as sender:
        await twins.send(sender, *message_ids)
    return queue, client, ledger


async def test_a_second_copy_is_held_with_its_lock_renewed_until_the_first_is_done(
    twins: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving_holding, "RENEW_S", 8.0)  # With every look, so that whoever is slow is early enough.
    async with AsyncExitStack() as stack:
        queue, client, ledger = await filled(twins, stack, "m", LockDuration="PT8S")
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        message = await first(receiver)
        while not receiver._receiving._holding._held:
            assert await receiver.receive_messages(1, max_wait_time=0.5) == []
        (held,) = receiver._receiving._holding._held
        first_until = held.message.locked_until_utc
        while datetime.now(UTC) <= first_until:
            await receiver.renew_message_lock(message)
            assert await receiver.receive_messages(1, max_wait_time=1) == []
        # Held for longer than its lock: it was renewed, and is still the first delivery.
        (held,) = receiver._receiving._holding._held
        assert held.message.delivery_count == 0
        await receiver.complete_message(message)
        await until(lambda: twins.left(queue) == (0, 0), "the second copy's completion")
        assert ledger.metrics()["suppressed"] == 1


async def test_a_claim_that_lapses_lets_the_other_copy_be_handed_out(twins: Twins) -> None:
    """The worker hangs and its namespace is gone; the message does not wait for either."""
    async with AsyncExitStack() as stack:
        queue, client, _ = await filled(twins, stack, "m", LockDuration="PT5S", ledger={"lease": 1.0})
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        one = await first(receiver)
        twins.proxies[0 if "contoso" in str(one._twinbus_handed) else 1].set(Mode.REFUSE)
        other = await first(receiver)
        assert other.message_id == one.message_id
        assert other._twinbus_handed[1] != one._twinbus_handed[1]
        await receiver.complete_message(other)


async def test_an_abandoned_message_is_handed_out_again_from_the_same_namespace(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, _ = await filled(twins, stack, "m")
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        one = await first(receiver)
        await receiver.abandon_message(one)
        again = await first(receiver)
        assert again._twinbus_handed == one._twinbus_handed
        assert again.delivery_count == 1
        await receiver.complete_message(again)
        await twins.settled(receiver, queue)


async def test_dead_lettering_counts_as_done_and_leaves_one_dead_letter(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, _ = await filled(twins, stack, "m")
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        await receiver.dead_letter_message(await first(receiver), reason="no good", error_description="at all")
        await twins.settled(receiver, queue)
        dead = [broker.count(queue, "DeadLetterMessageCount") for broker in twins.brokers]
        assert sorted(dead) == [0, 1]
        letters = await stack.enter_async_context(
            client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        )
        letter = await first(letters)
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("no good", "at all")
        await letters.complete_message(letter)


async def test_a_deferred_message_is_got_by_its_number_and_its_other_copy_is_gone(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, _ = await filled(twins, stack, "m")
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        one = await first(receiver)
        await receiver.defer_message(one)
        await twins.settled(receiver, queue, left=1)
        assert await receiver.receive_messages(1, max_wait_time=0.6) == []
        (again,) = await receiver.receive_deferred_messages(one.sequence_number)
        assert again.message_id == "m"
        await receiver.complete_message(again)
        assert sum(twins.left(queue)) == 0


async def test_a_deferred_number_is_of_its_namespace_and_never_an_ordinary_message(twins: Twins) -> None:
    """Numbers are each namespace's own: two different messages have the same one, and a third waits in the receiver."""
    async with AsyncExitStack() as stack:
        queue, client, _ = await filled(twins, stack)
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        for broker, message_id in zip(twins.brokers, ("in contoso", "in fabrikam"), strict=True):
            await send_to(broker, queue, message_id)
        deferred = [await first(receiver) for _ in range(2)]
        assert [message.sequence_number for message in deferred] == [1, 1]
        came_from = {message.message_id: receiver.namespace_of(message) for message in deferred}
        assert came_from == {"in contoso": "contoso", "in fabrikam": "fabrikam"}
        for message in deferred:
            await receiver.defer_message(message)
        for broker in twins.brokers:
            await send_to(broker, queue, f"ordinary in {broker.namespace}")
        ordinary = [await first(receiver)]
        await until(lambda: any(source.messages for source in receiver._receiving.sources), "a message that waits")

        with pytest.raises(ValueError, match="There is no namespace 'elsewhere': contoso, fabrikam"):
            await receiver.receive_deferred_messages(1, namespace="elsewhere")
        (only,) = await receiver.receive_deferred_messages(1, namespace="fabrikam")
        assert only.message_id == "in fabrikam"
        await receiver.abandon_message(only)
        both = await receiver.receive_deferred_messages(1)
        assert {message.message_id for message in both} == {"in contoso", "in fabrikam"}
        ordinary.append(await first(receiver))
        assert {message.message_id for message in ordinary} == {"ordinary in contoso", "ordinary in fabrikam"}
        for message in [*both, *ordinary]:
            await receiver.complete_message(message)
        assert twins.left(queue) == (0, 0)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(1)


class SilentLedger:
    """Has a ledger not answer any more, until it may."""

    def __init__(self, ledger: Ledger) -> None:
        self.asked = asyncio.Event()
        self._claim = ledger.claim
        self._waiting: list[tuple[Any, Future[Any]]] = []
        ledger.claim = self.claim  # type: ignore[method-assign]

    def claim(self, claims: Any) -> list[Future[Any]]:
        made: list[Future[Any]] = [Future() for _ in claims]
        self._waiting += zip(claims, made, strict=True)
        if made:
            self.asked.set()
        return made

    def answer(self) -> None:
        for claim, future in self._waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(self._claim([claim])[0].result())


async def test_what_the_ledger_has_not_judged_yet_goes_back_when_the_receiver_is_closed(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, ledger = await filled(twins, stack, "m", LockDuration="PT5M")
        silent = SilentLedger(ledger)
        receiver = client.get_queue_receiver(queue)
        receiving = asyncio.create_task(receiver.receive_messages(10, max_wait_time=60))
        await silent.asked.wait()
        began = asyncio.get_running_loop().time()
        await receiver.close()
        assert asyncio.get_running_loop().time() - began < 15
        assert [await taken_from(broker, queue) for broker in twins.brokers] == ["m", "m"]
        silent.answer()
        with pytest.raises(ValueError, match="The receiver has been closed"):
            await receiving


async def test_a_copy_that_is_held_goes_back_when_the_receiver_is_closed_in_the_midst_of_a_look(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, ledger = await filled(twins, stack, "m", LockDuration="PT5M")
        receiver = client.get_queue_receiver(queue)
        await first(receiver)
        while not receiver._receiving._holding._held:
            assert await receiver.receive_messages(1, max_wait_time=0.5) == []
        (held,) = receiver._receiving._holding._held
        silent = SilentLedger(ledger)
        await silent.asked.wait()
        await receiver.close()
        (broker,) = [broker for broker in twins.brokers if broker.namespace == held.source.namespace]
        assert await taken_from(broker, queue) == "m"


async def test_who_gives_up_waiting_leaves_what_has_come_to_the_next_call(twins: Twins) -> None:
    """Deleted at the broker and marked as done: nobody else could ever have it."""
    async with AsyncExitStack() as stack:
        queue, client, ledger = await filled(twins, stack)
        await send_to(twins.primary, queue, "m")
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue, receive_mode=mode))
        silent = SilentLedger(ledger)
        receiving = asyncio.create_task(receiver.receive_messages(1, max_wait_time=60))
        await silent.asked.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        ledger.claim = silent._claim  # type: ignore[method-assign]
        await asyncio.to_thread(silent.answer)
        assert (await first(receiver)).message_id == "m"


async def test_receive_and_delete_marks_at_hand_out(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, ledger = await filled(twins, stack, "m1", "m2", "m3")
        receiver = await stack.enter_async_context(
            client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        )
        received: list[str] = []
        while len(received) < 3 or sum(twins.left(queue)):
            received += [str(message.message_id) for message in await receiver.receive_messages(3, max_wait_time=0.6)]
        assert sorted(received) == ["m1", "m2", "m3"]
        assert {record.state for record in ledger.export()} == {State.DONE}
        assert twins.left(queue) == (0, 0)


async def test_a_lost_lock_is_no_error_where_the_ledger_knows_that_the_work_is_done(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, ledger = await filled(twins, stack, "m")
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        message = await first(receiver)
        for broker in twins.brokers:
            broker.update_queue(queue)  # A change of settings drops all locks.
        await receiver.complete_message(message)
        await twins.settled(receiver, queue)
        assert ledger.metrics()["handed_out"] == 1


@confirms_settlements
async def test_a_lost_lock_is_an_error_where_that_is_wanted(twins: Twins) -> None:
    async with AsyncExitStack() as stack:
        queue, client, _ = await filled(twins, stack, "m", client={"goes_on": False})
        receiver = await stack.enter_async_context(client.get_queue_receiver(queue))
        message = await first(receiver)
        for broker in twins.brokers:
            broker.update_queue(queue)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)


@confirms_settlements
async def test_one_receiver_of_a_pair_may_want_the_error_too(twins: Twins) -> None:
    queue = twins.queue()
    strings = [broker.connection_string() for broker in twins.brokers]
    options = SendAvailabilityOptions(backlog_queue_count=1)
    async with PairedServiceBusClient.from_connection_strings(*strings, options) as client:
        await client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x", message_id="m"))
        async with client.get_queue_receiver(queue, ledger=twins.ledger(), goes_on=False) as receiver:
            message = await first(receiver)
            twins.primary.update_queue(queue)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(message)


@confirms_settlements
async def test_the_bare_sdk_stops_at_a_lost_lock(twins: Twins) -> None:
    """Why ours go on."""
    queue = twins.primary.create_queue(f"{twins.name}-bare")
    async with ServiceBusClient.from_connection_string(twins.primary.connection_string()) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"x"))
        async with client.get_queue_receiver(queue) as receiver:
            message = await first(receiver)
            twins.primary.update_queue(queue)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(message)


@confirms_settlements
async def test_an_ordinary_receiver_of_a_pair_has_a_lost_lock_told_and_the_message_again(twins: Twins) -> None:
    """docs/pairing.md says why: without a ledger nobody knows whether the work was done."""
    queue = twins.queue()
    strings = [broker.connection_string() for broker in twins.brokers]
    async with PairedServiceBusClient.from_connection_strings(*strings) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="m"))
        async with client.get_queue_receiver(queue) as receiver:
            message = await first(receiver)
            twins.primary.update_queue(queue)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(message)
            again = await first(receiver)
            await receiver.complete_message(again)
    assert (again.message_id, twins.primary.count(queue)) == ("m", 0)


async def test_sessions_are_read_from_both_namespaces_in_order_with_the_lock_renewer(twins: Twins) -> None:
    queue = twins.queue(RequiresSession=True)
    async with twins.client("active", ledger=twins.ledger()) as client, AutoLockRenewer() as renewer:
        async with client.get_queue_sender(queue) as sender:
            for number in range(5):
                await twins.send(sender, f"m{number}", session_id="s")
        received = []
        receiver = client.get_queue_receiver(
            queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30, auto_lock_renewer=renewer
        )
        async with receiver:
            assert receiver.session.session_id == "s"
            async for message in receiver:
                received.append(str(message.message_id))
                await receiver.complete_message(message)
                if len(received) == 5:
                    break
            await twins.settled(receiver, queue)
        assert received == [f"m{number}" for number in range(5)]
        assert twins.left(queue) == (0, 0)


async def test_subscriptions_with_mapped_names_are_scopes_of_their_own(twins: Twins) -> None:
    topic = twins.name
    for broker, suffix in ((twins.primary, ""), (twins.secondary, "-b")):
        create(broker, topic + suffix, "TopicDescription")
        for name in ("one", "two"):
            create(broker, f"{topic}{suffix}/subscriptions/{name}", "SubscriptionDescription")
    async with twins.client("active", ledger=twins.ledger(), entities={topic: f"{topic}-b"}) as client:
        async with client.get_topic_sender(topic) as sender:
            await twins.send(sender, "m1", "m2")
        for name in ("one", "two"):
            ids: list[str] = []
            async with client.get_subscription_receiver(topic, name) as receiver:
                while (messages := await receiver.receive_messages(2, max_wait_time=1)) or len(ids) < 2:
                    for message in messages:
                        ids.append(str(message.message_id))
                        await receiver.complete_message(message)
            assert sorted(ids) == ["m1", "m2"]


async def test_two_receivers_on_one_ledger_in_postgresql(twins: Twins, postgres: PostgresServer) -> None:
    schema = postgres.new_schema()
    postgres.execute(f"CREATE SCHEMA {schema}")
    where = f"{postgres.connection_url}?options=-csearch_path%3D{schema}"
    queue = twins.queue()
    ids = [f"m{number}" for number in range(40)]
    async with Ledger(where) as one, Ledger(where) as two:
        async with twins.client("active", ledger=one) as client, client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(b"x", message_id=message_id) for message_id in ids])

        async def consume(ledger: Ledger) -> None:
            async with twins.client("active", ledger=ledger) as client, client.get_queue_receiver(queue) as receiver:
                await twins.work(receiver, len(ids), queue)

        await asyncio.gather(consume(one), consume(two))
        assert twins.worked == dict.fromkeys(ids, 1)
        assert twins.left(queue) == (0, 0)
        assert one.metrics()["suppressed"] + two.metrics()["suppressed"] >= 40
