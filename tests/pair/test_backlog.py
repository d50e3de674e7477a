"""Diverted messages: which queue takes them, what happens when it does not, and what the syphon cannot deliver."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from support.pair_scene import QUICK, Scene, until
from support.storage import fill
from twinbus.faults.frames import Says
from twinbus.faults.proxy import FaultProxy, Mode, Toward
from twinbus.pair import BacklogError, NotWhileDivertedError, RefusedError, SendAvailabilityOptions, State
from twinbus.pair.aio import PairedServiceBusClient
from twinbus.pair.sdk import messages as sdk


async def test_with_an_interval_of_zero_the_failing_send_itself_is_diverted(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        scene.primary.kill()
        assert await scene.send(client.get_queue_sender(queue), "m1")

    assert scene.diverted == {"m1"}
    assert sum(scene.backlog().values()) == 1


async def test_the_first_diverted_send_waits_for_one_answer(scene: Scene) -> None:
    """The links to the secondary are opened when the primary is suspected, and not by the send that needs one."""
    queue = scene.queue()
    beside = (Says.NOTHING, Says.FLOW)  # Nobody waits for these.
    async with FaultProxy(scene.secondary.amqp_port) as way:
        direct = scene.secondary.connection_string()
        client = PairedServiceBusClient.from_connection_strings(
            scene.connection_string(),
            direct.replace(f":{scene.secondary.amqp_port};", f":{way.port};"),
            SendAvailabilityOptions(**{**QUICK, "attempts": 1}),
            primary_name=scene.name,
            on_change=scene.changes.append,
        )
        async with client:
            sender = client.get_queue_sender(queue)
            await sender.send_messages(ServiceBusMessage(b"x"))
            scene.proxy.set(Mode.REFUSE)
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage(b"x"))
            await until(lambda: scene.changes[-1].after is State.FAILED_OVER, "the failover")
            await until(lambda: len(client._core.secondary._senders) == QUICK["backlog_queue_count"], "open links")
            before = Counter(way.seen)
            await sender.send_messages(ServiceBusMessage(b"x"))
            frames = way.seen - before
            assert client.status().diverted == 1

    # One round trip: nothing was opened for it.
    told = {key: count for key, count in frames.items() if key[1] not in beside}
    assert told == {(Toward.BROKER, Says.TRANSFER): 1, (Toward.CLIENT, Says.DISPOSITION): 1}


async def test_a_queue_that_is_disabled_is_left_for_another_in_the_same_call(scene: Scene) -> None:
    queue = scene.queue()
    first, second = (f"{scene.name}/x-servicebus-transfer/{index}" for index in range(2))
    async with scene.client(failover_interval=0) as client:
        scene.primary.kill()
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "m0")
        used = max(scene.backlog(), key=lambda name: scene.backlog()[name])
        scene.secondary.update_queue(used, Status="SendDisabled", MaxSizeInMegabytes=5120)
        assert await scene.send(sender, "m1")
        assert await scene.send(client.get_queue_sender(queue), "m2")
        assert client.status().resting_queues == [used]

    other = second if used == first else first
    assert scene.backlog() == {used: 1, other: 2}


async def test_a_full_queue_is_left_for_another_in_the_same_call(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client():
        full, other = scene.backlog()
    await asyncio.to_thread(fill, scene.secondary, full, 5120)
    async with scene.client(failover_interval=0) as client:
        scene.primary.kill()
        for number in range(6):  # Each sender chooses its queue for itself.
            assert await scene.send(client.get_queue_sender(queue), f"m{number}")

    assert scene.secondary.count(other) == 6
    assert len(scene.diverted) == 6


async def test_when_no_backlog_queue_takes_it_the_caller_is_told(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        scene.primary.kill()
        for name in scene.backlog():
            scene.secondary.delete_queue(name)
        with pytest.raises(BacklogError, match="No backlog queue takes 1 of 1"):
            await client.get_queue_sender(queue).send_messages(ServiceBusMessage(b"x"))


async def test_everything_about_a_message_survives_the_detour(scene: Scene) -> None:
    queue = scene.queue(RequiresSession=True)
    sent = ServiceBusMessage(
        b"body",
        message_id="m1",
        session_id="s1",
        subject="subject",
        content_type="text/x",
        correlation_id="c",
        to="to",
        reply_to="reply",
        reply_to_session_id="rs",
        time_to_live=timedelta(hours=1),
        application_properties={"text": "t", "number": 5, "flag": True, "when": datetime(2026, 1, 1, tzinfo=UTC)},
    )
    async with scene.client(failover_interval=0, enable_syphon=True, poll=1) as client:
        sender = client.get_queue_sender(queue)
        scene.primary.kill()
        await sender.send_messages(sent)
        await asyncio.to_thread(scene.primary.start)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        async with client.get_queue_receiver(queue, session_id="s1") as receiver:
            (got,) = await receiver.receive_messages(1, max_wait_time=30)
            await receiver.complete_message(got)

    assert b"".join(got.body) == b"body"
    for name in ("message_id", "session_id", "subject", "content_type", "correlation_id", "to", "reply_to"):
        assert getattr(got, name) == getattr(sent, name)
    assert got.reply_to_session_id == "rs"
    assert got.time_to_live == timedelta(hours=1)
    properties = {key.decode(): value for key, value in (got.application_properties or {}).items()}
    assert set(properties) == {"text", "number", "flag", "when"}


async def test_the_largest_the_mortal_and_the_oddly_named_come_home(scene: Scene) -> None:
    """Judged by what arrives: sizes to the byte, an expiry that follows from a new birth, properties as they were."""
    queue = scene.queue()
    odd = dict.fromkeys(("x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"), "mine")
    sent = [
        ServiceBusMessage(b"x" * (262_144 - 30), message_id="id"),
        ServiceBusMessage(b"x" * (262_144 - 158), message_id="i" * 128, session_id="s"),
        AmqpAnnotatedMessage(data_body=b"x" * (262_144 - 8)),
        ServiceBusMessage(b"m", message_id="mortal", time_to_live=timedelta(hours=1)),
        ServiceBusMessage(b"o", message_id="odd", application_properties={**odd, "": 1, "#0": 2}),
    ]
    sizes = [len(payload) for message in sent[:3] for payload in sdk.encoded(message)]
    assert sizes == [262_144, 262_144, 262_144]
    async with scene.client(failover_interval=0, enable_syphon=True, poll=1) as client:
        scene.proxy.set(Mode.REFUSE)
        for message in sent:
            await client.get_queue_sender(queue).send_messages(message)
        assert client.status().diverted == len(sent)
        await asyncio.sleep(1.1)  # An expiry has whole seconds.
        healed_ms = time.time() * 1000
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.primary.count(queue) == len(sent), "all messages at home")
        async with client.get_queue_receiver(queue) as receiver:
            got = {str(message.message_id): message for message in await receiver.receive_messages(9, max_wait_time=5)}
        assert client.status().syphon["dead"] == 0

    lengths = sorted(len(b"".join(message.body)) for message in got.values())
    assert lengths == [1, 1, 262_144 - 158, 262_144 - 30, 262_144 - 8]
    mortal = got["mortal"].raw_amqp_message
    assert mortal.header.time_to_live == 3_600_000
    assert mortal.properties.absolute_expiry_time == mortal.properties.creation_time + 3_600_000
    assert healed_ms <= mortal.properties.creation_time <= time.time() * 1000
    properties = {key.decode(): value for key, value in (got["odd"].application_properties or {}).items()}
    assert properties == {**dict.fromkeys(odd, b"mine"), "": 1, "#0": 2}


async def test_what_a_listener_raises_makes_no_send_fail(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = scene.queue()
    heard: list[object] = []

    def raises(news: object) -> None:
        heard.append(news)
        raise RuntimeError("the application's own")

    for options in ({}, {"ordered": True}):
        client = PairedServiceBusClient.from_connection_strings(
            scene.connection_string(),
            scene.secondary.connection_string(),
            SendAvailabilityOptions(**{**QUICK, "attempts": 1, "failover_interval": 0, **options}),
            primary_name=scene.name,
            on_change=raises,
            on_diverted=raises,
            on_queued=raises,
            outbox=tmp_path / "outbox.db",
        )
        scene.proxy.set(Mode.PASS)
        async with client:
            scene.proxy.set(Mode.REFUSE)
            sender = client.get_queue_sender(queue)
            await sender.send_messages(ServiceBusMessage(b"x", session_id="s"))
            await sender.send_messages(ServiceBusMessage(b"x"))
            await client.get_queue_sender(queue, always=True).send_messages(ServiceBusMessage(b"x"))
            assert client.status().diverted >= 2

    assert {type(news).__name__ for news in heard} == {"Change", "Diverted", "Queued"}
    assert "a listener failed" in caplog.text


async def test_a_batch_that_was_begun_before_the_outage_is_diverted_message_by_message(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        batch = await sender.create_message_batch()
        for number in range(10):
            batch.add_message(ServiceBusMessage(b"x", message_id=f"m{number}"))
        scene.primary.kill()
        await sender.send_messages(batch)
        another = await sender.create_message_batch()
        assert another.max_size_in_bytes == batch.max_size_in_bytes
        another.add_message(ServiceBusMessage(b"y", message_id="last"))
        await sender.send_messages(another)

    assert scene.diverted == {*(f"m{number}" for number in range(10)), "last"}


async def test_a_message_as_large_as_the_primary_takes_fits_the_backlog(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        large = ServiceBusMessage(b"x" * (262_144 - 200), message_id="m" * 128)
        await sender.send_messages(large)
        scene.primary.kill()
        await sender.send_messages(large)

    assert len(scene.diverted) == 1


async def test_scheduling_by_number_is_refused_while_diverted(scene: Scene) -> None:
    queue = scene.queue()
    later = datetime.now(UTC) + timedelta(hours=1)
    async with scene.client(failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        scene.primary.kill()
        assert await scene.send(sender, "m1", scheduled_enqueue_time_utc=later)
        with pytest.raises(NotWhileDivertedError, match="scheduled_enqueue_time_utc"):
            await sender.schedule_messages(ServiceBusMessage(b"x"), later)


async def test_a_message_that_cannot_be_restored_goes_to_the_backlog_queues_dead_letters(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(enable_syphon=True, poll=1, missing_entity_wait=0) as client:
        backlog = client.status().backlog_queues[0]
        async with ServiceBusClient.from_connection_string(scene.secondary.connection_string()) as sdk:
            async with sdk.get_queue_sender(backlog) as sender:
                await sender.send_messages(ServiceBusMessage(b"no path", message_id="lost-soul"))
                gone = ServiceBusMessage(b"x", message_id="gone", application_properties={"x-ms-path": "nobody"})
                await sender.send_messages(gone)
                fine = ServiceBusMessage(b"x", message_id="fine", application_properties={"x-ms-path": queue})
                await sender.send_messages(fine)
            async with sdk.get_queue_receiver(backlog, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
                dead = {}
                while len(dead) < 2:
                    for message in await receiver.receive_messages(2, max_wait_time=10):
                        dead[message.message_id] = message
                        await receiver.complete_message(message)
    await scene.receive(queue, 1)

    assert dead["lost-soul"].dead_letter_reason == "NoQueuePath"
    assert dead["gone"].dead_letter_reason == "NotRetryable"
    assert "nobody" in str(dead["gone"].dead_letter_error_description)
    assert scene.received == {"fine": 1}


async def test_a_ping_that_is_refused_for_good_makes_sends_raise_the_reason(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(failover_interval=0) as client:
        sender = client.get_queue_sender(queue)
        scene.primary.kill()
        assert await scene.send(sender, "m1")
        scene.proxy.set(Mode.REFUSE)  # No ping may come before the queue is gone.
        await asyncio.to_thread(scene.primary.start)
        scene.primary.delete_queue(queue)
        scene.proxy.set(Mode.PASS)
        await until(lambda: scene.changes[-1].after is State.REFUSED, "the refusal")
        with pytest.raises(RefusedError, match="could not be found"):
            await sender.send_messages(ServiceBusMessage(b"x"))
        scene.primary.create_queue(queue)
        await until(lambda: scene.changes[-1].after is State.HEALTHY, "healing")
        assert await scene.send(sender, "m2")
