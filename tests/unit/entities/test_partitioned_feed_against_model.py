"""A partitioned feed, whatever happens in whatever order: never more than there is room for, and nothing forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twinbus.entities.feed import UNBOUNDED
from twinbus.entities.fragments import fragments_of
from twinbus.entities.partitioned_feed import PartitionedFeed
from twinbus.entities.partitions import FRAGMENTS, fragment_of_token
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, ReceiveMode
from twinbus.store.commands import Acquire, Command, Settle

STORES = 4
INDEXES = st.integers(0, FRAGMENTS - 1)
STORE_INDEXES = st.integers(0, STORES - 1)


class Store:
    """A store that does what it was asked first when the test lets it."""

    pending_bytes = 0

    def __init__(self, messages: list[int]) -> None:
        self.is_available = True
        self.commands: deque[Any] = deque()
        self._messages = messages  # How many each fragment holds; shared by all stores.
        self.hint: Callable[[int], None] = lambda index: None

    def submit(self, command: Command) -> None:
        self.commands.append(command)

    def call(self, command: Any) -> Any:
        raise AssertionError("a feed does not wait")

    def work(self) -> None:
        command = self.commands.popleft()
        index = command.queue // 4 - 1
        if isinstance(command, Settle):
            self._messages[index] += len(command.settlements)
            self.hint(index)
            return
        assert isinstance(command, Acquire)
        if self.is_available:
            count = min(command.limit, self._messages[index])
            self._messages[index] -= count
            command.result = [Delivered(1, b"", "m", 0, 0, token=bytes(16)) for _ in range(count)]
        else:
            command.error = BusError(Fault.STORE_UNAVAILABLE, "down")
        assert command.done is not None
        command.done(command)


class Link:
    """A receiver whose credit the test gives."""

    mode = ReceiveMode.PEEK_LOCK
    session = None
    bounds = UNBOUNDED

    def __init__(self, number: int) -> None:
        self.owner = self.holder = number
        self.origin = Origin(str(number))
        self.credit = 0
        self.got = 0
        self.is_open = True

    def demand(self) -> int:
        return self.credit if self.is_open else 0

    def deliver(self, messages: list[Delivered]) -> None:
        assert self.is_open
        assert len(messages) <= self.credit
        assert all(fragment_of_token(message.token) is not None for message in messages)
        self.credit -= len(messages)
        self.got += len(messages)

    def failed(self, error: BusError) -> None:
        self.is_open = False


class FeedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.messages = [0] * FRAGMENTS
        self.stores = [Store(self.messages) for _ in range(STORES)]
        self.feed = PartitionedFeed(fragments_of(1, [n % STORES for n in range(FRAGMENTS)], self.stores), 0)
        for store in self.stores:
            store.hint = lambda index: self.feed.parts[index].wake()
        self.links: list[Link] = []
        self.sent = 0

    @rule(index=INDEXES, count=st.integers(1, 5))
    def arrive(self, index: int, count: int) -> None:
        if self.stores[index % STORES].is_available:
            self.messages[index] += count
            self.sent += count
            self.feed.parts[index].wake()

    @rule(credit=st.integers(1, 40))
    def attach(self, credit: int) -> None:
        self.links.append(Link(len(self.links) + 1))
        self.links[-1].credit = credit
        self.feed.pull(self.links[-1])

    @rule(which=st.integers(0, 5), credit=st.integers(1, 10))
    def flow(self, which: int, credit: int) -> None:
        alive = [link for link in self.links if link.is_open]
        if alive:
            link = alive[which % len(alive)]
            link.credit += credit
            self.feed.pull(link)

    @rule(which=st.integers(0, 5))
    def leave(self, which: int) -> None:
        alive = [link for link in self.links if link.is_open]
        if alive:
            link = alive[which % len(alive)]
            link.is_open = False
            self.feed.leave(link)

    @rule(store=STORE_INDEXES)
    def work(self, store: int) -> None:
        if self.stores[store].commands:
            self.stores[store].work()

    @rule(store=STORE_INDEXES)
    def down(self, store: int) -> None:
        if self.stores[store].is_available:
            self.stores[store].is_available = False
            self._tell(store, "lost")

    @rule(store=STORE_INDEXES)
    def up(self, store: int) -> None:
        if not self.stores[store].is_available:
            self.stores[store].is_available = True
            self._tell(store, "returned")

    def _tell(self, store: int, what: str) -> None:
        for part in self.feed.parts[store::STORES]:
            part.lost(BusError(Fault.STORE_UNAVAILABLE, "down")) if what == "lost" else part.returned()

    @invariant()
    def nobody_is_asked_for_more_than_there_is_room_for(self) -> None:
        for link in self.links:
            asked = [
                c.limit for s in self.stores for c in s.commands if isinstance(c, Acquire) and c.owner == link.owner
            ]
            assert not link.is_open or sum(asked) <= link.credit

    def teardown(self) -> None:
        """When everything has been answered, nobody waits for what is there, and nothing is missing."""
        for index in range(STORES):
            self.up(index)
        while busy := [store for store in self.stores if store.commands]:
            busy[0].work()
        hungry = [link for link in self.links if link.is_open and link.credit]
        assert not (hungry and any(self.messages)), (self.messages, [link.credit for link in hungry])
        assert sum(self.messages) + sum(link.got for link in self.links) == self.sent


FeedMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFeed = FeedMachine.TestCase
