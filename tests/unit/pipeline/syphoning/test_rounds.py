"""How queues and receivers become shares of tasks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.syphoning.rounds import RECEIVERS_PER_TASK, Share, plan

QUEUES = {"q0": 1000, "q1": 1000, "q2": 1000, "q3": 1000}


def receivers_of(shares: list[Share]) -> Counter[str]:
    return Counter(queue for share in shares for queue in share.receivers)


def test_an_empty_backlog_needs_nobody() -> None:
    assert plan({"q0": 0}, {"o0": 0}, tasks=2, batch=100) == []


def test_even_queues_are_spread_evenly_over_tasks() -> None:
    shares = plan(QUEUES, {}, tasks=2, receivers=4, batch=100)
    assert [len(share.receivers) for share in shares] == [2, 2]
    assert receivers_of(shares) == dict.fromkeys(QUEUES, 1)


def test_a_deep_queue_alone_gets_receivers_in_all_tasks() -> None:
    shares = plan({"q0": 100_000, "q1": 0}, {}, tasks=3, batch=100)
    assert [share.receivers for share in shares] == [("q0",) * RECEIVERS_PER_TASK] * 3


def test_a_deep_queue_among_shallow_ones_gets_the_receivers_that_are_left() -> None:
    shares = plan({"deep": 50_000, "a": 10, "b": 10}, {}, tasks=2, receivers=6, batch=100)
    assert receivers_of(shares) == {"deep": 4, "a": 1, "b": 1}


def test_no_receiver_has_less_than_a_lot_to_move() -> None:
    assert receivers_of(plan({"q0": 250}, {}, tasks=2, receivers=8, batch=100)) == {"q0": 2}
    assert receivers_of(plan({"q0": 1}, {}, tasks=2, receivers=8, batch=100)) == {"q0": 1}


def test_with_fewer_receivers_than_queues_the_deepest_come_first() -> None:
    assert receivers_of(plan({"q0": 1, "q1": 9, "q2": 5}, {}, tasks=2, receivers=2, batch=100)) == {"q1": 1, "q2": 1}


def test_an_ordered_queue_belongs_to_one_task_only() -> None:
    shares = plan({"q0": 10_000}, {"o0": 50_000, "o1": 10, "o2": 0}, tasks=4, batch=100)
    assert Counter(queue for share in shares for queue in share.ordered) == {"o0": 1, "o1": 1}


def test_the_rate_is_shared_by_all_tasks() -> None:
    shares = plan(QUEUES, {}, tasks=2, batch=100, rate=50)
    assert [share.rate for share in shares] == [25, 25]


def test_a_low_rate_gets_few_tasks_so_that_each_moves_at_least_a_message_a_second() -> None:
    shares = plan(QUEUES, {}, tasks=8, batch=100, rate=3)
    assert [share.rate for share in shares] == [1, 1, 1]
    assert [share.rate for share in plan(QUEUES, {}, tasks=8, batch=100, rate=1)] == [1]


def test_a_low_rate_is_not_spread_over_many_ordered_queues() -> None:
    (share,) = plan({}, {f"o{index}": 5 for index in range(4)}, tasks=1, batch=100, rate=2)
    assert len(share.ordered) == 2


COUNTS = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 100_000), max_size=12)


@given(COUNTS, COUNTS, st.integers(1, 20), st.integers(1, 60), st.integers(1, 1000), st.none() | st.integers(1, 5000))
def test_every_plan_is_one_that_can_be_carried_out(
    waiting: dict[str, int],
    ordered: dict[str, int],
    tasks: int,
    receivers: int,
    batch: int,
    rate: int | None,
) -> None:
    shares = plan(waiting, ordered, tasks=tasks, receivers=receivers, batch=batch, rate=rate)

    found = receivers_of(shares)
    wanted = {queue for queue, count in waiting.items() if count}
    assert len(shares) <= tasks
    assert all(share.receivers or share.ordered for share in shares)
    assert set(found) <= wanted
    assert len(found) == min(len(wanted), receivers)
    assert found.total() <= receivers
    assert all(count == 1 or waiting[queue] >= count * batch for queue, count in found.items())
    if rate is None:
        assert sorted(queue for share in shares for queue in share.ordered) == sorted(
            q for q, c in ordered.items() if c
        )
    else:
        assert not shares or abs(sum(share.rate or 0 for share in shares) - rate) < 1e-6
        assert all((share.rate or 0) >= 1 for share in shares)


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=40), st.integers(1, 8))
def test_no_share_is_heavier_than_the_lightest_by_more_than_one_receiver(counts: list[int], tasks: int) -> None:
    waiting = {f"q{index}": count for index, count in enumerate(counts)}
    shares = plan(waiting, {}, tasks=tasks, receivers=len(counts), batch=100)
    loads = [sum(waiting[queue] for queue in share.receivers) for share in shares]
    assert max(loads) - min(loads) <= max(counts)
