"""What the drills claim beside their verdicts: each claim holds where it should, and is found broken where it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from twinbus.drill.ending import Ending
from twinbus.drill.history import Known, SendLog, judge
from twinbus.drill.order import overtaken
from twinbus.drill.scenarios.backlog_full import CLEAR, Phase, errors_since, untrue
from twinbus.drill.scenarios.both_down import untrue as untrue_of_the_outbox
from twinbus.drill.scenarios.disaster import missing_or_unknown, unseen
from twinbus.drill.scenarios.flap import LONG_S, SHORT_ONES, SHORT_S, drawn, failovers, implausible
from twinbus.drill.scenarios.replacement import untrue as untrue_of_the_move
from twinbus.drill.scenarios.slow import untried
from twinbus.drill.scenarios.store import strayed
from twinbus.pair import State
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.route.health_board import Change, Scope


class TestDisaster:
    """Only the primary had m1; m2 was diverted; m3 was received."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        with SendLog(tmp_path / "sent.jsonl") as log:
            for number in (1, 2, 3):
                log.attempted(f"m{number}", "orders", number)
                log.acknowledged(f"m{number}", number, diverted=number == 2)
        return log.path

    def test_lost_is_what_only_the_primary_had(self, log: Path) -> None:
        verdict = judge(log, Counter(["m3"]), Known(kept=frozenset({"m2"}), condemned=frozenset({"m1"})))

        assert verdict.lost == ("m1",)
        assert Ending(verdict).holds

    def test_one_more_that_is_lost_breaks_it(self, log: Path) -> None:
        verdict = judge(log, Counter(["m3"]), Known(condemned=frozenset({"m1"})))

        assert verdict.lost == ("m1", "m2")
        assert not Ending(verdict).holds

    def test_one_that_should_be_lost_and_is_not_breaks_it(self, log: Path) -> None:
        verdict = judge(log, Counter(["m1", "m3"]), Known(kept=frozenset({"m2"}), condemned=frozenset({"m1"})))

        assert verdict.lost == ()
        assert not Ending(verdict).holds

    def test_what_is_missing_from_a_place_and_what_nobody_sent_are_named(self) -> None:
        assert missing_or_unknown("the backlog", ["m1"], {"m1"}, {"m1", "m2"}) == ()
        assert missing_or_unknown("the backlog", ["m1", "x"], {"m1", "m2"}, {"m1", "m2"}) == (
            "the backlog does not have what it should: m2",
            "the backlog has what nobody sent: x",
        )

    def test_what_was_worked_on_before_must_be_seen_by_the_ledger_again(self) -> None:
        assert unseen(frozenset({"m1"}), {"m1", "m2"}) == ()
        assert unseen(frozenset({"m1", "m3"}), {"m1"}) == ("worked on before, on the old disk, and not seen again: m3",)


class TestOrder:
    def test_who_comes_after_a_younger_one_was_overtaken(self) -> None:
        assert overtaken(["a-1", "a-3", "b-1", "a-2", "b-2"]) == {"a-2"}

    def test_sessions_have_an_order_of_their_own_and_others_have_none(self) -> None:
        assert overtaken(["a-2", "a-1", "b-2", "b-1"], {"a-2": "x", "a-1": "y"}) == set()
        assert overtaken(["a-2", "a-1"], {"a-2": "x", "a-1": "x"}) == {"a-1"}


class TestStore:
    DIVERTED = Diverted("carts", "primary/x-servicebus-transfer/0", ["carts-000001", "carts-000002"])

    def test_only_what_lies_on_the_store_may_divert(self) -> None:
        assert strayed(["carts"], ["orders", "events"], [self.DIVERTED]) == ()

    def test_one_on_another_store_that_diverts_breaks_it(self) -> None:
        both = [self.DIVERTED, self.DIVERTED._replace(path="orders")]

        assert strayed(["carts"], ["orders"], both) == ("'orders' lies on another store, and diverted 2 messages",)

    def test_nothing_diverted_or_nothing_on_another_store_proves_nothing(self) -> None:
        assert len(strayed(["carts"], ["orders"], [])) == 1
        assert len(strayed(["carts"], [], [self.DIVERTED])) == 1


