"""What receivers ask of a partitioned queue: by token, by number, by session, or of all fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from twinbus.entities.fragments import fragments_of
from twinbus.entities.partitioned_mailbox import PartitionedMailbox
from twinbus.entities.partitions import FRAGMENTS, fragment_of, mark_of, outer_token
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, Outcome, ReceiveMode, Settlement
from twinbus.store import commands as c

BASE = 8
ORIGIN = Origin("connection-1")
DOWN = BusError(Fault.STORE_UNAVAILABLE, "down")
INNER = [n.to_bytes(16, "big") for n in range(1, 5)]
HERE = [outer_token(mark_of(index), token) for index, token in zip((3, 9, 3, 0), INNER, strict=True)]


@pytest.fixture
def stores(sixteen_stores: list[Any]) -> list[Any]:
    return sixteen_stores


def mailbox(stores: list[Any], sub_queue: int = 0, sessions_stay: bool = True) -> PartitionedMailbox:
    return PartitionedMailbox(fragments_of(BASE, range(FRAGMENTS), stores), sub_queue, sessions_stay)


def message(number: int, *, size: int = 1, token: bytes = b"") -> Delivered:
    return Delivered(number, b"x" * size, f"m{number}", 0, 0, token=token)


class Answers:
    """Answers by position, in the order in which they came."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def __call__(self, answers: list[Any], which: Sequence[int] | None = None, /) -> None:
        self.found.update(zip(range(len(answers)) if which is None else which, answers, strict=True))


class TestTokens:
    def test_each_fragment_completes_its_own_and_answers_for_itself(self, stores: list[Any]) -> None:
        answers = Answers()
        mailbox(stores, 1).complete(HERE, ORIGIN, answers)
        command = stores[3].take(c.Complete)
        assert (command.queue, command.tokens) == ((BASE + 3) * 4 + 1, [INNER[0], INNER[2]])
        stores[3].finish(command, [None, None])
        assert answers.found == {0: None, 2: None}
        stores[9].finish(stores[9].take(c.Complete), error=DOWN)
        assert answers.found[1] is DOWN

    def test_tokens_of_one_fragment_are_answered_at_once(self, stores: list[Any]) -> None:
        answers: list[Any] = []
        mailbox(stores).complete([HERE[0], HERE[2]], ORIGIN, answers.append)  # type: ignore[arg-type]
        stores[3].finish(stores[3].take(c.Complete), [None, DOWN])
        assert answers == [[None, DOWN]]

    def test_a_token_of_no_fragment_locks_nothing(self, stores: list[Any]) -> None:
        answers = Answers()
        mailbox(stores).settle([Settlement(bytes(16), Outcome.ABANDON)], ORIGIN, answers)
        assert answers.found[0].fault is Fault.LOCK_LOST

    def test_settling_keeps_everything_but_the_mark(self, stores: list[Any]) -> None:
        asked = Settlement(HERE[1], Outcome.DEAD_LETTER, b"overlay", "why", "because", 7)
        mailbox(stores).settle([asked], ORIGIN, Answers())
        assert stores[9].take(c.Settle).settlements == [asked._replace(token=INNER[1])]

    async def test_settling_all_settles_the_rest_when_one_fails(self, stores: list[Any]) -> None:
        stores[3].answers[c.Settle] = DOWN
        stores[9].answers[c.Settle] = [None]
        stores[0].answers[c.Settle] = [None]
        with pytest.raises(BusError, match="down"):
            await mailbox(stores).settle_all([Settlement(token, Outcome.DEFER) for token in HERE], ORIGIN)
        assert len(stores[9].take(c.Settle).settlements) == len(stores[0].take(c.Settle).settlements) == 1

    async def test_renewals_and_inspections_come_back_in_order(self, stores: list[Any]) -> None:
        stores[3].answers |= {c.Renew: [30, 31], c.Inspect: [message(1, token=INNER[0]), None]}
        stores[9].answers |= {c.Renew: [90], c.Inspect: [message(2, token=INNER[1])]}
        stores[0].answers |= {c.Renew: [10], c.Inspect: [None]}
        assert await mailbox(stores).renew(HERE, ORIGIN) == [30, 90, 31, 10]
        found = await mailbox(stores).inspect(HERE, ORIGIN)
        assert [None if each is None else each.token for each in found] == [HERE[0], HERE[1], None, None]


class PeekedStore:
    """Holds numbered messages for peeking, at most two to a page."""

    pending_bytes = 0
    is_available = True

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.asked: list[c.Peek] = []

    def submit(self, command: c.Command) -> None:
        raise AssertionError("nothing is submitted here")

    async def call(self, command: Any) -> Any:
        self.asked.append(command)
        start = command.from_sequence_number
        found = [number for number in self.numbers if number >= start][: min(command.limit, 2)]
        command.result = [message(number, size=400) for number in found]
        return command


