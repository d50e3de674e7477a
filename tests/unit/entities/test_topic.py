"""A topic: which copies of a message go where, what its store is told, and scheduled messages whose time has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from twinbus.entities.feed import ACQUIRE_MAX
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import TOPIC, Topic
from twinbus.model.address import SubQueue
from twinbus.model.entity import EntityStatus
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming, Origin, ReceiveMode
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.description import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    default_rule,
)
from twinbus.store.commands import Acquire, Copy, Publication, Publish, QueueSettings, Transfer

ORIGIN = Origin("connection-1")
TOKEN = bytes(range(16))
NEW_ID = UUID(int=77)
DEFAULT = default_rule(0)


class Changed(NamedTuple):
    overlay: bytes | None
    record: bytes | None


class FakeReader:
    """Reads records of the form `name=value,…`, where a name in capitals is a system property."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def system_properties(self, record: bytes) -> dict[str, Any]:
        self.reads.append("system")
        return {name: value for name, value in self._pairs(record) if name[:1].isupper()}

    def user_properties(self, record: bytes) -> dict[str, Any]:
        self.reads.append("user")
        return {name: value for name, value in self._pairs(record) if not name[:1].isupper()}

    def ttl_ms(self, record: bytes) -> int | None:
        found = dict(self._pairs(record)).get("Ttl")
        return None if found is None else int(found)

    def change(
        self, record: bytes, user: Mapping[str, Any], removed: Iterable[str], system: Mapping[str, Any]
    ) -> Changed:
        if "huge" in user:
            raise BusError(Fault.ARGUMENT, "The application properties would be too large.")
        overlay = repr((dict(user), sorted(removed))).encode()
        return Changed(overlay, repr(dict(system)).encode() if system else None)

    def _pairs(self, record: bytes) -> list[tuple[str, str]]:
        return [(name, value) for name, _, value in (part.partition("=") for part in record.decode().split(","))]


@pytest.fixture
def reader() -> FakeReader:
    return FakeReader()


class Made:
    """A topic with number 5 and subscriptions with numbers from 6 on."""

    def __init__(self, store: Any, clock: Any, reader: FakeReader, **settings: Any) -> None:
        self.store = store
        self.clock = clock
        self.topic = Topic(5, TopicDescription(name="orders", **settings), 2, store, reader, clock, lambda: NEW_ID)
        self._next = 6

    def subscribe(self, name: str, *rules: RuleDescription, **settings: Any) -> Subscription:
        description = SubscriptionDescription(topic="orders", name=name, **settings)
        subscription = Subscription(self._next, description, self.topic, 2, self.store)
        self._next += 1
        subscription.set_rules(list(rules or [DEFAULT]))
        self.topic.adopt(subscription)
        return subscription

    def publish(self, *messages: Incoming) -> list[Publication]:
        """What the store is asked to do about a unit."""
        self.topic.send([list(messages)], ORIGIN, lambda results: None)
        command = self.store.take(Publish)
        (unit,) = command.units
        return list(unit)

    def copies(self, record: bytes = b"colour=red", **fields: Any) -> list[Copy]:
        """The copies of one message."""
        (publication,) = self.publish(Incoming(record, "m1", **fields))
        return publication.copies


@pytest.fixture
def made(store: Any, clock: Any, reader: FakeReader) -> Made:
    return Made(store, clock, reader)


def sql(name: str, condition: str, action: str | None = None) -> RuleDescription:
    return RuleDescription(name, SqlFilter(condition), None if action is None else SqlAction(action))


class TestSettings:
    def test_the_store_is_told_what_it_enforces(self, store: Any, clock: Any, reader: FakeReader) -> None:
        made = Made(
            store,
            clock,
            reader,
            requires_duplicate_detection=True,
            duplicate_window_ms=20_000,
            max_size_mb=2048,
        )
        assert made.topic.settings() == QueueSettings(
            duplicate_window_ms=20_000,
            max_size_bytes=2048 * 1024 * 1024,
            max_delivery_count=2**31 - 1,
        )

    def test_a_window_without_duplicate_detection_is_no_window(
        self, store: Any, clock: Any, reader: FakeReader
    ) -> None:
        assert Made(store, clock, reader, duplicate_window_ms=20_000).topic.settings().duplicate_window_ms == 0

    def test_a_subscription_shares_its_topics_size_and_has_the_rest_of_its_own(self, made: Made) -> None:
        subscription = made.subscribe(
            "s",
            lock_duration_ms=7_000,
            max_delivery_count=3,
            dead_letter_on_expiration=True,
            requires_session=True,
        )
        assert subscription.settings() == QueueSettings(
            lock_duration_ms=7_000,
            max_delivery_count=3,
            dead_letter_on_expiry=True,
            requires_session=True,
            max_size_bytes=1024 * 1024 * 1024,
        )


