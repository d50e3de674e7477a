"""A mailbox: each method is one command, and every item gets its own answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from twinbus.entities.mailbox import Mailbox, lock_error
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, Outcome, ReceiveMode, Settlement
from twinbus.store import commands as c

ORIGIN = Origin("connection-1")
LOST = BusError(Fault.LOCK_LOST, "lost")
UNAVAILABLE = BusError(Fault.STORE_UNAVAILABLE, "down")
TOKENS = [b"a" * 16, b"b" * 16]
SETTLEMENTS = [Settlement(TOKENS[0], Outcome.ABANDON), Settlement(TOKENS[1], Outcome.DEFER)]


@pytest.fixture
def mailbox(store: Any) -> Mailbox:
    return Mailbox(21, store, 2)


class TestSettling:
    def test_completing_answers_each_token(self, mailbox: Mailbox, store: Any) -> None:
        answers: list[Any] = []
        mailbox.complete(TOKENS, ORIGIN, answers.append)
        asked = store.take(c.Complete)
        assert (asked.queue, asked.origin, asked.tokens) == (21, ORIGIN, TOKENS)
        assert answers == []
        store.finish(asked, [None, LOST])
        assert answers == [[None, LOST]]

    def test_settling_answers_each_settlement(self, mailbox: Mailbox, store: Any) -> None:
        answers: list[Any] = []
        mailbox.settle(SETTLEMENTS, ORIGIN, answers.append)
        asked = store.take(c.Settle)
        assert (asked.queue, asked.settlements) == (21, SETTLEMENTS)
        store.finish(asked, [LOST, None])
        assert answers == [[LOST, None]]

    def test_a_failure_of_the_whole_is_the_answer_to_each(self, mailbox: Mailbox, store: Any) -> None:
        answers: list[Any] = []
        mailbox.complete(TOKENS, ORIGIN, answers.append)
        store.finish(store.take(c.Complete), error=UNAVAILABLE)
        mailbox.settle(SETTLEMENTS, ORIGIN, answers.append)
        store.finish(store.take(c.Settle), error=UNAVAILABLE)
        assert answers == [[UNAVAILABLE] * 2] * 2

    async def test_settling_all_raises_the_first_fault(self, mailbox: Mailbox, store: Any) -> None:
        store.answers[c.Settle] = [None, LOST]
        with pytest.raises(BusError) as refused:
            await mailbox.settle_all(SETTLEMENTS, ORIGIN)
        assert refused.value is LOST

    async def test_settling_all_is_silent_when_all_went_well(self, mailbox: Mailbox, store: Any) -> None:
        store.answers[c.Settle] = [None, None]
        await mailbox.settle_all(SETTLEMENTS, ORIGIN)
        assert store.take(c.Settle).settlements == SETTLEMENTS


class TestRenewing:
    async def test_the_new_expiries_come_back_in_order(self, mailbox: Mailbox, store: Any) -> None:
        store.answers[c.Renew] = [7, 8]
        assert await mailbox.renew(TOKENS, ORIGIN) == [7, 8]

    async def test_one_lost_lock_fails_the_request(self, mailbox: Mailbox, store: Any) -> None:
        store.answers[c.Renew] = [7, LOST]
        with pytest.raises(BusError) as refused:
            await mailbox.renew(TOKENS, ORIGIN)
        assert refused.value is LOST


Call = Callable[[Mailbox], Awaitable[Any]]
# A call, the command it becomes, the fields that must reach it, and the store's answer, which is the call's.
CALLS: list[tuple[str, Call, type[c.Command], dict[str, Any], Any]] = [
    ("inspect", lambda m: m.inspect(TOKENS, ORIGIN), c.Inspect, {"tokens": TOKENS}, [None, None]),
    (
        "peek",
        lambda m: m.peek(7, 10, "s", ORIGIN),
        c.Peek,
        {"from_sequence_number": 7, "limit": 10, "session": "s"},
        [Delivered(7, b"", "m", 0, 0)],
    ),
    (
        "receive deferred",
        lambda m: m.receive_deferred([1, 2], ReceiveMode.PEEK_LOCK, 3, "s", ORIGIN),
        c.AcquireDeferred,
        {"sequence_numbers": [1, 2], "mode": ReceiveMode.PEEK_LOCK, "owner": 3, "session": "s"},
        [Delivered(1, b"", "m", 0, 0)],
    ),
    (
        "delete batch",
        lambda m: m.delete_batch(100, 5_000, ORIGIN),
        c.DeleteBatch,
        {"limit": 100, "before_ms": 5_000},
        42,
    ),
    ("renew session", lambda m: m.renew_session("s", ORIGIN), c.RenewSession, {"session": "s"}, 9_000),
    (
        "get session state",
        lambda m: m.get_session_state("s", ORIGIN),
        c.GetSessionState,
        {"session": "s"},
        b"state",
    ),
    (
        "list sessions",
        lambda m: m.list_sessions(5, 6, 7, ORIGIN),
        c.ListSessions,
        {"updated_after_ms": 5, "skip": 6, "limit": 7},
        ["a", "b"],
    ),
]


@pytest.mark.parametrize(("name", "call", "kind", "expected", "answer"), CALLS, ids=[each[0] for each in CALLS])
async def test_a_question_is_one_command_and_its_result_the_answer(
    mailbox: Mailbox,
    store: Any,
    name: str,
    call: Call,
    kind: type[c.Command],
    expected: dict[str, Any],
    answer: Any,
) -> None:
    store.answers[kind] = answer
    assert await call(mailbox) == answer
    asked = store.take(kind)
    assert {field: getattr(asked, field) for field in expected} == expected
    assert (asked.queue, asked.origin) == (21, ORIGIN)


@pytest.mark.parametrize("state", [b"state", b"", None])
async def test_a_session_state_is_replaced_or_cleared(mailbox: Mailbox, store: Any, state: bytes | None) -> None:
    await mailbox.set_session_state("s", state, ORIGIN)
    asked = store.take(c.SetSessionState)
    assert (asked.queue, asked.session, asked.state) == (21, "s", state)


async def test_scheduled_messages_are_cancelled_by_number(mailbox: Mailbox, store: Any) -> None:
    await mailbox.cancel_scheduled([4, 5], ORIGIN)
    asked = store.take(c.CancelScheduled)
    assert (asked.queue, asked.sequence_numbers) == (21, [4, 5])


async def test_a_fault_of_the_store_is_raised(mailbox: Mailbox, store: Any) -> None:
    store.answers[c.CancelScheduled] = BusError(Fault.MESSAGE_NOT_FOUND, "no such message")
    with pytest.raises(BusError, match="no such message"):
        await mailbox.cancel_scheduled([4], ORIGIN)


class TestLockError:
    def test_in_a_session_a_lost_message_lock_means_a_lost_session(self) -> None:
        error = lock_error(LOST, has_sessions=True)
        assert (error.fault, error.text) == (Fault.SESSION_LOCK_LOST, "lost")

    def test_elsewhere_it_stays_what_it_is(self) -> None:
        assert lock_error(LOST, has_sessions=False) is LOST

    def test_other_faults_stay_what_they_are(self) -> None:
        assert lock_error(UNAVAILABLE, has_sessions=True) is UNAVAILABLE