class TestFlap:
    @pytest.mark.parametrize("seed", range(20))
    def test_a_seed_tells_the_absences_of_which_one_is_long_enough_to_fail_over(self, seed: int) -> None:
        flaps = drawn(seed, 9.0, 2.0)

        assert flaps == drawn(seed, 9.0, 2.0)
        assert max(away_s for away_s, _ in flaps) >= 2.0 + LONG_S
        assert min(away_s for away_s, _ in flaps) >= SHORT_S
        assert len(flaps) > SHORT_ONES[0]

    def test_seeds_differ(self) -> None:
        assert drawn(1, 9.0, 2.0) != drawn(2, 9.0, 2.0)

    def test_failovers_are_counted_and_nobody_has_more_than_absences(self) -> None:
        change = Change(Scope("orders"), State.SUSPECT, State.FAILED_OVER, "", 0.0)
        changes = [change, change._replace(after=State.HEALTHY), change, change._replace(scope=Scope("carts"))]

        found = failovers(changes)

        assert found == Counter(orders=2, carts=1)
        assert implausible(found, 2) == ()
        assert implausible(found, 1) == ("'orders' failed over 2 times in 1 absences",)
        assert implausible(Counter(), 2) == ("nobody failed over",)


def test_a_slow_primary_must_have_caused_diversions_and_second_copies() -> None:
    assert untried(diverted=3, suppressed=1) == ()
    assert untried(diverted=3, suppressed=0) == ("no message arrived twice",)
    assert len(untried(diverted=0, suppressed=0)) == 2


class TestBacklogFull:
    OPEN = Phase(10, {"q0", "q1", "q2"})
    ONE = Phase(10, {"q0", "q2"})
    NONE = Phase(0, set(), [f"{CLEAR} 1 of 1 messages for 'orders': its disk is full"])

    def test_the_claims_hold(self) -> None:
        assert untrue("q1", self.OPEN, self.ONE, self.NONE, self.OPEN) == ()

    @pytest.mark.parametrize(
        ("phase", "changed", "said"),
        [
            (0, Phase(), "before"),
            (1, OPEN, "took messages while it was full"),
            (1, Phase(), "while one queue was full"),
            (1, Phase(10, {"q0"}, ["no room"]), "told of one queue"),
            (2, replace(NONE, acknowledged=1), "1 messages were acknowledged while all"),
            (2, replace(NONE, errors=[]), "not told"),
            (2, replace(NONE, errors=["something"]), "told something else"),
            (3, Phase(), "when there was room again"),
        ],
    )
    def test_each_can_be_broken(self, phase: int, changed: Phase, said: str) -> None:
        phases = [self.OPEN, self.ONE, self.NONE, self.OPEN]
        phases[phase] = changed

        (broken,) = untrue("q1", *phases)

        assert said in broken

    def test_errors_are_read_from_the_send_log(self, tmp_path: Path) -> None:
        with SendLog(tmp_path / "sent.jsonl") as log:
            log.attempted("m1", "orders", 1.0)
            log.failed("m1", 1.5, "early")
            log.failed("m1", 2.5, "late")

        assert list(errors_since(log.path, 2.0)) == ["late"]


@pytest.mark.parametrize(
    ("meanwhile", "queued", "is_empty", "late", "said"),
    [
        (set(), {"m1"}, True, [], "nothing was acknowledged"),
        ({"m1", "m2"}, {"m1"}, True, [], "not in the outbox: m2"),
        ({"m1"}, {"m1"}, False, [], "did not become empty"),
        ({"m1"}, {"m1"}, True, ["m1"], "after younger ones"),
    ],
)
def test_each_claim_about_the_outbox_can_be_broken(
    meanwhile: set[str], queued: set[str], is_empty: bool, late: list[str], said: str
) -> None:
    assert untrue_of_the_outbox({"m1"}, {"m1", "m2"}, True, []) == ()
    (broken,) = untrue_of_the_outbox(meanwhile, queued, is_empty, late)
    assert said in broken


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ((set(), {"l"}, set(), set(), ""), "nothing had been diverted"),
        (({"b"}, set(), set(), set(), ""), "nothing came late"),
        (({"b"}, {"l"}, {"b"}, set(), ""), "left behind by the move: b"),
        (({"b"}, {"l"}, set(), {"l"}, ""), "in the old backlog at last: l"),
        (({"b"}, {"l"}, set(), set(), "refused"), "did not end well: refused"),
    ],
)
def test_each_claim_about_a_move_can_be_broken(
    changed: tuple[set[str], set[str], set[str], set[str], str], said: str
) -> None:
    assert untrue_of_the_move({"b"}, {"l"}, set(), set(), "") == ()
    (broken,) = untrue_of_the_move(*changed)
    assert said in broken