class TestDoors:
    def test_nobody_receives_from_a_topic(self, made: Made) -> None:
        with pytest.raises(BusError, match="receive from one of its subscriptions") as refused:
            made.topic.check_may_receive()
        assert refused.value.fault is Fault.NOT_ALLOWED

    def test_nobody_sends_to_a_subscription(self, made: Made) -> None:
        with pytest.raises(BusError, match="'orders', not to its subscription") as refused:
            made.subscribe("s").check_may_send()
        assert refused.value.fault is Fault.NOT_ALLOWED

    def test_a_disabled_topic_takes_nothing(self, store: Any, clock: Any, reader: FakeReader) -> None:
        topic = Made(store, clock, reader, status=EntityStatus.DISABLED).topic
        with pytest.raises(BusError, match="Topic 'orders' is Disabled") as refused:
            topic.check_may_send()
        assert refused.value.fault is Fault.ENTITY_DISABLED

    def test_an_active_topic_takes_messages_with_and_without_a_session(self, made: Made) -> None:
        made.subscribe("s", requires_session=True)
        made.topic.check_may_send()
        made.topic.check_messages([Incoming(b"", "m1"), Incoming(b"", "m2", session_id="s")])

    def test_subscriptions_are_found_whatever_their_case_and_listed_by_name(self, made: Made) -> None:
        second, first = made.subscribe("b"), made.subscribe("A")
        assert made.topic.subscriptions() == [first, second]
        assert made.topic.subscription("a") is first
        assert made.topic.subscription("c") is None


class TestPublishing:
    def test_without_subscriptions_a_message_has_no_copies(self, made: Made) -> None:
        message = Incoming(b"colour=red", "m1")
        assert made.publish(message) == [Publication(message, [])]

    def test_each_subscription_gets_a_copy(self, made: Made) -> None:
        subscriptions = [made.subscribe(name) for name in "abc"]
        assert made.copies(session_id="s", ttl_ms=500) == [
            Copy(subscription.number(), "m1", "s", 500) for subscription in subscriptions
        ]

    def test_units_stay_whole_and_in_order(self, made: Made) -> None:
        made.subscribe("s")
        units = [[Incoming(b"", "m1"), Incoming(b"", "m2")], [Incoming(b"", "m3")]]
        made.topic.send(units, ORIGIN, lambda results: None)
        command = made.store.take(Publish)
        assert (command.queue, command.origin) == (20, ORIGIN)
        assert [[publication.message.message_id for publication in unit] for unit in command.units] == [
            ["m1", "m2"],
            ["m3"],
        ]

    def test_each_unit_is_answered_with_its_own_result(self, made: Made) -> None:
        busy = BusError(Fault.SERVER_BUSY, "busy")
        results: list[Any] = []
        made.topic.send([[Incoming(b"", "m1")], [Incoming(b"", "m2")]], ORIGIN, results.append)
        command = made.store.take(Publish)
        assert results == []
        made.store.finish(command, [[1], busy])
        assert results == [[[1], busy]]

    def test_if_the_store_fails_every_unit_is_refused(self, made: Made) -> None:
        down = BusError(Fault.STORE_UNAVAILABLE, "down")
        results: list[Any] = []
        made.topic.send([[Incoming(b"", "m1")], [Incoming(b"", "m2")]], ORIGIN, results.append)
        made.store.finish(made.store.take(Publish), error=down)
        assert results == [[down, down]]

    async def test_one_unit_can_be_waited_for(self, made: Made) -> None:
        made.subscribe("s")
        made.store.answers[Publish] = [[7, 8]]
        assert await made.topic.send_unit([Incoming(b"", "m1"), Incoming(b"", "m2")], ORIGIN) == [7, 8]
        (unit,) = made.store.take(Publish).units
        assert [[copy.queue for copy in publication.copies] for publication in unit] == [[24], [24]]

    async def test_a_unit_that_is_refused_raises_its_reason(self, made: Made) -> None:
        made.store.answers[Publish] = [BusError(Fault.QUOTA_EXCEEDED, "full")]
        with pytest.raises(BusError, match="full"):
            await made.topic.send_unit([Incoming(b"", "m1")], ORIGIN)

    def test_the_shorter_time_to_live_holds(self, made: Made) -> None:
        made.subscribe("a")
        made.subscribe("b", default_ttl_ms=2_000)
        assert [copy.ttl_ms for copy in made.copies()] == [None, 2_000]
        assert [copy.ttl_ms for copy in made.copies(ttl_ms=1_000)] == [1_000, 1_000]
        assert [copy.ttl_ms for copy in made.copies(ttl_ms=3_000)] == [3_000, 2_000]

    def test_a_message_that_every_subscription_takes_is_not_read(self, made: Made, reader: FakeReader) -> None:
        made.subscribe("a")
        made.subscribe("b")
        assert len(made.copies()) == 2
        assert reader.reads == []

    def test_properties_are_read_once_for_all_rules(self, made: Made, reader: FakeReader) -> None:
        for name in "abc":
            made.subscribe(name, sql("r", "colour = 'red' AND sys.Label IS NULL"))
        assert len(made.copies()) == 3
        assert sorted(reader.reads) == ["system", "user"]


