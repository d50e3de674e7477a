"""What findings say of themselves: whether it holds, and the line that must balance."""

from __future__ import annotations

import json
from dataclasses import replace

from twinbus.pipeline.proof.balancing import balances
from twinbus.pipeline.proof.custody import CREATED, ENDED, RENUMBERED
from twinbus.pipeline.proof.findings import Balance, Findings, Found

CONTOSO = Balance("contoso", {"accepted": 10, "fanned_out": 2}, {"completed": 9}, {"active": 2, "dead": 1})
FABRIKAM = Balance("fabrikam", {"accepted": 4}, {"completed": 4}, {}, moved=4)
CALM = Findings(balances=(CONTOSO, FABRIKAM), acknowledged=10)


def table(name: str, *ids: str) -> dict[str, Found]:
    return {name: Found(name, len(ids), ("message_id",), tuple((one,) for one in ids))}


def code(ways: tuple[object, ...], name: str) -> int:
    return next(place for place, way in enumerate(ways, 1) if way.name == name)  # type: ignore[attr-defined]


def row(side: str, way: str = "", creations: int = 0, ends: int = 0, **more: int) -> dict[str, object]:
    blank = {"how_created": 0, "how_ended": 0, "in_backlog": 0, "ended_dead": 0}
    return {"namespace": "contoso", "side": side, "way": way, "creations": creations, "ends": ends, **blank, **more}


def test_it_holds_when_nothing_is_lost_and_the_line_balances() -> None:
    assert CALM.holds
    assert CALM.verdict() == "It holds: all 10 acknowledged messages are accounted for, and the line balances."


def test_it_does_not_hold_when_something_is_lost() -> None:
    found = replace(CALM, tables=table("lost", "a", "b"))
    assert not found.holds
    assert found.verdict() == "It does not hold: 2 lost."


def test_it_does_not_hold_when_a_sum_is_off() -> None:
    found = replace(CALM, balances=(replace(CONTOSO, resident={"active": 2}),))
    assert not found.holds
    assert found.verdict() == "It does not hold: the conservation line does not balance."
    assert found.balances[0].line().endswith("; off by +1")


def test_it_does_not_hold_when_two_wrongs_add_up_to_nothing() -> None:
    found = replace(CALM, tables=table("imbalances", "made twice", "ended twice"))
    assert not any(balance.difference for balance in found.balances)
    assert not found.holds


def test_what_cannot_be_accounted_for_is_not_proven_and_not_lost() -> None:
    found = replace(CALM, tables=table("unproven", "a"))
    assert found.holds
    assert not found.is_proven
    assert found.verdict() == "Not proven: 1 acknowledged messages cannot be accounted for."


def test_without_a_send_log_the_verdict_says_what_it_cannot_see() -> None:
    assert replace(CALM, acknowledged=None).verdict() == (
        "It balances. Without a send log, loss before the journal cannot be seen."
    )


def test_the_lines_tell_both_sides_with_their_parts() -> None:
    assert CONTOSO.line() == (
        "contoso: created 12 (accepted 10, fanned out 2) = ended 9 (completed 9) + resident 3 (active 2, dead 1)"
    )
    assert CALM.line() == (
        "conservation (created = ended + resident): contoso 12 = 9 + 3; fabrikam 4 = 4 + 0; brought home 4; balances"
    )
    assert CALM.pair_line() == (
        "pair: created 12 = ended 9 (of these suppressed by the ledger 0) + resident 3;"
        " 4 brought home, which cancel out"
    )


def test_the_document_is_plain_json() -> None:
    document = json.loads(json.dumps(replace(CALM, tables=table("lost", "a")).document()))
    assert document["tables"]["lost"] == {"count": 1, "rows": [{"message_id": "a"}]}
    assert document["namespaces"][0]["resident"] == {"active": 2, "dead": 1}


def test_a_copy_that_was_renumbered_is_created_and_ended_once() -> None:
    [found] = balances(
        [
            row("copies", creations=3, ends=3, how_created=code(CREATED, "scheduled"), how_ended=RENUMBERED),
            row(
                "copies",
                creations=3,
                ends=2,
                how_created=code(CREATED, "renumbered"),
                how_ended=code(ENDED, "completed"),
            ),
            row("seen", "active", 1),
        ]
    )
    assert (found.created, found.ended, found.resident) == ({"scheduled": 3}, {"completed": 2}, {"active": 1})
    assert found.difference == 0


def test_what_was_there_before_the_journal_counts_as_created_before() -> None:
    [found] = balances(
        [
            row("copies", ends=2, how_ended=code(ENDED, "completed")),
            row("carried", "ended", 2),
            row("carried", "resident", 1),
        ]
    )
    assert found.created == {"carried_over": 3}
    assert found.difference == 0


def test_what_is_there_and_was_never_created_is_off() -> None:
    [found] = balances([row("unborn", "resident", 2)])
    assert found.difference == -2


def test_what_left_a_backlog_queue_was_brought_home_unless_it_was_dead() -> None:
    completed = {"how_ended": code(ENDED, "completed"), "how_created": code(CREATED, "accepted")}
    [found] = balances(
        [
            row("copies", creations=5, ends=5, in_backlog=1, **completed),
            row("copies", creations=1, ends=1, in_backlog=1, ended_dead=1, **completed),
            row("copies", creations=7, ends=7, **completed),
        ]
    )
    assert (found.moved, found.difference) == (5, 0)
