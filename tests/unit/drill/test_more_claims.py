"""What the drills about syphons, replication, relays, tokens and days claim: found broken where it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from twinbus.drill.course import Course
from twinbus.drill.history import SendLog
from twinbus.drill.moving_home import Killed
from twinbus.drill.scenarios.active import Found as FoundActive
from twinbus.drill.scenarios.long_outage import Found as FoundLater
from twinbus.drill.scenarios.long_outage import lives
from twinbus.drill.scenarios.passive import Billed
from twinbus.drill.scenarios.passive import Found as FoundPassive
from twinbus.drill.scenarios.relay import Calls
from twinbus.drill.scenarios.token_service import Found as FoundWithoutTokens
from twinbus.drill.stage import REAL_S_MAX, Plan


@pytest.mark.parametrize(("moved", "left", "midst"), [(10, 5, True), (0, 15, False), (15, 0, False)])
def test_a_command_is_killed_in_the_midst_if_it_had_begun_and_was_not_done(moved: int, left: int, midst: bool) -> None:
    assert Killed(moved, left).in_the_midst is midst


def test_clocks_are_moved_when_nobody_would_wait() -> None:
    assert not Plan(outage_s=REAL_S_MAX).moves_clocks
    assert Plan(outage_s=3 * 86_400).moves_clocks


class TestActive:
    GOOD = FoundActive(failed=0, meanwhile=5, second=10, suppressed=11, healed=True)

    def test_all_second_copies_are_suppressed_and_nobody_notices(self) -> None:
        assert self.GOOD.broken() == ()

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"failed": 1}, "1 sends failed"),
            ({"meanwhile": 0}, "nothing was received while"),
            ({"second": 0}, "nothing was rehearsed"),
            ({"suppressed": 8}, "2 of 10 second copies"),
            ({"healed": False}, "the primary got no copy"),
        ],
    )
    def test_each_claim_can_break(self, wrong: dict[str, int], words: str) -> None:
        (told,) = replace(self.GOOD, **wrong).broken()  # type: ignore[arg-type]
        assert words in told


class TestPassive:
    GOOD = FoundPassive(Billed(30, 33, 31, 0), refused=2, too_early=0, stayed=[], shut_in=4, arrived=4)

    def test_one_send_each_and_roles_that_change_on_success(self) -> None:
        assert self.GOOD.broken() == ()

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"billed": Billed(30, 33, 40, 0)}, "billed as 40"),
            ({"billed": Billed(30, 33, 31, 1)}, "the backup billed 1"),
            ({"refused": 0}, "no send failed while neither"),
            ({"too_early": 2}, "2 roles changed"),
            ({"stayed": ["orders"]}, "not at the secondary: orders"),
            ({"shut_in": 0, "arrived": 0}, "nothing was rehearsed"),
            ({"arrived": 3}, "1 that were shut in did not arrive"),
        ],
    )
    def test_each_claim_can_break(self, wrong: dict[str, object], words: str) -> None:
        (told,) = replace(self.GOOD, **wrong).broken()  # type: ignore[arg-type]
        assert words in told


class TestRelay:
    def test_a_put_may_be_repeated_and_a_post_may_not(self, tmp_path: Path) -> None:
        with SendLog(tmp_path / "sent.jsonl") as log:
            calls = Calls(Plan(), Course("relay"), log)
            calls.methods = {"put-1": "PUT", "post-1": "POST", "get-1": "GET"}
            for name in calls.methods:
                log.attempted(name, name, 1)
                log.acknowledged(name, 2, False)

        good = calls.verdict(Counter({"put-1": 2, "post-1": 1, "get-1": 1}))
        doubled = calls.verdict(Counter({"put-1": 1, "post-1": 2, "get-1": 1}))
        lost = calls.verdict(Counter({"put-1": 1, "post-1": 1}))

        assert good.holds
        assert doubled.duplicated == ("post-1",)
        assert lost.lost == ("get-1",)


class TestTokenService:
    GOOD = FoundWithoutTokens(failed=0, refused=3, sent=(10, 20, 20), resumed=True, changes=0, diverted=0)

    def test_who_signs_goes_on_and_who_depends_waits(self) -> None:
        assert self.GOOD.broken() == ()

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"failed": 1}, "1 sends of those who sign"),
            ({"refused": 0}, "never refused"),
            ({"sent": (10, 10, 10)}, "tokens that were still good"),
            ({"sent": (10, 20, 21)}, "went on without tokens"),
            ({"resumed": False}, "do not send again"),
            ({"changes": 2}, "changed 2 times"),
            ({"diverted": 1}, "1 messages were diverted"),
        ],
    )
    def test_each_claim_can_break(self, wrong: dict[str, object], words: str) -> None:
        (told,) = replace(self.GOOD, **wrong).broken()  # type: ignore[arg-type]
        assert words in told


@pytest.mark.parametrize(
    ("days", "short_h", "long_h"), [(3, 7.2, 720.0), (10, 24.0, 1193.0), (40, 24.0, None), (3000, 24.0, None)]
)
def test_times_to_live_are_shorter_and_longer_than_the_outage(days: int, short_h: float, long_h: float | None) -> None:
    short, long, ever = lives(timedelta(days=days))

    assert short / timedelta(hours=1) == short_h
    assert ever is None
    assert (None if long is None else long // timedelta(hours=1)) == long_h


class TestLongOutage:
    """u-0 and u-1 waited unread, d-0 and d-1 were diverted, a-1 was worked on before; those with 0 live shortly."""

    GOOD = FoundLater(
        unread=frozenset({"u-0", "u-1"}),
        short=frozenset({"u-0", "d-0"}),
        dead=frozenset({"u-0"}),
        diverted=frozenset({"d-0", "d-1", "a-1"}),
        received=frozenset({"u-1", "d-0", "d-1", "a-1"}),
        twice=frozenset({"a-1"}),
        suppressed=frozenset({"a-1"}),
        failed=0,
        signed=5,
    )

    def test_only_what_waited_too_long_has_expired(self) -> None:
        assert self.GOOD.expired == {"u-0"}
        assert self.GOOD.broken() == ()

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"dead": frozenset()}, "should have expired and did not: u-0"),
            ({"dead": frozenset({"u-0", "d-1"})}, "expired and should not: d-1"),
            ({"unread": frozenset({"u-1"})}, "nothing expired in the primary"),
            ({"received": frozenset({"u-1", "d-1", "a-1"})}, "diverted and not received: d-0"),
            ({"failed": 2}, "2 sends failed"),
            ({"twice": frozenset()}, "nothing was sent again"),
            ({"suppressed": frozenset()}, "not suppressed after the days: a-1"),
            ({"signed": 0}, "no token was renewed"),
        ],
    )
    def test_each_claim_can_break(self, wrong: dict[str, object], words: str) -> None:
        (told,) = replace(self.GOOD, **wrong).broken()  # type: ignore[arg-type]
        assert words in told