class TestRules:
    def test_a_message_goes_where_a_rule_matches(self, made: Made) -> None:
        red = made.subscribe("red", sql("r", "colour = 'red'"))
        made.subscribe("blue", sql("r", "colour = 'blue'"))
        label = made.subscribe("label", RuleDescription("r", CorrelationFilter(subject="order")))
        assert [copy.queue for copy in made.copies(b"colour=red,Label=order")] == [red.number(), label.number()]
        assert made.copies(b"colour=green") == []

    def test_without_a_rule_that_matches_there_is_no_copy(self, made: Made) -> None:
        made.subscribe("none").set_rules([])
        made.topic.rules_changed()
        made.subscribe("false", RuleDescription("r", FalseFilter()))
        assert made.copies() == []

    def test_several_rules_without_an_action_make_one_copy(self, made: Made) -> None:
        subscription = made.subscribe("s", DEFAULT, sql("one", "colour = 'red'"), sql("two", "colour <> 'blue'"))
        assert made.copies() == [Copy(subscription.number(), "m1")]

    def test_each_rule_with_an_action_makes_its_own_copy_with_its_name(self, made: Made) -> None:
        subscription = made.subscribe("s", sql("one", "1=1", "SET a = 1"), sql("two", "1=1", "REMOVE colour"))
        first, second = made.copies()
        assert {first.queue, second.queue} == {subscription.number()}
        assert first.overlay == repr(({"a": 1, "RuleName": "one"}, [])).encode()
        assert second.overlay == repr(({"RuleName": "two"}, ["colour"])).encode()
        assert first.record is None, "the body is shared while only application properties change"

    def test_both_kinds_make_two_copies(self, made: Made) -> None:
        made.subscribe("s", DEFAULT, sql("one", "1=1", "SET a = 1"), sql("other", "colour = 'blue'", "SET b = 1"))
        plain, changed = made.copies()
        assert plain.overlay is None
        assert changed.overlay == repr(({"a": 1, "RuleName": "one"}, [])).encode()

    def test_changed_system_properties_make_a_record_of_its_own(self, made: Made) -> None:
        made.subscribe("s", sql("r", "1=1", "SET sys.MessageId = 'other'; SET sys.SessionId = 'new'"))
        (copy,) = made.copies(session_id="old")
        assert (copy.message_id, copy.session_id) == ("other", "new")
        assert copy.record == repr({"MessageId": "other", "SessionId": "new"}).encode()

    def test_a_session_id_can_be_taken_away_but_a_message_id_stays(self, made: Made) -> None:
        made.subscribe("s", sql("r", "1=1", "REMOVE sys.SessionId; REMOVE sys.MessageId"))
        (copy,) = made.copies(session_id="old")
        assert (copy.message_id, copy.session_id) == ("m1", None)
        assert copy.record == b"{'SessionId': None}"

    def test_an_action_sets_the_time_to_live_within_the_subscriptions_bounds(self, made: Made) -> None:
        made.subscribe("s", sql("r", "1=1", "SET sys.TimeToLive = 1000"), default_ttl_ms=2_000)
        made.subscribe("t", sql("r", "1=1", "SET sys.TimeToLive = 3000"), default_ttl_ms=2_000)
        shorter, limited = made.copies(ttl_ms=500)
        assert (shorter.ttl_ms, shorter.record) == (1_000, b"{'TimeToLive': 1000}")
        assert (limited.ttl_ms, limited.record) == (2_000, b"{'TimeToLive': 2000}")

    def test_and_within_the_topics(self, store: Any, clock: Any, reader: FakeReader) -> None:
        made = Made(store, clock, reader, default_ttl_ms=2_000)
        made.subscribe("longer", sql("r", "1=1", "SET sys.TimeToLive = 3000"))
        made.subscribe("none", sql("r", "1=1", "REMOVE sys.TimeToLive"))
        assert [copy.ttl_ms for copy in made.copies(ttl_ms=500)] == [2_000, 2_000]

    def test_an_action_may_ask_for_a_new_id(self, made: Made) -> None:
        made.subscribe("s", sql("r", "1=1", "SET sys.CorrelationId = newid()"))
        (copy,) = made.copies()
        assert copy.record == repr({"CorrelationId": str(NEW_ID)}).encode()

    def test_changed_rules_hold_for_the_next_message(self, made: Made) -> None:
        subscription = made.subscribe("s", sql("r", "colour = 'blue'"))
        assert made.copies() == []
        subscription.set_rules([RuleDescription("r", TrueFilter())])
        made.topic.rules_changed()
        assert len(made.copies()) == 1

    def test_so_does_a_new_subscription_and_one_that_is_gone(self, made: Made) -> None:
        first = made.subscribe("a")
        assert [copy.queue for copy in made.copies()] == [first.number()]
        second = made.subscribe("b")
        assert [copy.queue for copy in made.copies()] == [first.number(), second.number()]
        made.topic.forget(first)
        assert [copy.queue for copy in made.copies()] == [second.number()]


