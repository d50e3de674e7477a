"""Topics and subscriptions with the official client: copies, settling, sessions, time, and who may do what.

Rules, which choose the copies, are in `test_python_rules`.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    ServiceBusError,
)

from support.broker import SOON_S, BrokerProcess
from support.gateways import LATER_S
from support.sdk import Bus, both, nothing_comes, receive, receive_one, receiving, together, until
from support.topics import Topics, bodies, receiver, refusals, send, sender, taken, taken_by

pytest_plugins = ["compat.conftest_admin", "compat.conftest_topics"]
pytestmark = pytest.mark.feature("topics")

MOVABLE_CLOCK = True
DEAD = ServiceBusSubQueue.DEAD_LETTER
SECOND = datetime.timedelta(seconds=1)
FIELDS = (
    "message_id",
    "correlation_id",
    "subject",
    "to",
    "reply_to",
    "reply_to_session_id",
    "session_id",
    "partition_key",
    "content_type",
    "time_to_live",
)


@pytest.fixture(scope="module")
def broker(admin_endpoint: Any) -> BrokerProcess:
    found: BrokerProcess = admin_endpoint.broker
    return found


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@both
async def test_a_topic_without_subscriptions_accepts_messages_and_keeps_none(bus: Bus, topics: Topics) -> None:
    topic = topics.new()
    await send(bus, topic, ServiceBusMessage("nobody is here"))
    topics.subscribe(topic, "late")
    await send(bus, topic, ServiceBusMessage("somebody is here"))
    (message,) = await taken(bus, topic, "late", 1)
    assert (str(message), message.sequence_number) == ("somebody is here", 1)
    assert topics.counts(topic, "late").total_message_count == 0


@pytest.mark.gateways
@both
async def test_each_subscription_has_its_own_copy_and_its_own_numbers(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a")
    await send(bus, topic, ServiceBusMessage("first"))
    topics.subscribe(topic, "b")
    topics.subscribe(topic, "c")
    await send(bus, topic, ServiceBusMessage("second", message_id="id"))
    copies = await taken_by(bus, topic, {"a": 2, "b": 1, "c": 1})
    assert [[(str(m), m.sequence_number) for m in copy] for copy in copies] == [
        [("first", 1), ("second", 2)],
        [("second", 1)],
        [("second", 1)],
    ]
    assert {copy[-1].message_id for copy in copies} == {"id"}


@both
async def test_everything_that_the_sender_said_is_in_every_copy(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    sent = ServiceBusMessage(
        b"\x00body\xff",
        message_id="id",
        correlation_id="correlation",
        subject="subject",
        to="to",
        reply_to="reply to",
        reply_to_session_id="reply to session",
        session_id="session",
        partition_key="session",
        content_type="text/plain",
        time_to_live=datetime.timedelta(minutes=5),
        application_properties={"text": "x", "number": 7, "real": 2.5, "flag": True},
    )
    await send(bus, topic, sent)
    for (message,) in await taken_by(bus, topic, {"a": 1, "b": 1}):
        assert b"".join(message.body) == b"\x00body\xff"
        for field in FIELDS:
            assert getattr(message, field) == getattr(sent, field), field
        assert message.application_properties == {b"text": b"x", b"number": 7, b"real": 2.5, b"flag": True}
        assert message.delivery_count == 0


@pytest.mark.gateways
@both
async def test_copies_are_settled_independently(bus: Bus, topics: Topics) -> None:
    topic = topics.new("completes", "abandons", "kills")
    await send(bus, topic, ServiceBusMessage("m"))
    async with together(
        receiver(bus, topic, "completes"), receiver(bus, topic, "abandons"), receiver(bus, topic, "kills")
    ) as (completes, abandons, kills):
        await completes.complete_message(await receive_one(completes))
        await abandons.abandon_message(await receive_one(abandons))
        await kills.dead_letter_message(await receive_one(kills), reason="why", error_description="therefore")
        again = await receive_one(abandons)
        assert again.delivery_count == 1
        assert await nothing_comes(completes)
        assert await nothing_comes(kills)
        await abandons.complete_message(again)
    (dead,) = await taken(bus, topic, "kills", 1, sub_queue=DEAD)
    assert (str(dead), dead.dead_letter_reason) == ("m", "why")
    assert dead.dead_letter_error_description == "therefore"
    for name in ("completes", "abandons", "kills"):
        counts = topics.counts(topic, name)
        assert (counts.active_message_count, counts.dead_letter_message_count) == (0, 0)


@both
async def test_too_many_deliveries_end_in_the_subscriptions_own_dead_letter_queue(bus: Bus, topics: Topics) -> None:
    topic = topics.new("patient")
    topics.subscribe(topic, "strict", max_delivery_count=2)
    await send(bus, topic, ServiceBusMessage("m"))
    async with together(receiver(bus, topic, "strict"), receiver(bus, topic, "patient")) as receivers:
        for one in receivers:
            for _ in range(2):
                await one.abandon_message(await receive_one(one))
    assert topics.counts(topic, "patient").active_message_count == 1
    assert topics.counts(topic, "strict").active_message_count == 0
    (dead,) = await taken(bus, topic, "strict", 1, sub_queue=DEAD)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


@both
async def test_receive_and_delete_takes_the_copy_of_one_subscription(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    await bus.put(topic, "one", "two")
    async with receiver(bus, topic, "a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as one:
        assert bodies(await receive(one, 2)) == ["one", "two"]
    assert topics.counts(topic, "a").total_message_count == 0
    assert topics.counts(topic, "b").active_message_count == 2


@both
async def test_peek_and_deferred_messages_are_the_subscriptions_own(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    await bus.put(topic, "one", "two", "three")
    async with together(receiver(bus, topic, "a"), receiver(bus, topic, "b")) as (a, b):
        first = await receive_one(a)
        await a.defer_message(first)
        peeked = await a.peek_messages(5, sequence_number=1)
        assert [(str(m), m.state) for m in peeked] == [
            ("one", ServiceBusMessageState.DEFERRED),
            ("two", ServiceBusMessageState.ACTIVE),
            ("three", ServiceBusMessageState.ACTIVE),
        ]
        assert bodies(await b.peek_messages(5, sequence_number=2)) == ["two", "three"]
        with pytest.raises(MessageNotFoundError):
            await b.receive_deferred_messages(first.sequence_number)
        (deferred,) = await a.receive_deferred_messages(first.sequence_number)
        assert await a.renew_message_lock(deferred) > now()
        await a.complete_message(deferred)
        assert bodies(await a.peek_messages(5, sequence_number=1)) == ["two", "three"]


@both
async def test_a_waiting_receiver_gets_a_published_message_at_once(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    async with together(receiver(bus, topic, "s"), sender(bus, topic)) as (one, other):
        waiting = asyncio.create_task(receive_one(one))
        await receiving(one)
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await other.send_messages(ServiceBusMessage("m"))
        assert str(await waiting) == "m"


@both
async def test_names_are_found_in_any_case_and_may_contain_slashes(bus: Bus, topics: Topics) -> None:
    topic = f"{topics.new()}/Orders/EU"
    topics.admin.create_topic(topic)
    topics.subscribe(topic, "Audit.log-1_x")
    await send(bus, topic.lower(), ServiceBusMessage("m"))
    assert bodies(await taken(bus, topic.upper(), "AUDIT.LOG-1_X", 1)) == ["m"]


@both
async def test_a_batch_reaches_every_subscription_in_order(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    async with sender(bus, topic) as one:
        batch = await one.create_message_batch()
        for n in range(20):
            batch.add_message(ServiceBusMessage(f"{n}"))
        await one.send_messages(batch)
        await one.send_messages([ServiceBusMessage("20"), ServiceBusMessage("21")])
    for messages in await taken_by(bus, topic, {"a": 22, "b": 22}):
        assert bodies(messages) == [str(n) for n in range(22)]
        assert [message.sequence_number for message in messages] == list(range(1, 23))


@both
async def test_a_batch_with_one_message_that_is_refused_reaches_none(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    good, bad = ServiceBusMessage("good"), ServiceBusMessage("bad", application_properties={"x": "y" * 40_000})
    async with sender(bus, topic) as one:
        with pytest.raises(ServiceBusError):
            await one.send_messages([good, bad])
        await one.send_messages(good)
    for messages in await taken_by(bus, topic, {"a": 1, "b": 1}):
        assert bodies(messages) == ["good"]
    for name in "ab":
        assert topics.counts(topic, name).total_message_count == 0


@pytest.mark.feature("sessions")
@both
async def test_one_subscription_has_sessions_and_another_none(bus: Bus, topics: Topics) -> None:
    topic = topics.new("plain")
    topics.subscribe(topic, "sessions", requires_session=True)
    await bus.put(topic, "a0", "a1", session_id="a")
    await bus.put(topic, "b0", session_id="b")
    await bus.put(topic, "a2", session_id="a")
    async with receiver(bus, topic, "sessions", session_id="a") as one:
        await one.session.set_state("state of a")
        messages = await receive(one, 3)
        assert bodies(messages) == ["a0", "a1", "a2"]
        for message in messages:
            await one.complete_message(message)
    async with receiver(bus, topic, "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON_S) as one:
        assert one.session.session_id == "b"
        assert await one.session.get_state() is None
        await one.complete_message(await receive_one(one))
    async with receiver(bus, topic, "sessions", session_id="a") as one:
        assert await one.session.get_state() == b"state of a"
    assert bodies(await taken(bus, topic, "plain", 4)) == ["a0", "a1", "b0", "a2"]


@pytest.mark.feature("sessions")
@both
async def test_a_message_without_a_session_goes_to_the_dead_letter_queue_of_a_subscription_with_sessions(
    bus: Bus, topics: Topics
) -> None:
    topic = topics.new("plain")
    topics.subscribe(topic, "sessions", requires_session=True)
    await send(bus, topic, ServiceBusMessage("alone"))
    await bus.put(topic, "in a session", session_id="s")
    (dead,), in_session, plain = await asyncio.gather(
        taken(bus, topic, "sessions", 1, sub_queue=DEAD),
        taken(bus, topic, "sessions", 1, session_id="s"),
        taken(bus, topic, "plain", 2),
    )
    assert (str(dead), dead.dead_letter_reason) == ("alone", "Session id is null.")
    assert (bodies(in_session), bodies(plain)) == (["in a session"], ["alone", "in a session"])


@pytest.mark.feature("sessions")
@both
async def test_a_session_is_accepted_only_where_there_are_sessions(bus: Bus, topics: Topics) -> None:
    topic = topics.new("plain")
    topics.subscribe(topic, "sessions", requires_session=True)
    problems = await refusals(receiver(bus, topic, "sessions"), receiver(bus, topic, "plain", session_id="s"))
    assert [type(problem) for problem in problems] == [ServiceBusError] * 2
    assert "requires sessions" in str(problems[0])
    assert "no sessions" in str(problems[1])


@pytest.mark.feature("duplicate-detection")
@both
async def test_a_topic_drops_what_it_has_seen_before_any_subscription_sees_it(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b", requires_duplicate_detection=True)
    async with sender(bus, topic) as one:
        await one.send_messages(ServiceBusMessage("first", message_id="x"))
        await one.send_messages(ServiceBusMessage("again", message_id="x"))
        await one.send_messages(
            [ServiceBusMessage("again", message_id="x"), ServiceBusMessage("other", message_id="y")]
        )
        later = now() + datetime.timedelta(hours=1)
        await one.schedule_messages(ServiceBusMessage("again", message_id="y"), later)
    for messages in await taken_by(bus, topic, {"a": 2, "b": 2}):
        assert bodies(messages) == ["first", "other"]
    for name in "ab":
        assert topics.counts(topic, name).total_message_count == 0
    assert topics.admin.get_topic_runtime_properties(topic).scheduled_message_count == 0


@pytest.mark.feature("duplicate-detection")
@both
async def test_without_it_the_same_id_comes_twice(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    await send(bus, topic, *[ServiceBusMessage(body, message_id="x") for body in ("first", "again")])
    assert bodies(await taken(bus, topic, "s", 2)) == ["first", "again"]


@pytest.mark.gateways
@pytest.mark.feature("schedule")
@both
async def test_a_scheduled_message_is_in_the_subscriptions_when_its_time_comes(bus: Bus, topics: Topics) -> None:
    topic = topics.new("a", "b")
    due = bus.broker.now() + LATER_S * SECOND
    async with sender(bus, topic) as one:
        numbers = await one.schedule_messages([ServiceBusMessage("one"), ServiceBusMessage("two")], due)
        await one.send_messages(ServiceBusMessage("three", scheduled_enqueue_time_utc=due))
    assert len(set(numbers)) == 2
    assert topics.admin.get_topic_runtime_properties(topic).scheduled_message_count == 3
    assert topics.counts(topic, "a").total_message_count == 0
    topics.subscribe(topic, "meanwhile")
    await bus.pass_time(LATER_S + 0.1)
    async with together(*[receiver(bus, topic, name) for name in ("a", "b", "meanwhile")]) as receivers:
        for one in receivers:
            messages = await receive(one, 3)
            assert sorted(bodies(messages)) == ["one", "three", "two"]
            for message in messages:
                assert message.enqueued_time_utc >= due.replace(microsecond=due.microsecond // 1000 * 1000)
                assert message.state is ServiceBusMessageState.ACTIVE
                await one.complete_message(message)
    assert topics.admin.get_topic_runtime_properties(topic).scheduled_message_count == 0


@pytest.mark.feature("schedule")
@both
async def test_what_is_cancelled_never_comes(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    due = bus.broker.now() + LATER_S * SECOND
    async with sender(bus, topic) as one:
        kept, *cancelled = await one.schedule_messages(
            [ServiceBusMessage(body) for body in ("kept", "cancelled", "cancelled too")], due
        )
        await one.cancel_scheduled_messages(cancelled)
        with pytest.raises(MessageNotFoundError):
            await one.cancel_scheduled_messages(cancelled[0])
        await bus.pass_time(LATER_S + 0.1)
        assert bodies(await taken(bus, topic, "s", 1)) == ["kept"]
        async with receiver(bus, topic, "s") as other:
            assert await nothing_comes(other)
        with pytest.raises(MessageNotFoundError):
            await one.cancel_scheduled_messages(kept)


@pytest.mark.feature("schedule")
@both
async def test_scheduled_messages_keep_their_sessions_and_their_time_to_live(bus: Bus, topics: Topics) -> None:
    topic = topics.new()
    topics.subscribe(topic, "sessions", requires_session=True)
    due = bus.broker.now() + 1.5 * SECOND
    message = ServiceBusMessage("m", session_id="s", time_to_live=LATER_S * SECOND)
    async with sender(bus, topic) as one:
        await one.schedule_messages(message, due)
    (received,) = await taken(bus, topic, "sessions", 1, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON_S)
    assert (str(received), received.session_id) == ("m", "s")
    assert received.expires_at_utc == received.enqueued_time_utc + LATER_S * SECOND


@pytest.mark.feature("schedule")
@both
async def test_a_time_in_the_past_is_now(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    async with sender(bus, topic) as one:
        await one.schedule_messages(ServiceBusMessage("m"), now() - SECOND)
    assert bodies(await taken(bus, topic, "s", 1)) == ["m"]


@pytest.mark.feature("time-to-live")
@both
async def test_topic_subscription_and_message_each_limit_it(bus: Bus, topics: Topics) -> None:
    """All wait for the same second: by topic, by subscription and by message, kept as dead letters or dropped."""
    short = topics.new("dropped", default_message_time_to_live=SECOND)
    topics.subscribe(short, "kept", dead_lettering_on_message_expiration=True)
    long = topics.new("patient")
    topics.subscribe(long, "kept", default_message_time_to_live=SECOND, dead_lettering_on_message_expiration=True)
    await bus.put(short, "by topic")
    await send(bus, short, ServiceBusMessage("lowered", time_to_live=datetime.timedelta(hours=1)))
    await bus.put(long, "by subscription")
    await send(bus, long, ServiceBusMessage("by message", time_to_live=SECOND))

    def held(topic: str, subscription: str) -> tuple[int, int]:
        counts = topics.counts(topic, subscription)
        return int(counts.active_message_count or 0), int(counts.dead_letter_message_count or 0)

    for topic, subscription, expected in (
        (short, "kept", (0, 2)),
        (short, "dropped", (0, 0)),
        (long, "kept", (0, 2)),
        (long, "patient", (1, 0)),
    ):
        await until(
            lambda topic=topic, subscription=subscription, expected=expected: held(topic, subscription) == expected,
            f"{subscription} of {topic}: {expected}",
        )
    dead = await taken(bus, long, "kept", 2, sub_queue=DEAD)
    assert [(str(message), message.dead_letter_reason) for message in dead] == [
        ("by subscription", "TTLExpiredException"),
        ("by message", "TTLExpiredException"),
    ]
