"""The judge is judged first: each kind of fault, planted in a history, must be found."""

from __future__ import annotations

from faults.history import History, Place, SessionHistory
from twinbus.model.message import Outcome


def sent(*message_ids: str) -> History:
    history = History("q")
    for message_id in message_ids:
        history.attempted(message_id)
        history.acknowledged(message_id)
    return history


def settled(outcome: Outcome) -> History:
    history = sent("m")
    history.received("m", 0)
    history.settling("m", outcome)
    history.settled("m", outcome)
    return history


def test_what_was_acknowledged_must_be_there() -> None:
    assert sent("m").judge({}) == ["q: m is nowhere, but must be queue"]
    assert sent("m").judge({Place.QUEUE: ["m"]}) == []


def test_what_was_never_sent_must_not_be_there() -> None:
    assert History("q").judge({Place.QUEUE: ["m"]}) == ["q: m is queue, but must be nowhere"]
    history = History("q")
    history.received("m", 0)
    assert history.problems == ["q: m was received, but never sent"]


def test_nothing_is_there_twice() -> None:
    assert sent("m").judge({Place.QUEUE: ["m", "m"]}) == ["q: m is there 2 times: queue or queue"]
    assert sent("m").judge({Place.QUEUE: ["m"], Place.DEAD: ["m"]}) != []


def test_an_unanswered_send_may_be_there_or_not() -> None:
    for found in ([], ["m"]):
        history = History("q")
        history.attempted("m")
        history.not_sent("m", definite=False)
        assert history.judge({Place.QUEUE: found}) == []


def test_a_refused_send_must_not_be_there() -> None:
    history = History("q")
    history.attempted("m")
    history.not_sent("m", definite=True)
    assert history.judge({Place.QUEUE: ["m"]}) == ["q: m is queue, but must be nowhere"]


def test_a_send_that_is_repeated_may_be_there_again() -> None:
    history = History("q")
    history.attempted("m")
    history.not_sent("m", definite=True)
    history.attempted("m")
    history.received("m", 0)
    history.acknowledged("m")
    assert history.judge({Place.QUEUE: ["m"]}) == []
    assert (history.counts["attempted"], history.waiting) == (1, 1)


def test_what_was_settled_stays_settled() -> None:
    for outcome, place in ((Outcome.DEFER, Place.DEFERRED), (Outcome.DEAD_LETTER, Place.DEAD)):
        assert settled(outcome).judge({place: ["m"]}) == []
        assert len(settled(outcome).judge({Place.QUEUE: ["m"]})) == 1
        assert len(settled(outcome).judge({})) == 1
    assert settled(Outcome.COMPLETE).judge({}) == []
    history = settled(Outcome.COMPLETE)
    history.received("m", 1)
    assert history.problems == ["q: m was received, but must be nowhere"]


def test_an_unanswered_settlement_may_have_happened_or_not() -> None:
    for found in ({}, {Place.QUEUE: ["m"]}):
        history = sent("m")
        history.received("m", 0)
        history.settling("m", Outcome.COMPLETE)
        history.not_settled("m")
        assert history.judge(found) == []


def test_a_refused_settlement_is_a_problem() -> None:
    history = sent("m")
    history.received("m", 0)
    history.settling("m", Outcome.COMPLETE)
    history.not_settled("m", "lock lost")
    assert history.problems == ["q: m could not be settled: lock lost"]


def test_each_delivery_counts() -> None:
    history = sent("m")
    history.received("m", 0)
    history.received("m", 2)
    assert history.problems == []
    history.received("m", 2)
    assert history.problems == ["q: m came again with delivery count 2 after 2"]


def test_what_was_handed_out_and_deleted_does_not_come_again() -> None:
    history = sent("m")
    history.deleted("m")
    assert history.judge({}) == []
    history.deleted("m")
    assert history.problems == ["q: m was received, but must be nowhere"]


def test_an_acknowledgement_that_comes_after_the_message_changes_nothing() -> None:
    history = History("q")
    history.attempted("m")
    history.received("m", 0)
    history.settling("m", Outcome.COMPLETE)
    history.settled("m", Outcome.COMPLETE)
    history.acknowledged("m")
    assert history.judge({}) == []


def test_what_one_receiver_abandons_another_may_complete_before_the_first_is_told() -> None:
    history = sent("m")
    history.received("m", 0)
    history.settling("m", Outcome.ABANDON)
    history.received("m", 1)
    history.settling("m", Outcome.COMPLETE)
    history.settled("m", Outcome.COMPLETE)
    history.settled("m", Outcome.ABANDON)
    assert history.judge({}) == []


def test_what_waits_is_counted() -> None:
    history = sent("a", "b", "c")
    history.received("a", 0)
    history.settled("a", Outcome.DEFER)
    assert history.waiting == 2


def session(count: int) -> SessionHistory:
    history = SessionHistory("q")
    for number in range(count):
        history.attempted(f"s:{number}")
        history.acknowledged(f"s:{number}")
    history.taken("s")
    return history


def test_a_session_comes_in_order() -> None:
    history = session(3)
    for number in (0, 1, 2):
        history.in_session("s", number)
    history.taken("s")
    history.in_session("s", 0)
    assert history.problems == []


def test_a_message_left_out_of_a_session_is_a_problem() -> None:
    history = session(3)
    history.in_session("s", 0)
    history.in_session("s", 2)
    assert history.problems == ["q: session s: 2 came before 1"]


def test_a_step_back_in_a_session_is_a_problem() -> None:
    history = session(3)
    history.in_session("s", 0)
    history.in_session("s", 1)
    history.in_session("s", 0)
    assert history.problems == ["q: session s: 0 came after 1"]


def test_what_may_not_have_been_stored_may_be_left_out() -> None:
    history = session(1)
    history.attempted("s:1")
    history.attempted("s:2")
    history.acknowledged("s:2")
    history.in_session("s", 0)
    history.in_session("s", 2)
    assert history.problems == []