class TestFilterErrors:
    def test_a_rule_without_an_answer_makes_a_dead_letter(self, made: Made) -> None:
        subscription = made.subscribe("s", sql("bad", "colour > 5"))
        (copy,) = made.copies(ttl_ms=500)
        assert copy.queue == subscription.number(SubQueue.DEAD_LETTER)
        assert copy.reason == "FilterException"
        assert copy.description is not None
        assert copy.description.startswith("Rule 'bad': ")
        assert copy.overlay is None

    def test_so_does_an_action(self, made: Made) -> None:
        made.subscribe("s", sql("bad", "1=1", "SET a = colour - 1"))
        (copy,) = made.copies()
        assert copy.reason == "RuleActionException"

    def test_other_rules_of_the_subscription_still_make_their_copies(self, made: Made) -> None:
        subscription = made.subscribe("s", DEFAULT, sql("bad", "colour > 5"), sql("worse", "colour < 5"))
        assert [(copy.queue, copy.reason) for copy in made.copies()] == [
            (subscription.number(), None),
            (subscription.number(SubQueue.DEAD_LETTER), "FilterException"),
        ]

    def test_and_so_do_other_subscriptions(self, made: Made) -> None:
        bad = made.subscribe("bad", sql("bad", "colour > 5"))
        good = made.subscribe("good")
        assert {copy.queue for copy in made.copies()} == {bad.number(SubQueue.DEAD_LETTER), good.number()}

    def test_a_subscription_that_does_not_want_dead_letters_gets_none(self, made: Made) -> None:
        made.subscribe("s", sql("bad", "colour > 5"), dead_letter_on_filter_errors=False)
        assert made.copies() == []

    def test_a_change_that_the_message_cannot_carry_is_a_failure_of_the_action(self, made: Made) -> None:
        subscription = made.subscribe("s", DEFAULT, sql("r", "1=1", "SET huge = 1"))
        plain, dead = made.copies()
        assert (plain.queue, plain.reason) == (subscription.number(), None)
        assert (dead.queue, dead.reason) == (subscription.number(SubQueue.DEAD_LETTER), "RuleActionException")
        assert dead.description == "Rule 'r': The application properties would be too large."

    def test_and_is_dropped_where_dead_letters_are_not_wanted(self, made: Made) -> None:
        made.subscribe("s", sql("r", "1=1", "SET huge = 1"), dead_letter_on_filter_errors=False)
        assert made.copies() == []


