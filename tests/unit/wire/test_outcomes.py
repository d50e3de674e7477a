"""What receivers decide, as the official clients put it into delivery states."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp.performatives import Accepted, Error, Modified, Received, Rejected, Released
from twinbus.amqp.types import Described, Symbol, ULong
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome
from twinbus.wire.outcomes import Decision, echo, read

DEAD_LETTER = Symbol("com.microsoft:dead-letter")
REASON = Symbol("DeadLetterReason")
DESCRIPTION = Symbol("DeadLetterErrorDescription")


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (Accepted(), Decision(Outcome.COMPLETE)),
        (Released(), Decision(Outcome.RELEASE)),
        # The Python client says delivery-failed in both cases, the JavaScript client in neither.
        (Modified(True, False), Decision(Outcome.ABANDON)),
        (Modified(None, False), Decision(Outcome.ABANDON)),
        (Modified(), Decision(Outcome.ABANDON)),
        (Modified(True, True), Decision(Outcome.DEFER)),
        (Modified(None, True), Decision(Outcome.DEFER)),
        (Modified(None, False, {Symbol("a"): 1}), Decision(Outcome.ABANDON, changes={"a": 1})),
        (Modified(None, True, {"a": None}), Decision(Outcome.DEFER, changes={"a": None})),
        (Rejected(), Decision(Outcome.DEAD_LETTER)),
        (
            Rejected(Error(DEAD_LETTER, "d", {REASON: "r", DESCRIPTION: "d"})),
            Decision(Outcome.DEAD_LETTER, "r", "d"),
        ),
        (
            Rejected(Error(DEAD_LETTER, None, {"DeadLetterReason": "r", "DeadLetterErrorDescription": None, "a": 1})),
            Decision(Outcome.DEAD_LETTER, "r", None, {"a": 1}),
        ),
        (
            Rejected(Error(DEAD_LETTER, "only here", {REASON: None, DESCRIPTION: None})),
            Decision(Outcome.DEAD_LETTER, None, "only here"),
        ),
        (Rejected(Error(DEAD_LETTER)), Decision(Outcome.DEAD_LETTER)),
        (
            Rejected(Error(Symbol("app:poison"), "cannot parse")),
            Decision(Outcome.DEAD_LETTER, "app:poison", "cannot parse"),
        ),
    ],
)
def test_a_state_is_a_decision(state: object, decision: Decision) -> None:
    assert read(state) == decision


@pytest.mark.parametrize("state", [None, Received(0, 0)])
def test_a_state_that_is_no_outcome_decides_nothing(state: object) -> None:
    assert read(state) is None


def test_a_transactional_state_is_not_offered() -> None:
    with pytest.raises(BusError) as caught:
        read(Described(ULong(0x34), [b"txn", Accepted()]))
    assert caught.value.fault is Fault.NOT_IMPLEMENTED


@pytest.mark.parametrize("info", [{REASON: "x" * 4097}, {DESCRIPTION: "x" * 4097}])
def test_reasons_have_a_limit(info: dict[Any, Any]) -> None:
    with pytest.raises(BusError) as caught:
        read(Rejected(Error(DEAD_LETTER, None, info)))
    assert caught.value.fault is Fault.ARGUMENT


def test_a_reason_with_a_nul_can_still_be_stored() -> None:
    decision = read(Rejected(Error(DEAD_LETTER, None, {REASON: "a\0b"})))
    assert decision == Decision(Outcome.DEAD_LETTER, "a\N{REPLACEMENT CHARACTER}b")


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.COMPLETE, Accepted),
        (Outcome.ABANDON, Modified),
        (Outcome.DEFER, Modified),
        (Outcome.DEAD_LETTER, Rejected),
        (Outcome.RELEASE, Released),
    ],
)
def test_a_decision_is_confirmed_by_the_same_kind_of_state(outcome: Outcome, kind: type) -> None:
    state = echo(outcome)
    assert type(state) is kind
    decision = read(state)
    assert decision is not None
    assert decision.outcome is outcome


def test_a_confirmed_dead_lettering_carries_no_error() -> None:
    assert echo(Outcome.DEAD_LETTER) == Rejected(None)
