"""The contract of the namespace port, over every adapter: what each call does, and of which kind its failures are.

A failure says three things: whether it was *not sent* (it certainly never arrived), *refused* (the namespace said no)
or is *unknown* (it may have arrived), whether waiting helps, and of several messages which ones it is about.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

import pytest
import pytest_asyncio

from support.broker import BrokerProcess, running
from support.namespace_place import ADAPTERS, Place, place
from twinbus.amqp import codec
from twinbus.amqp import types as amqp
from twinbus.client.errors import ClientError, is_local
from twinbus.client.messages import build, read
from twinbus.model.message import Outcome
from twinbus.pair.namespace.port import Receiver, RemoteNamespace
from twinbus.pair.route import ping
from twinbus.wire import sections

T = TypeVar("T")

NOT_SENT, REFUSED, UNKNOWN = "not sent", "refused", "unknown"
HELPS, IN_VAIN = True, False  # Whether waiting helps.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--faults", "--test-clock", "--stores", "1")
    made = BrokerProcess(tmp_path_factory.mktemp("port"), namespace="contoso", options=options)
    with running(made):
        yield made


@pytest_asyncio.fixture(params=ADAPTERS)
async def there(request: pytest.FixtureRequest, broker: BrokerProcess) -> AsyncIterator[Place]:
    async with place(broker, ADAPTERS[request.param]) as made:
        yield made


def kind(error: ClientError) -> tuple[str, bool]:
    """What became of a message, and whether waiting helps."""
    what = UNKNOWN if not error.definite else NOT_SENT if is_local(error) else REFUSED
    return what, error.transient


async def failure(work: Awaitable[Any]) -> ClientError:
    """The error that something raises."""
    with pytest.raises(ClientError) as raised:
        await work
    return raised.value


async def at_the_second_try(work: Callable[[], Awaitable[T]]) -> T:
    """The result of something that may find out only by failing that its link is lost."""
    try:
        return await work()
    except ClientError as error:
        if not error.transient:
            raise
        return await work()


def bodies(count: int, size: int = 1) -> list[bytes]:
    """Messages whose bodies are letters."""
    return [build(bytes([97 + number]) * size) for number in range(count)]


async def fetched(receiver: Receiver, expected: int) -> list[Any]:
    """So many messages, however many receives that takes."""
    found: list[Any] = []
    while len(found) < expected:
        lot = await receiver.receive(expected - len(found), 5)
        assert lot, f"{len(found)} of {expected} came"
        found += lot
    return found


# Sending


async def test_messages_arrive_in_order_each_by_itself_or_together(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(3))
    await namespace.send(queue, bodies(2), together=True)
    await namespace.send(queue, [])
    assert there.bodies(queue) == [b"a", b"b", b"c", b"a", b"b"]


async def test_many_sends_at_once_open_one_link_and_mix_no_frames(there: Place) -> None:
    """Large messages take several frames, which those of others must not interrupt."""
    queue, namespace = there.queue(), there.namespace()
    payloads = [build(b"%d" % number * (50_000 if number % 3 else 1)) for number in range(30)]
    await asyncio.gather(*(namespace.send(queue, [payload]) for payload in payloads))
    assert there.proxy.connections == 1
    assert sorted(there.bodies(queue)) == sorted(read(payload).body for payload in payloads)


async def test_more_messages_than_any_window_arrive(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, [build(b"%d" % number) for number in range(1200)])
    assert there.bodies(queue) == [b"%d" % number for number in range(1200)]


async def test_a_lost_link_is_opened_anew_at_the_latest_by_the_second_send(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, [build(b"before")])
    there.lose_connections()
    await at_the_second_try(lambda: namespace.send(queue, [build(b"after")]))
    assert there.bodies(queue) == [b"before", b"after"]


async def test_a_closed_namespace_is_opened_again_when_it_is_needed(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    await namespace.close()
    await namespace.send(queue, bodies(1))
    assert len(there.bodies(queue)) == 2


async def test_the_largest_message_is_known(there: Place) -> None:
    queue = there.queue()
    assert await there.namespace().message_bytes_max(queue) == 262_144


# Failures of a send, by kind


async def test_nobody_listens(there: Place) -> None:
    error = await failure(there.gone().send(there.queue(), bodies(2)))
    assert kind(error) == (NOT_SENT, HELPS)
    assert error.failed == {}


async def test_connections_are_refused(there: Place) -> None:
    there.refuse_connections()
    queue = there.queue()
    assert kind(await failure(there.namespace().send(queue, bodies(1)))) == (NOT_SENT, HELPS)
    there.heal()
    assert there.bodies(queue) == []


async def test_the_connection_breaks_after_the_transfer_and_before_the_answer(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, [build(b"first")])
    there.lose_next_answer()
    error = await failure(namespace.send(queue, [build(b"second")]))
    assert kind(error) == (UNKNOWN, HELPS)
    assert {position: kind(each) for position, each in error.failed.items()} == {0: (UNKNOWN, HELPS)}
    assert there.bodies(queue) == [b"first", b"second"]


async def test_silence_is_waited_for_as_long_as_was_said(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, [build(b"before")])
    there.be_silent()
    began = time.monotonic()
    assert kind(await failure(namespace.send(queue, [build(b"during")], timeout_s=0.3))) == (UNKNOWN, HELPS)
    assert time.monotonic() - began < 3
    there.heal()
    await namespace.send(queue, [build(b"after")])
    assert {b"before", b"after"} <= set(there.bodies(queue))


async def test_silence_from_the_beginning(there: Place) -> None:
    there.be_silent()
    namespace = there.namespace(timeout_s=0.3)
    assert kind(await failure(namespace.send(there.queue(), bodies(1))))[1] is HELPS


async def test_no_such_entity(there: Place) -> None:
    error = await failure(there.namespace().send("nowhere", bodies(1)))
    assert (kind(error), error.condition) == ((REFUSED, IN_VAIN), "amqp:not-found")


async def test_a_policy_that_is_not_known(there: Place) -> None:
    namespace = there.namespace(key="another key than the namespace's")
    assert kind(await failure(namespace.send(there.queue(), bodies(1)))) == (REFUSED, IN_VAIN)


async def test_a_message_that_is_too_large(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    error = await failure(namespace.send(queue, [build(b"x" * 300_000)]))
    assert (kind(error), error.condition) == ((REFUSED, IN_VAIN), "amqp:link:message-size-exceeded")
    await namespace.send(queue, bodies(1))
    assert there.bodies(queue) == [b"a"]


@pytest.mark.parametrize("is_open", [False, True], ids=["before", "after"])
async def test_an_entity_that_is_disabled(there: Place, is_open: bool) -> None:
    queue, namespace = there.queue(), there.namespace()
    if is_open:
        await namespace.send(queue, bodies(1))
    there.broker.update_queue(queue, Status="SendDisabled")
    error = await failure(namespace.send(queue, bodies(1)))
    assert (kind(error), error.condition) == ((REFUSED, HELPS), "com.microsoft:entity-disabled")
    there.broker.update_queue(queue, Status="Active")
    await namespace.send(queue, bodies(1))


async def test_a_busy_namespace(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    there.suffer("throttled")
    error = await failure(namespace.send(queue, bodies(3)))
    assert (kind(error), error.condition) == ((REFUSED, HELPS), "com.microsoft:server-busy")
    assert sorted(error.failed) == [0, 1, 2]
    there.recover()
    await namespace.send(queue, bodies(1))


async def test_a_store_that_is_down(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    there.suffer("store-down", store=0)
    assert kind(await failure(namespace.send(queue, bodies(1)))) == (UNKNOWN, HELPS)
    there.recover()
    await namespace.send(queue, bodies(1))


async def test_of_several_only_those_that_are_refused_fail_by_their_position(there: Place) -> None:
    queue = there.queue(RequiresSession=True)
    good, bad = build(b"good", session_id="s"), build(b"bad")
    error = await failure(there.namespace().send(queue, [good, bad, good, bad, good]))
    assert sorted(error.failed) == [1, 3]
    assert {kind(each) for each in error.failed.values()} == {(REFUSED, IN_VAIN)} == {kind(error)}
    assert there.bodies(queue) == [b"good"] * 3


async def test_together_means_all_or_none(there: Place) -> None:
    queue = there.queue(RequiresSession=True)
    good, bad = build(b"good", session_id="s"), build(b"bad")
    error = await failure(there.namespace().send(queue, [good, bad, good], together=True))
    assert sorted(error.failed) == [0, 1, 2]
    assert {kind(each) for each in error.failed.values()} == {(REFUSED, IN_VAIN)} == {kind(error)}
    assert there.bodies(queue) == []


# Receiving and settling


async def test_a_receiver_gets_what_it_asks_for_and_nothing_more(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(5))
    first, second = await namespace.receiver(queue), await namespace.receiver(queue)
    got = await fetched(first, 2)
    rest = await fetched(second, 3)
    assert [read(each.payload).body for each in [*got, *rest]] == [b"a", b"b", b"c", b"d", b"e"]
    assert list(await first.receive(5, 0.05)) == []
    await first.settle(got)
    await second.settle(rest)
    await asyncio.gather(first.close(), second.close())
    assert there.bodies(queue) == []


async def test_a_receive_waits_for_a_message_that_comes_meanwhile(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    receiver = await namespace.receiver(queue)
    waiting = asyncio.create_task(receiver.receive(10, 20))
    await namespace.send(queue, bodies(1))
    assert [read(each.payload).body for each in await waiting] == [b"a"]
    await receiver.close()


async def test_what_is_released_comes_again_and_counts_no_delivery(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    receiver = await namespace.receiver(queue)
    for _ in range(3):
        (got,) = await fetched(receiver, 1)
        assert read(got.payload).delivery_count == 0
        await receiver.settle([got], Outcome.RELEASE)
    await receiver.close()


async def test_a_receiver_that_gives_up_leaves_nothing_locked(there: Place) -> None:
    """A receive that is stopped has asked for messages, and they may come after all."""
    queue, namespace = there.queue(), there.namespace()
    receiver = await namespace.receiver(queue)
    waiting = asyncio.create_task(receiver.receive(10, 20))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await namespace.send(queue, bodies(2))
    await receiver.close()
    other = await namespace.receiver(queue)
    assert len(await fetched(other, 2)) == 2
    await other.close()


async def test_a_dead_letter_says_why(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    receiver = await namespace.receiver(queue)
    await receiver.settle(await fetched(receiver, 1), Outcome.DEAD_LETTER, reason="Unwanted", description="in words")
    await receiver.close()
    dead = await namespace.receiver(f"{queue}/$deadletterqueue")
    message = read((await fetched(dead, 1))[0].payload)
    await dead.close()
    assert (message.body, message.dead_letter_reason, message.dead_letter_description) == (b"a", "Unwanted", "in words")


async def test_settling_twice_fails_by_position(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(3))
    receiver = await namespace.receiver(queue)
    got = await fetched(receiver, 3)
    await receiver.settle([got[1]])
    error = await failure(receiver.settle(got))
    assert (kind(error), sorted(error.failed)) == ((REFUSED, IN_VAIN), [1])
    await receiver.close()
    assert there.bodies(queue) == []


async def test_a_lock_that_is_lost_cannot_be_settled(there: Place) -> None:
    queue, namespace = there.queue(LockDuration="PT5S"), there.namespace()
    await namespace.send(queue, bodies(1))
    receiver = await namespace.receiver(queue)
    got = await fetched(receiver, 1)
    there.broker.pass_time(6)
    error = await failure(receiver.settle(got))
    assert (kind(error), error.condition) == ((REFUSED, IN_VAIN), "com.microsoft:message-lock-lost")
    await receiver.close()


async def test_a_settlement_whose_answer_is_lost_is_unknown(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    receiver = await namespace.receiver(queue)
    got = await fetched(receiver, 1)
    there.lose_next_answer()
    assert kind(await failure(receiver.settle(got))) == (UNKNOWN, HELPS)
    assert kind(await failure(receiver.receive(1, 5))) == (NOT_SENT, HELPS)
    await receiver.close()
    assert there.bodies(queue) == []


async def test_receiving_fails_as_sending_does(there: Place) -> None:
    queue = there.queue()
    assert kind(await failure(there.namespace().receiver("nowhere"))) == (REFUSED, IN_VAIN)
    assert kind(await failure(there.gone().receiver(queue))) == (NOT_SENT, HELPS)
    receiver = await there.namespace().receiver(queue)
    waiting = asyncio.create_task(receiver.receive(1, 20))
    await asyncio.sleep(0.05)  # Until it waits; if it does not yet, it fails all the same.
    there.lose_connections()
    assert kind(await failure(waiting))[1] is HELPS
    await receiver.close()


# Sessions


async def test_a_session_is_received_in_order_and_belongs_to_one_receiver(there: Place) -> None:
    queue, namespace = there.queue(RequiresSession=True), there.namespace()
    await namespace.send(queue, [build(b"%d" % number, session_id="s") for number in range(20)])
    receiver = await namespace.session_receiver(queue, 5)
    assert receiver.session_id == "s"
    assert (await failure(namespace.session_receiver(queue, 0.2))).condition == "com.microsoft:timeout"
    got = await fetched(receiver, 20)
    assert [read(each.payload).body for each in got] == [b"%d" % number for number in range(20)]
    await receiver.settle(got)
    await receiver.close()


async def test_a_renewed_session_stays_and_one_that_is_not_is_lost(there: Place) -> None:
    queue, namespace = there.queue(RequiresSession=True, LockDuration="PT10S"), there.namespace()
    await namespace.send(queue, [build(b"a", session_id="s")])
    receiver = await namespace.session_receiver(queue, 5)
    got = await fetched(receiver, 1)
    for _ in range(3):
        there.broker.pass_time(6)
        await namespace.renew_session(receiver)
    await receiver.settle(got, Outcome.RELEASE)
    (again,) = await fetched(receiver, 1)
    there.broker.pass_time(11)
    assert (await failure(namespace.renew_session(receiver))).transient is IN_VAIN
    with pytest.raises(ClientError):
        await receiver.settle([again])
    await receiver.close()


async def test_a_message_is_seen_in_its_session_even_while_it_is_locked(there: Place) -> None:
    queue, namespace = there.queue(RequiresSession=True), there.namespace()
    assert not await namespace.peek(queue, "s")
    await namespace.send(queue, [build(b"a", session_id="s")])
    assert await namespace.peek(queue, "s")
    receiver = await namespace.session_receiver(queue, 5)
    got = await fetched(receiver, 1)
    assert await namespace.peek(queue, "s")
    assert not await namespace.peek(queue, "other")
    await receiver.settle(got)
    assert not await namespace.peek(queue, "s")
    await receiver.close()
    there.lose_connections()
    assert not await at_the_second_try(lambda: namespace.peek(queue, "s"))
    there.refuse_connections()
    with pytest.raises(ClientError):
        await namespace.peek(queue, "s")


# Over connections of their own


async def test_a_ping_uses_a_new_connection_and_is_received_by_nobody(there: Place) -> None:
    queue, namespace = there.queue(), there.namespace()
    await namespace.send(queue, bodies(1))
    before = there.proxy.connections
    await namespace.ping(queue, ping.payload())
    assert there.proxy.connections == before + 1
    assert there.bodies(queue) == [b"a"]
    there.refuse_connections()
    assert kind(await failure(namespace.ping(queue, ping.payload()))) == (NOT_SENT, HELPS)
    there.heal()
    there.suffer("throttled")
    assert kind(await failure(namespace.ping(queue, ping.payload()))) == (REFUSED, HELPS)


@pytest.mark.parametrize("settings", [{}, {"RequiresSession": True}], ids=["queue", "sessions"])
async def test_a_probe_leaves_nothing(there: Place, settings: dict[str, Any]) -> None:
    queue, namespace = there.queue(**settings), there.namespace()
    due_at_ms = int(there.broker.now().timestamp() * 1000) + 3_600_000
    await namespace.probe(queue, ping.payload(None, due_at_ms))
    assert there.broker.count(queue, "ScheduledMessageCount") == 0
    there.suffer("throttled")
    assert kind(await failure(namespace.probe(queue, ping.payload(None, due_at_ms)))) == (REFUSED, HELPS)
    assert kind(await failure(there.gone().probe(queue, ping.payload(None, due_at_ms)))) == (NOT_SENT, HELPS)


async def test_a_broker_says_who_it_is_and_where_it_is_administered(there: Place) -> None:
    namespace = there.namespace()
    status = json.loads(there.broker.request("GET", "/$api/status")[1])
    assert await namespace.ask() == (True, there.broker.http_port, "contoso", status["id"])
    assert await namespace.identity() == ("contoso", status["id"])
    assert await namespace.name() == "contoso"
    before = there.proxy.connections
    assert await namespace.is_twinbus()
    assert there.proxy.connections == before  # It was asked once, for the address.


async def test_asking_needs_an_answer(there: Place) -> None:
    assert is_local(await failure(there.gone().ask()))
    there.be_silent()
    error = await failure(there.namespace(timeout_s=0.3).ask())
    assert (is_local(error), error.transient) == (True, HELPS)


# Messages are opaque

_ODD = {
    "null": None,
    "boolean": True,
    "ubyte": amqp.UByte(200),
    "ushort": amqp.UShort(60_000),
    "uint": amqp.UInt(4_000_000_000),
    "ulong": amqp.ULong(2**63),
    "byte": amqp.Byte(-100),
    "short": amqp.Short(-30_000),
    "int": amqp.Int(-2_000_000_000),
    "long": amqp.Long(-(2**62)),
    "float": amqp.Float32(1.5),
    "double": 2.5,
    "char": amqp.Char("\u2603"),
    "timestamp": amqp.Timestamp(1_700_000_000_000),
    "uuid": UUID(int=7),
    "binary": b"\x00\xff",
    "string": "text \u2603",
    "symbol": amqp.Symbol("symbol"),
}
_PROPERTIES = ["id", b"user", "to", "subject", "reply", amqp.ULong(5), amqp.Symbol("text/x"), amqp.Symbol("utf-8")]
_BODIES: dict[str, list[tuple[int, Any]]] = {
    "data": [(sections.DATA, b"one"), (sections.DATA, b""), (sections.DATA, b"x" * 200_000)],
    "value": [(sections.VALUE, {"nested": [1, amqp.Symbol("s"), None], amqp.Long(3): b"bytes"})],
    "sequence": [(sections.SEQUENCE, [1, "two", b"three"]), (sections.SEQUENCE, [amqp.UInt(4)])],
    "null": [(sections.VALUE, None)],
}


def everything(body: str) -> tuple[bytes, bytes]:
    """A message with all sections and all simple types, and the part of it that nobody may touch."""
    annotations = {amqp.Symbol(f"x-opt-{name}"): value for name, value in _ODD.items()}
    bare = [
        (sections.PROPERTIES, _PROPERTIES),
        (sections.APPLICATION_PROPERTIES, _ODD),
        *_BODIES[body],
        (sections.FOOTER, {amqp.Symbol("x-check"): b"sum"}),
    ]
    front = [(sections.HEADER, [True, amqp.UByte(7)]), (sections.MESSAGE_ANNOTATIONS, annotations)]
    return _encoded(front) + _encoded(bare), _encoded(bare)


def _encoded(parts: list[tuple[int, Any]]) -> bytes:
    return b"".join(codec.encode(amqp.Described(amqp.ULong(code), value)) for code, value in parts)


def _annotations(payload: bytes) -> dict[Any, Any]:
    position, found = 0, None
    while found is None:
        section, position = codec.decode(payload, position)
        found = section.value if section.descriptor == sections.MESSAGE_ANNOTATIONS else None
    return dict(found)


async def _passed(sender: RemoteNamespace, receiver: RemoteNamespace, queue: str, payload: bytes) -> bytes:
    await sender.send(queue, [payload])
    link = await receiver.receiver(queue)
    (got,) = await fetched(link, 1)
    await link.settle([got])
    await link.close()
    return got.payload


@pytest.mark.parametrize("body", _BODIES)
async def test_nothing_of_a_message_is_lost(there: Place, body: str) -> None:
    queue, namespace = there.queue(), there.namespace()
    payload, bare = everything(body)
    got = await _passed(namespace, namespace, queue, payload)
    assert got.endswith(bare)
    annotations = _annotations(got)
    for name, value in _ODD.items():
        found = annotations[amqp.Symbol(f"x-opt-{name}")]
        assert (type(found), found) == (type(value), value)


async def test_all_adapters_give_the_same_bytes(there: Place) -> None:
    """Whoever sent it, and whoever received it; only what the broker stamps on each copy differs."""
    queue = there.queue()
    payload, bare = everything("data")
    for sender in ADAPTERS.values():
        got = await _passed(there.namespace(sender), there.namespace(), queue, payload)
        assert got.endswith(bare)