class TestScheduled:
    def test_a_message_for_later_has_no_copies_yet(self, made: Made) -> None:
        made.subscribe("s")
        message = Incoming(b"colour=red", "m1", due_at_ms=made.clock.now + 1)
        assert made.publish(message) == [Publication(message, [])]

    def test_a_time_that_has_come_is_no_reason_to_wait(self, made: Made) -> None:
        made.subscribe("s")
        assert len(made.copies(due_at_ms=made.clock.now)) == 1

    def test_the_topic_waits_for_its_own_queue_in_peek_lock(self, made: Made) -> None:
        made.topic.begin()
        asked = made.store.take(Acquire)
        assert (asked.queue, asked.mode, asked.limit) == (20, ReceiveMode.PEEK_LOCK, ACQUIRE_MAX)
        assert asked.origin is TOPIC

    def test_messages_whose_time_has_come_are_published_with_the_lock_that_is_completed(self, made: Made) -> None:
        subscription = made.subscribe("s", sql("r", "colour = 'red'"))
        made.topic.begin()
        waited = [
            Delivered(1, b"colour=red,Ttl=500", "m1", 0, 0, token=TOKEN, session_id="session"),
            Delivered(2, b"colour=blue", "m2", 0, 0, token=TOKEN[::-1]),
        ]
        made.store.finish(made.store.take(Acquire), waited)
        command = made.store.take(Publish)
        assert (command.queue, command.origin) == (20, TOPIC)
        assert command.units == [
            [
                Publication(
                    Incoming(b"colour=red,Ttl=500", "m1", "session", 500),
                    [Copy(subscription.number(), "m1", "session", 500)],
                )
            ],
            [Publication(Incoming(b"colour=blue", "m2"), [])],
        ]
        assert command.transfers == [Transfer(20, 1, TOKEN), Transfer(20, 2, TOKEN[::-1])]

    @pytest.mark.parametrize(
        ("told", "holds"), [(2**32 - 1, 2**33), (2**32 + 5, 2**32 + 5), (2**34, 2**33), (500, 500)]
    )
    def test_a_time_to_live_beyond_what_a_header_tells_is_not_cut_off(
        self, store: Any, clock: Any, reader: FakeReader, told: int, holds: int
    ) -> None:
        made = Made(store, clock, reader, default_ttl_ms=2**33)
        made.subscribe("s")
        made.topic.begin()
        made.store.finish(made.store.take(Acquire), [Delivered(1, f"Ttl={told}".encode(), "m1", 0, 0, token=TOKEN)])
        ((publication,),) = made.store.take(Publish).units
        assert [copy.ttl_ms for copy in publication.copies] == [holds]

    def test_the_rules_of_that_time_hold(self, made: Made) -> None:
        subscription = made.subscribe("s", sql("r", "colour = 'blue'"))
        made.publish(Incoming(b"colour=red", "m1", due_at_ms=made.clock.now + 1_000))
        subscription.set_rules([DEFAULT])
        made.topic.rules_changed()
        made.topic.begin()
        made.store.finish(made.store.take(Acquire), [Delivered(1, b"colour=red", "m1", 0, 0, token=TOKEN)])
        ((publication,),) = made.store.take(Publish).units
        assert [copy.queue for copy in publication.copies] == [subscription.number()]

    def test_after_a_delivery_the_topic_waits_for_the_next_hint(self, made: Made) -> None:
        made.topic.begin()
        made.store.finish(made.store.take(Acquire), [Delivered(1, b"", "m1", 0, 0, token=TOKEN)])
        made.store.take(Publish)
        assert made.store.commands == []
        made.topic.mailbox().feed.wake()
        assert made.store.take(Acquire).queue == 20

    def test_with_a_full_hand_it_asks_again_at_once(self, made: Made) -> None:
        made.topic.begin()
        many = [Delivered(n, b"", f"m{n}", 0, 0, token=n.to_bytes(16, "big")) for n in range(1, ACQUIRE_MAX + 1)]
        made.store.finish(made.store.take(Acquire), many)
        assert len(made.store.take(Publish).units) == ACQUIRE_MAX
        assert made.store.take(Acquire).limit == ACQUIRE_MAX

    def test_nothing_is_published_when_nothing_was_due(self, made: Made) -> None:
        made.topic.begin()
        made.store.finish(made.store.take(Acquire), [])
        assert made.store.commands == []

    def test_after_a_failure_of_the_store_the_next_hint_tries_again(self, made: Made) -> None:
        made.topic.begin()
        made.store.finish(made.store.take(Acquire), error=BusError(Fault.STORE_UNAVAILABLE, "down"))
        assert made.store.commands == [], "a store that is down is not asked again and again"
        made.topic.mailbox().feed.wake()
        assert made.store.take(Acquire).queue == 20

    def test_a_topic_that_is_gone_takes_nothing_more(self, made: Made) -> None:
        made.topic.begin()
        asked = made.store.take(Acquire)
        made.topic.end()
        made.store.finish(asked, [Delivered(1, b"", "m1", 0, 0, token=TOKEN)])
        assert made.store.all(Publish) == []
        made.topic.mailbox().feed.wake()
        assert made.store.all(Acquire) == []
