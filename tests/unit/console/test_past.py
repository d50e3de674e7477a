"""A namespace that went back in time is noticed by whoever watched it, over restarts too."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.console.past import NAME, RESTORED_STEP, Past, Seen, judge

SEEN = Seen("a", 100)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Seen("a", 99), "gone back in time"),
        (Seen("b", 100), "another namespace"),
        (Seen("a", 100 + RESTORED_STEP), "restored from a backup"),
    ],
)
def test_what_cannot_be_the_same_namespace_that_went_on_is_said(now: Seen, words: str) -> None:
    assert words in (judge(SEEN, now) or "")


def test_one_that_went_on_is_no_news() -> None:
    assert judge(None, SEEN) is None
    assert judge(SEEN, SEEN) is None
    assert judge(SEEN, Seen("a", 5_000)) is None


def test_it_is_noticed_after_a_restart_of_the_watcher(tmp_path: Path) -> None:
    Past(tmp_path).look("primary", {"id": "a", "generation": 100})
    again = Past(tmp_path)
    again.look("primary", {"id": "a", "generation": 40})
    assert list(again.noticed) == ["primary"]
    assert "gone back in time" in again.noticed["primary"]


def test_a_namespace_that_says_nothing_is_left_alone(tmp_path: Path) -> None:
    past = Past(tmp_path)
    past.look("primary", {"namespace": "contoso"})
    assert (past.noticed, (tmp_path / NAME).exists()) == ({}, False)


def test_a_file_that_cannot_be_read_costs_the_memory_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("[1, 2")
    past = Past(tmp_path)
    past.look("primary", {"id": "a", "generation": 1})
    assert past.noticed == {}
