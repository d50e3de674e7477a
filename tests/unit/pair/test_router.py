"""The router as a table: every answer has a next step, every send ends, and nothing goes where it may not."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from twinbus.pair.route.health import Route
from twinbus.pair.route.router import NEXT, Answer, Situation, Step, next_step

ANSWERS = {
    Step.BEGIN: [Answer.READY],
    Step.LOOK: [Answer.NONE_THERE, Answer.SOME_THERE, Answer.FAILED],
    Step.PRIMARY: [Answer.SENT, Answer.FAILED, Answer.BUSY, Answer.REFUSED],
    Step.WAIT: [Answer.READY],
    Step.BACKLOG: [Answer.SENT, Answer.FAILED, Answer.REFUSED],
    Step.OUTBOX: [Answer.SENT, Answer.FAILED, Answer.REFUSED],
}
SITUATIONS = [Situation(route, *flags) for route in Route for flags in product([False, True], repeat=4)]
PAGE = Path(__file__).parents[3] / "docs" / "pairing.md"
SOURCE = Path(__file__).parents[3] / "src" / "twinbus"
ENDS = (Step.DONE, Step.GIVE_UP)


@pytest.mark.parametrize("step", ANSWERS)
def test_every_answer_has_a_next_step_in_every_situation(step: Step) -> None:
    for answer, situation in product(ANSWERS[step], SITUATIONS):
        assert next_step(step, answer, situation) is not Step.BEGIN


def test_a_send_ends_whatever_is_answered() -> None:
    """Health may change between two steps. No step is taken twice, but for waiting, which ends with the time."""

    def walk(step: Step, answer: Answer, seen: tuple[Step, ...]) -> None:
        for situation in SITUATIONS:
            following = next_step(step, answer, situation)
            if following is Step.WAIT:
                assert situation.has_time
                continue
            assert following not in seen
            if following not in ENDS:
                for each in ANSWERS[following]:
                    walk_once(following, each, (*seen, following))

    done: set[tuple[Step, Answer, tuple[Step, ...]]] = set()

    def walk_once(step: Step, answer: Answer, seen: tuple[Step, ...]) -> None:
        if (step, answer, seen) not in done:
            done.add((step, answer, seen))
            walk(step, answer, seen)

    walk_once(Step.BEGIN, Answer.READY, (Step.BEGIN,))


def test_done_means_that_somebody_took_it() -> None:
    for step, answers in ANSWERS.items():
        for answer, situation in product(answers, SITUATIONS):
            if next_step(step, answer, situation) is Step.DONE:
                assert answer is Answer.SENT


def test_nothing_is_put_into_an_outbox_that_is_not_there() -> None:
    for step, answers in ANSWERS.items():
        for answer, situation in product(answers, SITUATIONS):
            if next_step(step, answer, situation) is Step.OUTBOX:
                assert situation.has_outbox


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (Situation(Route.PRIMARY), Step.PRIMARY),
        (Situation(Route.BACKLOG), Step.BACKLOG),
        (Situation(Route.NOWHERE), Step.GIVE_UP),
        (Situation(Route.NOWHERE, has_outbox=True), Step.GIVE_UP),
        (Situation(Route.PRIMARY, must_look=True), Step.LOOK),
        (Situation(Route.BACKLOG, must_look=True), Step.BACKLOG),
        (Situation(Route.PRIMARY, has_outbox=True), Step.PRIMARY),
        (Situation(Route.PRIMARY, has_outbox=True, outbox_first=True), Step.OUTBOX),
    ],
)
def test_where_a_send_begins(situation: Situation, expected: Step) -> None:
    assert next_step(Step.BEGIN, Answer.READY, situation) is expected


def test_a_busy_primary_is_waited_for_and_never_failed_over() -> None:
    for situation in SITUATIONS:
        expected = Step.WAIT if situation.has_time else Step.GIVE_UP
        assert next_step(Step.PRIMARY, Answer.BUSY, situation) is expected
    assert next_step(Step.WAIT, Answer.READY, Situation(Route.PRIMARY)) is Step.PRIMARY
    assert next_step(Step.WAIT, Answer.READY, Situation(Route.BACKLOG)) is Step.BACKLOG


def test_a_failure_that_does_not_count_is_raised_wherever_else_it_could_go() -> None:
    for situation in SITUATIONS:
        assert next_step(Step.PRIMARY, Answer.REFUSED, situation) is Step.GIVE_UP


def test_the_table_names_steps_that_exist() -> None:
    assert {step for step, _ in NEXT} == set(ANSWERS)


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text()
    for (step, answer), following in NEXT.items():
        assert f"| {step.value} | {answer.value} | {', else '.join(each.value for each in following)} |" in page


def test_one_module_asks_for_the_health_of_an_entity() -> None:
    """The others ask the carrier, so that no second place can decide where a send goes."""
    asking = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"board\.(route|record|sent)\(|Event\.FAILED|Route\.(PRIMARY|BACKLOG|NOWHERE)", path.read_text())
    }
    assert asking - {"pair/route/health.py", "pair/route/health_board.py", "pair/route/router.py"} == {
        "pair/route/carrier.py",
        "pair/background.py",  # Pings, and time that passes.
    }
