"""Feeding from fragments: demand is divided and never exceeded, every fragment has its turn, stores may be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twinbus.entities.feed import ACQUIRE_MAX, SessionRequest
from twinbus.entities.fragments import fragments_of
from twinbus.entities.partitioned_feed import PartitionedFeed
from twinbus.entities.partitions import FRAGMENTS, fragment_of, fragment_of_token
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, Outcome, SessionGrant
from twinbus.store.commands import AcceptSession, Acquire, ReleaseSession, Settle

BASE = 8
ORIGIN = Origin("connection-1")
Messages = Callable[..., list[Delivered]]
DOWN = BusError(Fault.STORE_UNAVAILABLE, "down")


@pytest.fixture
def stores(sixteen_stores: list[Any]) -> list[Any]:
    return sixteen_stores


@pytest.fixture
def feed(stores: list[Any]) -> PartitionedFeed:
    return PartitionedFeed(fragments_of(BASE, range(FRAGMENTS), stores), 0)


def asked(stores: list[Any]) -> dict[int, int]:
    """How many messages each fragment is asked for."""
    return {index: command.limit for index, store in enumerate(stores) for command in store.all(Acquire)}


def finish(stores: list[Any], index: int, found: list[Delivered], error: BusError | None = None) -> None:
    stores[index].finish(stores[index].take(Acquire), found, error)


def exhaust(feed: PartitionedFeed, stores: list[Any], link: Any) -> None:
    """Let a receiver ask all fragments and find nothing."""
    feed.pull(link)
    while waiting := asked(stores):
        finish(stores, min(waiting), [])


class TestDemand:
    @pytest.mark.parametrize(("credit", "most"), [(1, 1), (5, 5), (16, 16), (40, 16), (10_000, 16)])
    def test_demand_is_divided_among_the_fragments_and_not_exceeded(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, credit: int, most: int
    ) -> None:
        feed.pull(receiver(credit))
        found = asked(stores)
        assert sum(found.values()) == min(credit, ACQUIRE_MAX)
        assert len(found) == most
        assert max(found.values()) - min(found.values()) <= 1

    def test_what_one_fragment_lacks_is_asked_of_others(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        link = receiver(4)
        feed.pull(link)
        assert list(asked(stores)) == [0, 1, 2, 3]
        finish(stores, 1, [])
        assert asked(stores) == {0: 1, 2: 1, 3: 1, 4: 1}
        finish(stores, 0, messages(1))
        assert asked(stores) == {2: 1, 3: 1, 4: 1}
        assert len(link.got) == 1

    def test_a_second_pull_asks_only_for_what_is_not_asked_for_already(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        link = receiver(3)
        feed.pull(link)
        feed.pull(link)
        assert sum(asked(stores).values()) == 3
        link.credit = 5
        feed.pull(link)
        assert sum(asked(stores).values()) == 5

    def test_that_there_is_nothing_is_told_once_when_all_have_answered(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        link = receiver(20)
        exhaust(feed, stores, link)
        assert link.deliveries == [0]
        assert not feed.is_busy(link)
        assert not feed.is_idle

    def test_messages_carry_the_mark_of_their_fragment(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        link = receiver(16)
        feed.pull(link)
        finish(stores, 11, messages(1))
        (message,) = link.got
        assert (message.sequence_number, fragment_of_token(message.token)) == (11 << 48 | 1, 11)


class TestFairness:
    def test_with_one_credit_at_a_time_every_fragment_has_its_turn(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        link = receiver(1)
        served = []
        for _ in range(3 * FRAGMENTS):
            link.credit = 1
            feed.pull(link)
            (index,) = asked(stores)
            served.append(index)
            finish(stores, index, messages(1))
        assert served == [*range(FRAGMENTS)] * 3

    def test_an_empty_fragment_is_not_asked_again_before_a_hint(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        link = receiver(2)
        exhaust(feed, stores, link)
        feed.pull(link)
        assert asked(stores) == {}
        feed.parts[6].wake()
        assert asked(stores) == {6: 2}

    def test_a_hint_that_came_while_a_fragment_was_asked_is_not_lost(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        link = receiver(1)
        feed.pull(link)
        feed.parts[0].wake()
        finish(stores, 0, [])
        for index in range(1, FRAGMENTS):
            finish(stores, index, [])
        assert asked(stores) == {0: 1}

    def test_one_slow_fragment_holds_up_none_of_the_others(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        link = receiver(4)
        feed.pull(link)
        while len(waiting := asked(stores)) > 1 or 0 not in waiting:
            finish(stores, max(waiting), [])
        feed.parts[9].wake()
        assert asked(stores) == {0: 1, 9: 3}
        finish(stores, 9, messages(3))
        assert len(link.got) == 3

    def test_who_waits_longest_is_served_when_there_is_more(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        first, second = receiver(1, owner=1), receiver(1, owner=2)
        exhaust(feed, stores, first)
        exhaust(feed, stores, second)
        feed.parts[3].wake()
        commands = stores[3].all(Acquire)
        assert [command.owner for command in commands] == [1, 2]


class TestLeaving:
    def test_what_comes_too_late_is_given_back_to_its_fragment(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        link = receiver(2)
        feed.pull(link)
        feed.leave(link)
        finish(stores, 1, messages(1))
        (settlement,) = stores[1].take(Settle).settlements
        assert (settlement.token, settlement.outcome) == (messages(1)[0].token, Outcome.RELEASE)
        assert link.got == []
        finish(stores, 0, [])
        assert feed.is_idle

    def test_messages_without_room_go_back_each_to_its_fragment(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        link = receiver(16)
        feed.pull(link)
        finish(stores, 2, messages(1))
        finish(stores, 5, messages(1))
        feed.give_back(link.got, ORIGIN)
        assert [store.all(Settle) != [] for store in stores].count(True) == 2
        assert stores[5].take(Settle).queue == (BASE + 5) * 4


class TestStores:
    def test_a_fragment_that_is_down_is_left_out(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        stores[0].is_available = False
        link = receiver(1)
        feed.pull(link)
        finish(stores, 1, [], DOWN)
        assert asked(stores) == {2: 1}
        assert link.errors == []

    def test_a_fragment_is_asked_again_when_its_store_is_back(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        stores[0].is_available = False
        link = receiver(1)
        exhaust(feed, stores, link)
        stores[0].is_available = True
        feed.parts[0].returned()
        assert asked(stores) == {0: 1}

    def test_without_any_store_the_receiver_is_told(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        for store in stores:
            store.is_available = False
        link = receiver(1)
        feed.pull(link)
        assert [error.fault for error in link.errors] == [Fault.STORE_UNAVAILABLE]

    def test_who_waits_is_told_when_the_last_store_is_lost(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        link = receiver(1)
        exhaust(feed, stores, link)
        for index, store in enumerate(stores):
            assert link.errors == []
            store.is_available = False
            feed.parts[index].lost(DOWN)
        assert link.errors == [DOWN]

    def test_another_fault_is_told_at_once(self, feed: PartitionedFeed, stores: list[Any], receiver: Any) -> None:
        link = receiver(1)
        feed.pull(link)
        deleted = BusError(Fault.ENTITY_DELETED, "gone")
        finish(stores, 0, [], deleted)
        assert link.errors == [deleted]


class Wish:
    """A wish for a session, and its answers."""

    def __init__(self, session: str | None = None, holder: int = 5) -> None:
        self.answers: list[Any] = []
        self.request = SessionRequest(
            session, 1, holder, ORIGIN, lambda grant, error: self.answers.append((grant, error))
        )


def accepting(stores: list[Any]) -> list[int]:
    return [index for index, store in enumerate(stores) if store.all(AcceptSession)]


def offer(stores: list[Any], index: int, session: str | None = None, error: BusError | None = None) -> None:
    grant = None if session is None else SessionGrant(session, 99)
    stores[index].finish(stores[index].take(AcceptSession), grant, error)


class TestSessions:
    def test_a_named_session_is_asked_for_where_it_lies(self, feed: PartitionedFeed, stores: list[Any]) -> None:
        wish = Wish("s")
        feed.request_session(wish.request)
        assert accepting(stores) == [fragment_of("s")]
        offer(stores, fragment_of("s"), "s")
        assert wish.answers == [(SessionGrant("s", 99), None)]

    def test_any_session_is_asked_for_in_one_fragment_after_the_other(
        self, feed: PartitionedFeed, stores: list[Any]
    ) -> None:
        wish = Wish()
        feed.request_session(wish.request)
        seen = []
        while waiting := accepting(stores):
            assert len(waiting) == 1
            seen += waiting
            offer(stores, waiting[0])
        assert sorted(seen) == [*range(FRAGMENTS)]
        assert wish.answers == []
        feed.parts[4].wake_sessions({"new"})
        assert accepting(stores) == [4]
        offer(stores, 4, "new")
        assert wish.answers == [(SessionGrant("new", 99), None)]

    def test_a_hint_that_came_while_others_were_asked_is_not_lost(
        self, feed: PartitionedFeed, stores: list[Any]
    ) -> None:
        wish = Wish()
        feed.request_session(wish.request)
        (first,) = accepting(stores)
        offer(stores, first)
        feed.parts[first].wake_sessions({"new"})
        seen = []
        while waiting := accepting(stores):
            seen += waiting
            offer(stores, waiting[0])
        assert seen[-1] == first

    def test_a_fragment_that_is_down_does_not_refuse_a_wish_for_any_session(
        self, feed: PartitionedFeed, stores: list[Any]
    ) -> None:
        wish = Wish()
        feed.request_session(wish.request)
        (first,) = accepting(stores)
        offer(stores, first, error=DOWN)
        (second,) = accepting(stores)
        offer(stores, second, "s")
        assert wish.answers == [(SessionGrant("s", 99), None)]

    def test_a_named_session_whose_store_is_down_is_refused(self, feed: PartitionedFeed, stores: list[Any]) -> None:
        wish = Wish("s")
        feed.request_session(wish.request)
        offer(stores, fragment_of("s"), error=DOWN)
        assert wish.answers == [(None, DOWN)]

    def test_a_withdrawn_wish_gives_back_what_it_is_granted(self, feed: PartitionedFeed, stores: list[Any]) -> None:
        wish = Wish()
        feed.request_session(wish.request)
        (index,) = accepting(stores)
        feed.withdraw(wish.request)
        offer(stores, index, "s")
        assert stores[index].take(ReleaseSession).session == "s"
        assert wish.answers == []
        assert feed.is_idle

    def test_a_holder_is_served_by_the_fragment_that_granted_its_session(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any, messages: Messages
    ) -> None:
        wish = Wish(holder=5)
        feed.request_session(wish.request)
        (index,) = accepting(stores)  # Not where the session's name would lead: an action gave it to the messages.
        assert index != fragment_of("s")
        offer(stores, index, "s")
        link = receiver(3, session="s", holder=5)
        feed.seat(link)
        assert feed.home_of("s") == index
        feed.pull(link)
        assert asked(stores) == {index: 3}
        assert feed.is_busy(link)
        finish(stores, index, messages(1))
        assert fragment_of_token(link.got[0].token) == index
        feed.parts[index].wake_sessions({"s"})
        assert asked(stores) == {index: 2}
        finish(stores, index, [])
        feed.leave(link)
        assert stores[index].take(ReleaseSession).holder == 5
        assert feed.home_of("s") == fragment_of("s")
        assert feed.is_idle

    def test_a_holder_is_told_when_its_fragment_is_lost(
        self, feed: PartitionedFeed, stores: list[Any], receiver: Any
    ) -> None:
        wish = Wish("s")
        feed.request_session(wish.request)
        home = fragment_of("s")
        offer(stores, home, "s")
        link = receiver(1, session="s", holder=5)
        feed.seat(link)
        feed.parts[(home + 1) % FRAGMENTS].lost(DOWN)
        assert link.errors == []
        feed.parts[home].lost(DOWN)
        assert link.errors == [DOWN]