class TestPeek:
    def numbered(self) -> list[Any]:
        return [PeekedStore(list(range(1, 6)) if index in (0, 7, 15) else []) for index in range(FRAGMENTS)]

    @pytest.mark.parametrize("page", [1, 2, 3, 4, 7, 15, 100])
    async def test_going_on_behind_the_last_number_sees_everything_once(self, page: int) -> None:
        box = mailbox(self.numbered())
        seen: list[int] = []
        while found := await box.peek(seen[-1] + 1 if seen else 0, page, None, ORIGIN):
            assert len(found) <= page
            seen += [each.sequence_number for each in found]
        assert seen == [index << 48 | number for index in (0, 7, 15) for number in range(1, 6)]

    async def test_a_fragment_that_is_down_is_skipped(self) -> None:
        stores = self.numbered()
        stores[7].is_available = False
        found = await mailbox(stores).peek(1, 100, None, ORIGIN)
        assert {each.sequence_number >> 48 for each in found} == {0, 15}

    async def test_no_answer_is_larger_than_one_fragments_would_be(self) -> None:
        found = await mailbox(self.numbered()).peek(0, 100, None, ORIGIN, max_bytes=1500)
        assert len(found) == 4

    async def test_a_session_is_looked_at_where_it_lies(self) -> None:
        stores = self.numbered()
        await mailbox(stores).peek(0, 10, "s", ORIGIN)
        assert [index for index, store in enumerate(stores) if store.asked] == [fragment_of("s")]
        await mailbox(stores, sessions_stay=False).peek(0, 100, "s", ORIGIN)
        assert all(store.asked for store in stores)

    async def test_behind_the_last_fragment_there_is_nothing(self) -> None:
        assert await mailbox(self.numbered()).peek(16 << 48, 10, None, ORIGIN) == []


class TestNumbers:
    async def test_deferred_messages_of_several_fragments_come_in_the_order_of_asking(self, stores: list[Any]) -> None:
        stores[2].answers[c.AcquireDeferred] = [message(4, token=INNER[0]), message(6, token=INNER[1])]
        stores[5].answers[c.AcquireDeferred] = [message(1, token=INNER[2])]
        numbers = [2 << 48 | 6, 5 << 48 | 1, 2 << 48 | 4]
        found = await mailbox(stores).receive_deferred(numbers, ReceiveMode.PEEK_LOCK, 1, None, ORIGIN)
        assert [each.sequence_number for each in found] == numbers
        assert stores[2].take(c.AcquireDeferred).sequence_numbers == [6, 4]

    async def test_when_one_fragment_refuses_the_locks_of_others_are_given_back(self, stores: list[Any]) -> None:
        stores[2].answers[c.AcquireDeferred] = [message(4, token=INNER[0])]
        stores[5].answers[c.AcquireDeferred] = BusError(Fault.MESSAGE_NOT_FOUND, "none")
        numbers = [2 << 48 | 4, 5 << 48 | 1]
        with pytest.raises(BusError, match="none"):
            await mailbox(stores).receive_deferred(numbers, ReceiveMode.PEEK_LOCK, 1, None, ORIGIN)
        assert stores[2].take(c.Settle).settlements == [Settlement(INNER[0], Outcome.RELEASE)]

    @pytest.mark.parametrize("number", [16 << 48 | 1, -5])
    async def test_a_number_of_no_fragment_is_not_found(self, stores: list[Any], number: int) -> None:
        with pytest.raises(BusError) as refused:
            await mailbox(stores).cancel_scheduled([1, number], ORIGIN)
        assert refused.value.fault is Fault.MESSAGE_NOT_FOUND
        assert stores[0].commands == []

    async def test_scheduled_messages_are_cancelled_in_their_fragments(self, stores: list[Any]) -> None:
        await mailbox(stores).cancel_scheduled([4 << 48 | 7, 6 << 48 | 8, 4 << 48 | 9], ORIGIN)
        assert stores[4].take(c.CancelScheduled).sequence_numbers == [7, 9]
        assert stores[6].take(c.CancelScheduled).sequence_numbers == [8]


class TestAll:
    async def test_a_batch_is_deleted_from_one_fragment_after_the_other(self, stores: list[Any]) -> None:
        for store in stores:
            store.answers[c.DeleteBatch] = 3
        assert await mailbox(stores).delete_batch(8, 5, ORIGIN, every_state=True) == 9
        assert [stores[n].take(c.DeleteBatch).limit for n in range(3)] == [8, 5, 2]
        assert stores[3].commands == []

    async def test_nothing_in_reach_is_no_end_while_a_store_is_down(self, stores: list[Any]) -> None:
        stores[3].is_available = False
        with pytest.raises(BusError) as refused:
            await mailbox(stores).delete_batch(8, 5, ORIGIN)
        assert refused.value.fault is Fault.STORE_UNAVAILABLE
        stores[2].answers[c.DeleteBatch] = 1
        assert await mailbox(stores).delete_batch(8, 5, ORIGIN) == 1

    async def test_sessions_are_listed_over_all_fragments(self, stores: list[Any]) -> None:
        for index, store in enumerate(stores):
            store.answers[c.ListSessions] = [f"s{index:02}"]
        assert await mailbox(stores).list_sessions(None, 3, 2, ORIGIN) == ["s03", "s04"]
        asked = stores[0].take(c.ListSessions)
        assert (asked.skip, asked.limit) == (0, 5)

    async def test_a_sessions_state_and_lock_are_in_its_fragment(self, stores: list[Any]) -> None:
        home = stores[fragment_of("s")]
        home.answers |= {c.GetSessionState: b"state", c.RenewSession: 7}
        box = mailbox(stores)
        await box.set_session_state("s", b"state", ORIGIN)
        assert (await box.get_session_state("s", ORIGIN), await box.renew_session("s", ORIGIN)) == (b"state", 7)
        assert len(home.commands) == 3

    def test_hints_and_losses_reach_the_fragment_that_they_are_about(self, stores: list[Any]) -> None:
        box = mailbox(stores, 1)
        assert box.feed_of((BASE + 5) * 4 + 1) is box.feed.parts[5]
        assert box.feeds_on(5) == [box.feed.parts[5]]
