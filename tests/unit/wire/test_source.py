"""What a source asks for: it is done, refused, or left out of the reply."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp.performatives import RELEASED, Rejected, Source
from twinbus.amqp.types import Described, Symbol, ULong
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome
from twinbus.wire.sessions import SESSION_FILTER, SESSION_FILTER_CODE, WantedSession
from twinbus.wire.source import Wanted, in_force, read


def source(**fields: Any) -> Source:
    return Source(address="q", **fields)


def test_a_plain_source_asks_for_nothing_and_is_echoed() -> None:
    assert read(source()) == Wanted()
    assert in_force(source()) is None


def test_both_modes_are_known() -> None:
    assert read(source(distribution_mode=Symbol("copy"))).copies
    assert not read(source(distribution_mode=Symbol("move"))).copies


def test_a_session_is_asked_for_by_name_or_by_code() -> None:
    assert read(source(filter={SESSION_FILTER: "s"})).session == WantedSession("s")
    described = Described(ULong(SESSION_FILTER_CODE), None)
    assert read(source(filter={Symbol("any"): described})).session == WantedSession(None)


def test_the_default_outcome_is_read() -> None:
    assert read(source(default_outcome=RELEASED)).default == (Outcome.RELEASE, None, None, None)
    rejected = read(source(default_outcome=Rejected())).default
    assert rejected is not None
    assert rejected.outcome is Outcome.DEAD_LETTER


@pytest.mark.parametrize(
    "fields",
    [
        {"dynamic": True},
        {"distribution_mode": Symbol("share")},
        {"distribution_mode": Symbol("copy"), "durable": 2},
        {"filter": {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}},
        {"filter": {SESSION_FILTER: "s", Symbol("other"): None}},
        {"default_outcome": Described(Symbol("made:up:list"), [])},
    ],
    ids=["dynamic", "unknown mode", "durable copies", "selector", "a second filter", "unknown outcome"],
)
def test_what_cannot_be_had_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BusError) as problem:
        read(source(**fields))
    assert problem.value.fault is Fault.NOT_IMPLEMENTED


def test_a_wish_that_is_not_met_is_not_in_the_reply() -> None:
    known, unknown = Symbol("amqp:accepted:list"), Symbol("made:up:list")
    asked = source(
        durable=2, expiry_policy=Symbol("never"), outcomes=[known, unknown], capabilities=[Symbol("topic")], timeout=9
    )
    reply = in_force(asked)
    assert reply is not None
    assert (reply.durable, reply.expiry_policy, reply.timeout) == (0, "link-detach", 0)
    assert (reply.outcomes, reply.capabilities) == ([known], None)
    assert reply.address == "q"


def test_the_reply_names_the_session_that_is_granted() -> None:
    reply = in_force(source(filter={SESSION_FILTER: None}), "s")
    assert reply is not None
    assert reply.filter == {SESSION_FILTER: "s"}
