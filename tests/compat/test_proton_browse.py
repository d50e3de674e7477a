"""A browser: a source with `distribution-mode=copy`, as JMS's QueueBrowser asks for it. It looks, and takes nothing.

Besides, what else a source may ask for: the broker does it, refuses it, or leaves it out of its reply.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Delivery, Described, Endpoint, Link, Message, Terminus, symbol
from proton.reactor import Copy, DurableSubscription, Filter, LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached

from support import atom, optional
from support.broker import ROOT_POLICY, BrokerProcess, NewQueue
from support.frames import TIMEOUT_S
from support.peer import Cbs, Modes, Receiver, connected, pump, pump_until, put

SESSION = symbol("com.microsoft:session-filter")
LATER = symbol("x-opt-scheduled-enqueue-time")
BROWSER = [Copy(), Modes(Link.SND_SETTLED)]


class Source(LinkOption):
    """Anything about a source that proton has no option for."""

    def __init__(self, change: Callable[[Any], object]) -> None:
        self.change = change

    def apply(self, link: Link) -> None:
        self.change(link.source)


def browse(connection: BlockingConnection, address: str, *options: Any, credit: int = 1_000) -> list[Message]:
    """All that a browser sees, up to the end of the queue, which the answer to its drain tells."""
    receiver = Receiver(connection, address, options=[*BROWSER, *options])
    assert receiver.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
    receiver.link.drain(credit)
    pump_until(connection, lambda: not receiver.link.draining(), "the end of the queue")
    seen = [message for message, _ in receiver.arrived]
    receiver.link.close()
    return seen


def texts(messages: list[Message]) -> list[str]:
    return [bytes(message.body).decode() for message in messages]


def refusal(connection: BlockingConnection, address: str, *options: Any) -> str:
    with pytest.raises(LinkDetached) as problem:
        Receiver(connection, address, options=list(options))
    return str(problem.value)


def given_up(connection: BlockingConnection, queue: str, outcome: int | None) -> None:
    """Take the next message and settle it."""
    receiver = Receiver(connection, queue, credit=1, options=Modes(Link.SND_UNSETTLED, Link.RCV_FIRST))
    _, delivery = receiver.take()
    if outcome is not None:
        delivery.local.undeliverable = outcome == Delivery.MODIFIED
        delivery.update(outcome)
    delivery.settle()
    receiver.link.close()


@pytest.mark.feature("amqp-browse")
def test_a_browser_sees_everything_in_order_and_nothing_is_gone(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    bodies = [str(number) for number in range(600)]
    put(broker, queue, bodies)
    with connected(broker) as connection:
        for _ in range(2):
            assert texts(browse(connection, queue)) == bodies
            assert broker.count(queue) == 600
        receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_UNSETTLED))
        message, _ = receiver.take()
        assert (bytes(message.body), message.delivery_count) == (b"0", 0)


@pytest.mark.feature("amqp-browse")
def test_an_empty_queue_ends_at_once(broker: BrokerProcess, new_queue: NewQueue) -> None:
    with connected(broker) as connection:
        assert browse(connection, new_queue()) == []


@pytest.mark.feature("amqp-browse")
def test_a_browser_gets_no_more_than_its_credit_each_message_once_and_then_what_arrives(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    put(broker, queue, "abcde")
    with connected(broker) as connection:
        receiver = Receiver(connection, queue, credit=2, options=BROWSER)
        pump_until(connection, lambda: len(receiver.arrived) == 2, "as many as the credit")
        pump(connection, 0.3)
        receiver.link.flow(10)
        pump_until(connection, lambda: len(receiver.arrived) == 5, "the rest")
        put(broker, queue, "fg")
        pump_until(connection, lambda: len(receiver.arrived) == 7, "what arrived")
        assert texts([message for message, _ in receiver.arrived]) == list("abcdefg")
    assert broker.count(queue) == 7


@pytest.mark.feature("amqp-browse")
@pytest.mark.parametrize("outcome", [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED])
def test_a_copy_may_be_settled_in_any_way_and_the_message_stays(
    broker: BrokerProcess, new_queue: NewQueue, outcome: int
) -> None:
    queue = new_queue()
    put(broker, queue, "ab")
    with connected(broker) as connection:
        modes = Modes(Link.SND_UNSETTLED, Link.RCV_SECOND)
        receiver = Receiver(connection, queue, credit=2, options=[Copy(), modes])
        assert receiver.link.remote_snd_settle_mode == Link.SND_UNSETTLED
        for _ in range(2):
            _, delivery = receiver.take()
            assert not delivery.settled
            delivery.local.failed = delivery.local.undeliverable = True
            receiver.decide(delivery, outcome)
            assert delivery.remote_state == outcome
        seen = browse(connection, queue)
        assert texts(seen) == ["a", "b"]
        assert {message.delivery_count for message in seen} == {0}
    assert broker.count(queue) == 2
    assert broker.count(queue, "DeadLetterMessageCount") == 0


@pytest.mark.feature("amqp-browse")
def test_a_browser_sees_locked_messages_and_no_deferred_or_scheduled_ones(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    put(broker, queue, ["deferred", "locked", "free"])
    with connected(broker) as connection:
        later = {LATER: int((time.time() + 3_600) * 1_000)}
        connection.create_sender(queue).send(Message(body=b"later", inferred=True, annotations=later))
        given_up(connection, queue, Delivery.MODIFIED)
        holder = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_UNSETTLED))
        holder.take()
        assert texts(browse(connection, queue)) == ["locked", "free"]


@pytest.mark.feature("amqp-browse")
def test_dead_letters_can_be_browsed(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    put(broker, queue, "ab")
    with connected(broker) as connection:
        given_up(connection, queue, Delivery.REJECTED)
        given_up(connection, queue, Delivery.REJECTED)
        dead = f"{queue}/$DeadLetterQueue"
        assert texts(browse(connection, dead)) == ["a", "b"]
        assert texts(browse(connection, dead, credit=1)) == ["a"]
    assert broker.count(queue, "DeadLetterMessageCount") == 2


@pytest.mark.feature("amqp-browse")
def test_a_subscription_can_be_browsed_and_a_topic_cannot(broker: BrokerProcess) -> None:
    broker.request("PUT", "/browsed-topic?api-version=2021-05", atom.entry({}).replace("Queue", "Topic"))
    subscription = "browsed-topic/Subscriptions/all"
    broker.request("PUT", f"/{subscription}?api-version=2021-05", atom.entry({}).replace("Queue", "Subscription"))
    put(broker, "browsed-topic", "abc")
    with connected(broker) as connection:
        for _ in range(2):
            assert texts(browse(connection, subscription)) == list("abc")
        assert "amqp:not-allowed" in refusal(connection, "browsed-topic", *BROWSER)


@pytest.mark.feature("amqp-browse")
def test_all_fragments_of_a_partitioned_queue_are_browsed(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue(EnablePartitioning=True)
    bodies = [str(number) for number in range(100)]
    put(broker, queue, bodies)
    with connected(broker) as connection:
        assert sorted(texts(browse(connection, queue))) == sorted(bodies)
        receiver = Receiver(connection, queue, credit=200, options=BROWSER)
        pump_until(connection, lambda: len(receiver.arrived) == 100, "what is there")
        put(broker, queue, [f"late {number}" for number in range(20)])
        pump_until(connection, lambda: len(receiver.arrived) == 120, "what arrived in any fragment")
        seen = texts([message for message, _ in receiver.arrived])
        assert sorted(seen[100:]) == sorted(f"late {number}" for number in range(20))
    assert broker.count(queue) == 120


@pytest.mark.feature("amqp-browse")
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_queue_with_sessions_is_browsed_whole_or_by_session_and_none_is_held(
    broker: BrokerProcess, new_queue: NewQueue, partitioned: bool
) -> None:
    queue = new_queue(RequiresSession=True, EnablePartitioning=partitioned)
    for session in ("one", "two"):
        put(broker, queue, [f"{session} a", f"{session} b"], session_id=session)
    with connected(broker) as connection:
        whole = texts(browse(connection, queue))
        assert sorted(whole) == ["one a", "one b", "two a", "two b"]
        assert texts(browse(connection, queue, Filter({SESSION: "two"}))) == ["two a", "two b"]
        holder = Receiver(connection, queue, options=[Filter({SESSION: "two"}), Modes(snd=Link.SND_UNSETTLED)])
        assert texts(browse(connection, queue, Filter({SESSION: "two"}))) == ["two a", "two b"]
        holder.link.flow(1)
        holder.take()
        assert "names the session" in refusal(connection, queue, *BROWSER, Filter({SESSION: None}))
    assert "no sessions" in _refused_session(broker, new_queue())


def _refused_session(broker: BrokerProcess, queue: str) -> str:
    with connected(broker) as connection:
        return refusal(connection, queue, *BROWSER, Filter({SESSION: "one"}))


@pytest.mark.feature("amqp-browse")
def test_a_queue_that_forwards_can_be_browsed_and_a_deleted_one_ends_the_browser(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue(ForwardTo=new_queue())
    with connected(broker) as connection:
        receiver = Receiver(connection, queue, credit=5, options=BROWSER)
        broker.delete_queue(queue)
        pump_until(connection, lambda: bool(receiver.link.state & Endpoint.REMOTE_CLOSED), "the end of the link")
        assert receiver.link.remote_condition.name == "amqp:resource-deleted"


@pytest.mark.feature("amqp-browse")
def test_a_browser_needs_the_right_to_listen(broker: BrokerProcess, new_queue: NewQueue) -> None:
    key = "the-key-of-a-policy-of-one-queue"
    rules = [atom.Rule("sends", ("Send",), key), atom.Rule("listens", ("Listen",), key)]
    queue = new_queue(AuthorizationRules=rules)
    put(broker, queue, "a")
    for policy, expected in (("sends", None), ("listens", ["a"])):
        with connected(broker, user=None) as connection:
            assert Cbs(connection, broker).put(queue, broker.token(queue, policy=policy, key=key)) in (200, 202)
            if expected is None:
                assert "amqp:unauthorized-access" in refusal(connection, queue, *BROWSER)
            else:
                assert texts(browse(connection, queue)) == expected


@pytest.mark.feature("amqp-source")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([Selector("colour = 'red'")], "The filter 'apache.org:selector-filter:string' is not offered"),
        ([Selector("colour = 'red'"), *BROWSER], "The filter 'apache.org:selector-filter:string' is not offered"),
        ([Filter({symbol("no-local"): Described(0x468C00000003, [])})], "The filter 'no-local' is not offered"),
        ([DurableSubscription(), *BROWSER], "A durable source that copies is not offered"),
        ([Source(lambda source: setattr(source, "dynamic", True))], "dynamic nodes are not offered"),
    ],
    ids=["selector", "browser with a selector", "no-local", "durable copies", "dynamic"],
)
def test_what_a_source_asks_for_and_cannot_have_is_refused(
    broker: BrokerProcess, new_queue: NewQueue, options: list[Any], said: str
) -> None:
    queue = new_queue()
    put(broker, queue, "a")
    with connected(broker) as connection:
        told = refusal(connection, queue, *options)
        assert "amqp:not-implemented" in told
        assert said.lower() in told.lower()
    assert broker.count(queue) == 1


@pytest.mark.feature("amqp-source")
def test_the_reply_tells_what_is_in_force(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    asked = [symbol("amqp:accepted:list"), symbol("made:up:list")]
    with connected(broker) as connection:
        options = [
            DurableSubscription(),
            Source(lambda source: source.outcomes.put_object(Array(UNDESCRIBED, Data.SYMBOL, *asked))),
        ]
        told = Receiver(connection, queue, options=options).link.remote_source
        assert (told.durability, told.distribution_mode) == (Terminus.NONDURABLE, Terminus.DIST_MODE_UNSPECIFIED)
        told.outcomes.next()
        assert told.outcomes.get_object().elements == tuple(asked[:1])
        moved = Receiver(connection, queue, options=Source(_moves)).link.remote_source
        assert moved.distribution_mode == Terminus.DIST_MODE_MOVE


def _moves(source: Any) -> None:
    source.distribution_mode = Terminus.DIST_MODE_MOVE


@pytest.mark.feature("amqp-browse")
def test_rhea_browses_and_settles_without_an_outcome(broker: BrokerProcess, new_queue: NewQueue) -> None:
    optional.needs("node")
    queue = new_queue()
    put(broker, queue, "abc")
    where = {"host": broker.host, "port": broker.amqp_port, "username": ROOT_POLICY, "password": broker.key}
    command = ["node", "browse.mjs", json.dumps(where), queue]
    done = subprocess.run(command, cwd=optional.JS, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["seen"] == [list("abc"), list("abc")]
    assert told["mode"] == "copy"
    assert broker.count(queue) == 2
    assert broker.count(queue, "DeadLetterMessageCount") == 1, "the default outcome of its source"
