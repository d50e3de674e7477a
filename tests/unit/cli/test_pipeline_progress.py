"""What a syphon on Spark says about itself."""

from __future__ import annotations

from twinbus.cli.pipeline_progress import last_words, span, words
from twinbus.pipeline.syphoning.progress import Progress


def test_a_line_has_moved_left_rate_and_time_to_go() -> None:
    found = Progress(moved=12_300, dead=0, left=87_700, rate=4_100.4, eta_s=21.4)
    assert words(found) == "moved 12,300, left 87,700, 4,100/s, 21 s to go"


def test_a_line_has_the_dead_and_the_problem_when_there_are_some() -> None:
    found = Progress(moved=1, dead=2, left=3, rate=0, eta_s=None, problem="the primary is gone: \x1b[2J")
    assert words(found) == "moved 1, dead 2, left 3; the primary is gone: \\x1b[2J"


def test_the_last_line_says_moved_dead_and_left() -> None:
    assert last_words(Progress(100_000, 2, 0, 1.0, None)) == "moved 100,000, dead 2, left 0"
    assert last_words(Progress(0, 0, None, 0.0, None)) == "moved 0, dead 0, left unknown"


def test_a_count_that_was_lost_with_its_task_is_not_hidden() -> None:
    found = Progress(10, 0, 0, 1.0, None, doubled=3, lost_tasks=1)
    assert (
        last_words(found)
        == "moved 10 or more (1 task lost before telling), dead 0, left 0, sent twice under the same id 3"
    )


def test_times_are_said_as_people_say_them() -> None:
    assert [span(seconds) for seconds in (0.4, 59.6, 151, 7_260)] == ["0 s", "1 min 00 s", "2 min 31 s", "2 h 01 min"]
