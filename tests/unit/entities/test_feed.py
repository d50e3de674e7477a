"""Feeding receivers: demand, waiting, waking a few at a time, receivers that leave, and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twinbus.entities.feed import ACQUIRE_MAX, WAKE_AT_ONCE, Feed, SessionRequest
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, Outcome, ReceiveMode, SessionGrant, Settlement
from twinbus.store.commands import AcceptSession, Acquire, ReleaseSession, Settle

QUEUE = 8
ORIGIN = Origin("connection-1")
Messages = Callable[..., list[Delivered]]
LOST = BusError(Fault.SESSION_LOCK_LOST, "lost")


@pytest.fixture
def feed(store: Any) -> Feed:
    return Feed(QUEUE, store)


def wait_all(feed: Feed, store: Any, receivers: list[Any]) -> None:
    """Let receivers ask an empty queue, so that they wait in this order."""
    for each in receivers:
        feed.pull(each)
        store.finish(store.take(Acquire), [])


class TestWatching:
    def test_who_watches_is_called_with_every_hint_and_takes_nothing(self, feed: Feed, store: Any) -> None:
        calls: list[str] = []

        def watcher() -> None:
            calls.append("looked")

        feed.watch(watcher)
        assert not feed.is_idle
        feed.wake()
        feed.lost(BusError(Fault.STORE_UNAVAILABLE, "down"))
        assert (len(calls), store.commands) == (2, [])
        feed.unwatch(watcher)
        feed.wake()
        assert len(calls) == 2
        assert feed.is_idle


class TestPull:
    def test_the_store_is_asked_for_what_the_receiver_can_take(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(7, session="s", mode=ReceiveMode.RECEIVE_AND_DELETE, owner=3, holder=9)
        feed.pull(link)
        asked = store.take(Acquire)
        assert (asked.queue, asked.limit, asked.mode) == (QUEUE, 7, ReceiveMode.RECEIVE_AND_DELETE)
        assert (asked.owner, asked.session, asked.holder) == (3, "s", 9)
        assert asked.origin == link.origin
        assert feed.is_busy(link)

    def test_without_demand_the_store_is_left_alone(self, feed: Feed, store: Any, receiver: Any) -> None:
        feed.pull(receiver(0))
        assert store.commands == []
        assert feed.is_idle

    def test_no_acquire_asks_for_more_than_its_share(self, feed: Feed, store: Any, receiver: Any) -> None:
        feed.pull(receiver(1_000_000))
        assert store.take(Acquire).limit == ACQUIRE_MAX

    def test_a_receiver_has_one_acquire_under_way(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(5)
        feed.pull(link)
        feed.pull(link)
        assert len(store.all(Acquire)) == 1

    def test_a_full_answer_is_followed_by_another_acquire_while_there_is_demand(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        link = receiver(ACQUIRE_MAX + 10)
        feed.pull(link)
        store.finish(store.take(Acquire), messages(ACQUIRE_MAX))
        assert store.take(Acquire).limit == 10

    def test_an_answer_cut_short_by_its_bytes_is_followed_by_another_acquire(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        link = receiver(10)
        feed.pull(link)
        asked = store.take(Acquire)
        asked.truncated = True
        store.finish(asked, messages(4))
        assert store.take(Acquire).limit == 6

    def test_a_satisfied_receiver_does_not_wait(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        link = receiver(3)
        feed.pull(link)
        store.finish(store.take(Acquire), messages(3))
        assert link.deliveries == [3]
        assert store.commands == []
        assert feed.is_idle

    def test_an_empty_answer_is_delivered_too_and_the_receiver_waits(
        self, feed: Feed, store: Any, receiver: Any
    ) -> None:
        link = receiver(3)
        wait_all(feed, store, [link])
        assert link.deliveries == [0]
        assert not feed.is_idle
        feed.wake()
        assert store.take(Acquire).limit == 3

    def test_a_receiver_that_asks_again_while_taking_has_still_one_acquire(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        link = receiver(2)
        link.on_deliver = lambda: feed.pull(link)
        feed.pull(link)
        store.finish(store.take(Acquire), messages(1))
        assert len(store.all(Acquire)) == 1
        feed.wake()
        assert len(store.all(Acquire)) == 1

    def test_a_failed_acquire_is_told_to_the_receiver_only(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(3)
        feed.pull(link)
        store.finish(store.take(Acquire), error=LOST)
        assert link.errors == [LOST]
        assert link.deliveries == []
        assert feed.is_idle


class TestFairness:
    def test_a_hint_wakes_sixteen_of_those_who_wait_the_longest_waiting_first(
        self, feed: Feed, store: Any, receiver: Any
    ) -> None:
        links = [receiver(1, owner=n) for n in range(40)]
        wait_all(feed, store, links)
        feed.wake()
        assert WAKE_AT_ONCE == 16
        assert [asked.owner for asked in store.all(Acquire)] == list(range(16))

    def test_each_satisfied_receiver_wakes_the_next_while_messages_last(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        links = [receiver(1, owner=n) for n in range(40)]
        wait_all(feed, store, links)
        feed.wake()
        served = []
        while asked := store.all(Acquire):
            served.append(asked[0].owner)
            store.finish(asked[0], messages(1) if len(served) <= 30 else [])
        assert served[:30] == list(range(30))
        assert [link.deliveries for link in links[:30]] == [[0, 1]] * 30
        # The queue was empty from then on: those who were already woken asked in vain, the others were left alone.
        assert served[30:] == list(range(30, 40))
        assert all(link.got == [] for link in links[30:])

    def test_the_chain_ends_with_the_messages(self, feed: Feed, store: Any, receiver: Any, messages: Messages) -> None:
        links = [receiver(1, owner=n) for n in range(100)]
        wait_all(feed, store, links)
        feed.wake()
        first = store.all(Acquire)[0]
        store.finish(first, messages(1))
        for asked in store.all(Acquire):
            store.finish(asked, [])
        # Sixteen were woken and the one that got something woke one more.
        assert [link.owner for link in links if len(link.deliveries) > 1] == list(range(17))
        assert store.commands == []

    def test_whoever_was_served_waits_behind_those_who_were_not(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        first, second = receiver(5, owner=1), receiver(5, owner=2)
        wait_all(feed, store, [first, second])
        feed.pull(first)
        store.finish(store.take(Acquire), messages(1))
        feed.wake()
        assert [asked.owner for asked in store.all(Acquire)] == [2, 1]

    def test_receivers_that_lost_their_demand_do_not_use_up_a_hint(self, feed: Feed, store: Any, receiver: Any) -> None:
        links = [receiver(1, owner=n) for n in range(WAKE_AT_ONCE + 1)]
        wait_all(feed, store, links)
        for link in links[:WAKE_AT_ONCE]:
            link.credit = 0
        feed.wake()
        assert [asked.owner for asked in store.all(Acquire)] == [WAKE_AT_ONCE]


class TestLeaving:
    def test_a_receiver_that_left_is_not_woken(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(3)
        wait_all(feed, store, [link])
        feed.leave(link)
        feed.wake()
        assert store.commands == []
        assert feed.is_idle

    def test_what_was_locked_for_a_receiver_that_left_is_given_back_uncounted(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        link = receiver(3)
        feed.pull(link)
        asked = store.take(Acquire)
        feed.leave(link)
        assert not feed.is_idle
        locked = messages(2)
        store.finish(asked, locked)
        returned = store.take(Settle)
        assert returned.queue == QUEUE
        assert returned.settlements == [Settlement(m.token, Outcome.RELEASE) for m in locked]
        assert link.deliveries == []
        assert store.commands == []
        assert feed.is_idle

    def test_what_was_removed_for_a_receiver_that_left_cannot_be_given_back(
        self, feed: Feed, store: Any, receiver: Any, messages: Messages
    ) -> None:
        link = receiver(3, mode=ReceiveMode.RECEIVE_AND_DELETE)
        feed.pull(link)
        asked = store.take(Acquire)
        feed.leave(link)
        store.finish(asked, messages(2, locked=False))
        assert store.commands == []
        assert link.deliveries == []

    def test_an_acquire_that_the_store_has_not_come_to_is_withdrawn(
        self, feed: Feed, store: Any, receiver: Any
    ) -> None:
        link = receiver(5)
        feed.pull(link)
        asked = store.take(Acquire)
        assert (feed.asked_for(link), asked.withdrawn) == (5, False)
        feed.leave(link)
        assert asked.withdrawn

    def test_a_failure_after_leaving_is_told_to_nobody(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(3)
        feed.pull(link)
        asked = store.take(Acquire)
        feed.leave(link)
        store.finish(asked, error=LOST)
        assert link.errors == []
        assert feed.is_idle

    def test_leaving_a_session_gives_it_back(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(0, session="s", holder=9)
        feed.seat(link)
        assert not feed.is_idle
        feed.leave(link)
        released = store.take(ReleaseSession)
        assert (released.queue, released.session, released.holder) == (QUEUE, "s", 9)
        assert feed.is_idle

    def test_leaving_twice_gives_the_session_back_once(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(0, session="s", holder=9)
        feed.seat(link)
        feed.leave(link)
        feed.leave(link)
        assert len(store.all(ReleaseSession)) == 1

    def test_a_receiver_that_left_does_not_take_the_session_of_its_successor_with_it(
        self, feed: Feed, store: Any, receiver: Any
    ) -> None:
        before, after = receiver(0, session="s", holder=9), receiver(0, session="s", holder=10)
        feed.seat(before)
        feed.session_lost("s", 9, LOST)
        feed.seat(after)
        feed.leave(before)
        assert store.all(ReleaseSession) == []


class Asking:
    """A request for a session that remembers its answers."""

    def __init__(self, session: str | None = None, holder: int = 5) -> None:
        self.answers: list[tuple[SessionGrant | None, BusError | None]] = []
        self.request = SessionRequest(
            session, 1, holder, ORIGIN, lambda grant, error: self.answers.append((grant, error))
        )


class TestSessions:
    GRANT = SessionGrant("s", 30_000)

    def test_a_free_session_is_granted(self, feed: Feed, store: Any) -> None:
        asking = Asking("s")
        feed.request_session(asking.request)
        asked = store.take(AcceptSession)
        assert (asked.queue, asked.session, asked.owner, asked.holder) == (QUEUE, "s", 1, 5)
        store.finish(asked, self.GRANT)
        assert asking.answers == [(self.GRANT, None)]
        assert feed.is_idle

    def test_a_session_that_somebody_holds_is_refused(self, feed: Feed, store: Any) -> None:
        asking, held = Asking("s"), BusError(Fault.SESSION_HELD, "held")
        feed.request_session(asking.request)
        store.finish(store.take(AcceptSession), error=held)
        assert asking.answers == [(None, held)]

    def test_a_wish_for_any_session_waits_until_one_is_free(self, feed: Feed, store: Any) -> None:
        asking = Asking()
        feed.request_session(asking.request)
        store.finish(store.take(AcceptSession))
        assert asking.answers == []
        assert not feed.is_idle
        feed.wake_sessions({"s"})
        store.finish(store.take(AcceptSession), self.GRANT)
        assert asking.answers == [(self.GRANT, None)]
        assert feed.is_idle

    def test_as_many_wishes_are_tried_as_sessions_became_free_the_oldest_first(self, feed: Feed, store: Any) -> None:
        wishes = [Asking(holder=n) for n in range(5)]
        for wish in wishes:
            feed.request_session(wish.request)
            store.finish(store.take(AcceptSession))
        feed.wake_sessions({"a", "b"})
        assert [asked.holder for asked in store.all(AcceptSession)] == [0, 1]

    def test_a_wish_that_was_tried_in_vain_keeps_its_place(self, feed: Feed, store: Any) -> None:
        wishes = [Asking(holder=n) for n in range(3)]
        for wish in wishes:
            feed.request_session(wish.request)
            store.finish(store.take(AcceptSession))
        feed.wake_sessions({"a"})
        store.finish(store.take(AcceptSession))
        feed.wake_sessions({"a"})
        assert [asked.holder for asked in store.all(AcceptSession)] == [0]

    def test_a_session_that_a_receiver_here_holds_wakes_no_wish_but_that_receiver(
        self, feed: Feed, store: Any, receiver: Any
    ) -> None:
        link, asking = receiver(3, session="s", holder=9), Asking()
        feed.seat(link)
        wait_all(feed, store, [link])
        feed.request_session(asking.request)
        store.finish(store.take(AcceptSession))
        feed.wake_sessions({"s"})
        assert store.take(Acquire).session == "s"
        assert store.all(AcceptSession) == []

    def test_a_plain_hint_leaves_receivers_of_sessions_alone(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(3, session="s", holder=9)
        feed.seat(link)
        wait_all(feed, store, [link])
        feed.wake()
        assert store.commands == []

    def test_a_withdrawn_wish_is_not_tried_again(self, feed: Feed, store: Any) -> None:
        asking = Asking()
        feed.request_session(asking.request)
        store.finish(store.take(AcceptSession))
        feed.withdraw(asking.request)
        feed.wake_sessions({"s"})
        assert store.commands == []
        assert asking.answers == []
        assert feed.is_idle

    def test_a_session_granted_to_a_withdrawn_wish_is_given_back(self, feed: Feed, store: Any) -> None:
        asking = Asking("s")
        feed.request_session(asking.request)
        asked = store.take(AcceptSession)
        feed.withdraw(asking.request)
        store.finish(asked, self.GRANT)
        released = store.take(ReleaseSession)
        assert (released.session, released.holder) == ("s", 5)
        assert asking.answers == []

    @pytest.mark.parametrize("error", [None, BusError(Fault.SESSION_HELD, "held")])
    def test_a_withdrawn_wish_that_got_nothing_leaves_nothing(
        self, feed: Feed, store: Any, error: BusError | None
    ) -> None:
        asking = Asking("s")
        feed.request_session(asking.request)
        asked = store.take(AcceptSession)
        feed.withdraw(asking.request)
        store.finish(asked, error=error)
        assert store.commands == []
        assert asking.answers == []
        assert feed.is_idle

    def test_the_end_of_a_session_lock_is_told_to_its_holder(self, feed: Feed, store: Any, receiver: Any) -> None:
        link = receiver(3, session="s", holder=9)
        feed.seat(link)
        wait_all(feed, store, [link])
        feed.session_lost("s", 9, LOST)
        assert link.errors == [LOST]
        assert feed.is_idle

    def test_the_end_of_an_earlier_holders_lock_is_not_told_to_the_present_one(self, feed: Feed, receiver: Any) -> None:
        link = receiver(3, session="s", holder=10)
        feed.seat(link)
        feed.session_lost("s", 9, LOST)
        feed.session_lost("other", 10, LOST)
        assert link.errors == []
        assert not feed.is_idle


class TestLostStore:
    """The store of the queue is gone: whoever waits there, or holds a session, is told."""

    GONE = BusError(Fault.STORE_UNAVAILABLE, "gone")

    def test_receivers_that_wait_are_told_once(self, feed: Feed, store: Any, receiver: Any) -> None:
        waiting, seated = receiver(1), receiver(1, session="s", holder=2)
        wait_all(feed, store, [waiting])
        feed.seat(seated)
        wait_all(feed, store, [seated])
        feed.lost(self.GONE)
        feed.lost(self.GONE)
        assert (waiting.errors, seated.errors) == ([self.GONE], [self.GONE])
        feed.wake()
        assert store.all(Acquire) == []

    def test_one_whose_acquire_is_under_way_is_told_by_its_answer(self, feed: Feed, store: Any, receiver: Any) -> None:
        busy = receiver(1)
        feed.pull(busy)
        feed.lost(self.GONE)
        assert busy.errors == []
        store.finish(store.take(Acquire), error=self.GONE)
        assert busy.errors == [self.GONE]

    def test_who_waits_for_any_session_is_refused(self, feed: Feed, store: Any) -> None:
        answers: list[tuple[SessionGrant | None, BusError | None]] = []
        feed.request_session(SessionRequest(None, 1, 2, ORIGIN, lambda *answer: answers.append(answer)))
        store.finish(store.take(AcceptSession))
        feed.lost(self.GONE)
        assert answers == [(None, self.GONE)]
        feed.wake_sessions({"s"})
        assert store.all(AcceptSession) == []

    def test_who_comes_after_the_return_is_served(self, feed: Feed, store: Any, receiver: Any) -> None:
        feed.lost(self.GONE)
        feed.returned()
        link = receiver(1)
        feed.pull(link)
        assert store.take(Acquire).limit == 1
