"""Active and passive replication, by the names of what the documents describe."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from support import journals
from support.replicated import Twins
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Mode, Toward


async def test_active_sends_both_copies_and_each_message_is_worked_on_once(twins: Twins) -> None:
    queue = twins.queue()
    ids = [f"m{number}" for number in range(20)]
    async with twins.client("active", ledger=twins.ledger()) as client:
        async with client.get_queue_sender(queue) as sender:
            await twins.send(sender, *ids)
        assert twins.left(queue) == (20, 20)
        async with client.get_queue_receiver(queue) as receiver:
            await twins.work(receiver, 20, queue)
    assert twins.worked == dict.fromkeys(ids, 1)
    assert twins.left(queue) == (0, 0)
    assert twins.verdict().lost == ()


@pytest.mark.parametrize("tag", ["subject", "property:job-id"])
async def test_copies_are_told_by_their_label_or_by_a_property(twins: Twins, tag: str) -> None:
    """Not by the MessageId: a repetition may have another one, and two jobs the same."""
    queue = twins.queue()

    def job(name: str, message_id: str) -> ServiceBusMessage:
        if tag == "subject":
            return ServiceBusMessage(name, message_id=message_id, subject=name)
        return ServiceBusMessage(name, message_id=message_id, application_properties={"job-id": name})

    async with twins.client("active", ledger=twins.ledger(tag=tag)) as client:
        async with client.get_queue_sender(queue) as sender:
            for name, message_id in (("job-1", "a"), ("job-1", "b"), ("job-2", "b")):
                await sender.send_messages(job(name, message_id))
            with pytest.raises(ValueError, match=f"The message has no {tag}"):
                await sender.send_messages(ServiceBusMessage(b"x", message_id="c"))
        assert [sent.tags for sent in twins.sent] == [("job-1",), ("job-1",), ("job-2",)]
        assert twins.left(queue) == (3, 3)
        done: list[str] = []
        async with client.get_queue_receiver(queue) as receiver:
            while twins.left(queue) != (0, 0):
                for message in await receiver.receive_messages(5, max_wait_time=0.6):
                    done.append(str(message))
                    await receiver.complete_message(message)
    assert sorted(done) == ["job-1", "job-2"]


async def test_active_goes_on_with_one_namespace_down_and_fails_only_with_both(twins: Twins) -> None:
    queue = twins.queue()
    async with twins.client("active", ledger=twins.ledger()) as client, client.get_queue_sender(queue) as sender:
        assert await twins.send(sender, "both")
        twins.proxies[0].set(Mode.REFUSE)
        assert await twins.send(sender, "second-only")
        twins.proxies[1].set(Mode.REFUSE)
        assert not await twins.send(sender, "neither")
        twins.proxies[0].set(Mode.PASS)
        twins.proxies[1].set(Mode.PASS)
        async with client.get_queue_receiver(queue) as receiver:
            await twins.work(receiver, 2)
    assert [sent.namespaces for sent in twins.sent] == [("contoso", "fabrikam"), ("fabrikam",)]
    assert {"both", "second-only"} <= set(twins.worked)
    assert max(twins.worked.values()) == 1


async def test_a_message_without_an_id_gets_one_for_both_copies(twins: Twins) -> None:
    queue = twins.queue()
    async with twins.client("active", ledger=twins.ledger()) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(b"a"), ServiceBusMessage(b"b")])
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage(b"c"))
            await sender.send_messages(batch)
        async with client.get_queue_receiver(queue) as receiver:
            await twins.work(receiver, 3, queue)
    assert len(twins.worked) == 3
    assert set(twins.worked.values()) == {1}
    assert twins.left(queue) == (0, 0)


async def test_passive_without_a_fault_is_one_billed_operation_and_none_at_the_backup(twins: Twins) -> None:
    queue = twins.queue()
    async with twins.client("passive") as client, client.get_queue_sender(queue) as sender:
        await twins.send(sender, "m1")
        assert twins.proxies[1].connections == 0
    # The test itself created the queues.
    done = [[entry.operation for entry in journals.entries(broker, queue)] for broker in twins.brokers]
    assert [[operation for operation in each if operation != "manage"] for each in done] == [["send"], []]


async def test_passive_swaps_the_roles_when_the_backup_takes_what_the_active_one_did_not(twins: Twins) -> None:
    queue = twins.queue()
    async with twins.client("passive") as client, client.get_queue_sender(queue) as sender:
        twins.proxies[0].set(Mode.REFUSE)
        assert await twins.send(sender, "m1", "m2")
        assert client.active(queue) == "fabrikam"
        twins.proxies[0].set(Mode.PASS)
        assert await twins.send(sender, "m3")
    assert twins.swaps == [(queue, "fabrikam")]
    assert twins.left(queue) == (0, 3)


async def test_both_fail_and_the_roles_are_as_before(twins: Twins) -> None:
    queue = twins.queue()
    async with twins.client("passive") as client, client.get_queue_sender(queue) as sender:
        for proxy in twins.proxies:
            proxy.set(Mode.REFUSE)
        with pytest.raises(ServiceBusError) as raised:
            await sender.send_messages(ServiceBusMessage(b"x"))
        assert "other namespace" in "".join(raised.value.__notes__)
        assert client.active(queue) == "contoso"
        for proxy in twins.proxies:
            proxy.set(Mode.PASS)
        assert await twins.send(sender, "m1")
    assert twins.swaps == []
    assert twins.left(queue) == (1, 0)


async def test_an_error_that_another_namespace_would_not_cure_goes_to_the_caller(twins: Twins) -> None:
    queue = twins.queue()
    async with twins.client("passive") as client, client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage(b"x" * 300_000))
        assert client.active(queue) == "contoso"
    assert twins.left(queue) == (0, 0)


async def test_m1_in_the_dead_primary_arrives_after_m2_when_it_returns(twins: Twins) -> None:
    queue = twins.queue()
    order: list[str] = []
    async with twins.client("passive", ledger=twins.ledger()) as client:
        async with client.get_queue_sender(queue) as sender:
            twins.kept.add("m1")
            await twins.send(sender, "m1")
            twins.primary.kill()
            await twins.send(sender, "m2")
        async with client.get_queue_receiver(queue, max_wait_time=30) as receiver:
            async for message in receiver:
                order.append(str(message.message_id))
                twins.worked[order[-1]] += 1
                await receiver.complete_message(message)
                if len(order) == 2:
                    break
                twins.primary.start()
    assert order == ["m2", "m1"]
    assert twins.settle().recovered == 1


async def test_in_a_disaster_m1_never_arrives_and_is_listed(twins: Twins) -> None:
    """The primary is gone with its disk; what is put in its place later is empty."""
    queue = twins.queue()
    async with twins.client("passive", ledger=twins.ledger()) as client:
        async with client.get_queue_sender(queue) as sender:
            twins.kept.add("m1")
            await twins.send(sender, "m1")
            twins.primary.kill()
            shutil.rmtree(twins.primary.data)
            await twins.send(sender, "m2")
        async with client.get_queue_receiver(queue) as receiver:
            await twins.work(receiver, 1)
            twins.primary.start()
            twins.primary.create_queue(queue)
            await twins.work(receiver, 1, queue)
    assert twins.worked == {"m2": 1}
    assert twins.settle(lost=["m1"]).lost == ("m1",)
    # The sender's log also says where it was.
    assert [(sent.tags, sent.namespaces) for sent in twins.sent] == [(("m1",), ("contoso",)), (("m2",), ("fabrikam",))]


async def test_an_answer_was_lost_and_the_first_copy_was_received_before_the_outage(twins: Twins) -> None:
    queue = twins.queue()
    ledger = twins.ledger()
    async with twins.client("passive", ledger=ledger) as client:
        async with client.get_queue_sender(queue) as sender:
            await lose_the_answer(twins, sender)
            assert twins.left(queue) == (2, 1)
            twins.proxies[1].set(Mode.REFUSE)  # Only the primary's copies are within reach.
            async with client.get_queue_receiver(queue) as receiver:
                await twins.work(receiver, 2)
            assert twins.worked == {"before": 1, "m": 1}
            twins.primary.kill()
            twins.proxies[1].set(Mode.PASS)
            while not await twins.send(sender, "after"):  # Its old connection was cut.
                await asyncio.sleep(0.05)
        async with client.get_queue_receiver(queue) as receiver:
            await twins.work(receiver, 3)
            twins.primary.start()
            await twins.work(receiver, 3, queue)
    assert twins.worked == {"before": 1, "m": 1, "after": 1}
    assert ledger.metrics()["suppressed"] == 1
    twins.settle(received=twins.worked + Counter(suppressed=1))


async def test_an_answer_was_lost_and_the_first_copy_appears_only_after_the_outage(twins: Twins) -> None:
    queue = twins.queue()
    ledger = twins.ledger()
    async with twins.client("passive", ledger=ledger) as client:
        async with client.get_queue_sender(queue) as sender:
            await lose_the_answer(twins, sender)
        twins.primary.kill()
        async with client.get_queue_receiver(queue) as receiver:
            await twins.work(receiver, 1)
            assert twins.worked == {"m": 1}
            twins.primary.start()
            await twins.work(receiver, 2, queue)
    assert twins.worked == {"before": 1, "m": 1}
    assert ledger.metrics()["suppressed"] == 1
    twins.settle(received=twins.worked + Counter(suppressed=1))


async def lose_the_answer(twins: Twins, sender: Any) -> None:
    """`m` is stored by the primary and, because nobody heard of it, sent to the secondary too."""
    assert await twins.send(sender, "before")  # The link is open, so that the next frame lost is an answer to a send.
    twins.proxies[0].cut(Says.DISPOSITION, Toward.CLIENT)
    assert await twins.send(sender, "m")
