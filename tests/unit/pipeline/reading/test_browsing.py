"""Ranges of numbers for a look."""

from __future__ import annotations

import pytest

from twinbus.pipeline.namespace import FRAGMENT_BITS, find, fragment, last_numbers
from twinbus.pipeline.reading.browsing import Span, cut


@pytest.mark.parametrize(
    ("spans", "parts", "expected"),
    [
        ([], 4, []),
        ([Span("q", 1, 10)], 1, [Span("q", 1, 10)]),
        ([Span("q", 1, 10)], 3, [Span("q", 1, 4), Span("q", 5, 8), Span("q", 9, 10)]),
        ([Span("q", 5, 6)], 8, [Span("q", 5, 5), Span("q", 6, 6)]),
        ([Span("a", 1, 2), Span("b", 1, 2)], 2, [Span("a", 1, 2), Span("b", 1, 2)]),
    ],
)
def test_spans_are_cut_into_at_least_so_many(spans: list[Span], parts: int, expected: list[Span]) -> None:
    assert cut(spans, parts) == expected


class Node:
    """A management node that shows the numbers it holds; a message is its number, as the broker writes it."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = sorted(numbers)

    async def peek(self, begin: int, count: int, session_id: str | None = None) -> list[bytes]:
        found = [number for number in self.numbers if number >= begin][:count]
        return [
            b"\xa3\x15x-opt-sequence-number\x81" + number.to_bytes(8, "big")
            + b"\xa3\x12x-opt-locked-until\x83" + bytes(8)
            for number in found
        ]  # fmt: skip


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3], [5, 900, 1_000_000], list(range(1, 300))])
async def test_the_last_number_of_a_queue_is_found(numbers: list[int]) -> None:
    assert await last_numbers(Node(numbers)) == ({0: max(numbers)} if numbers else {})  # type: ignore[arg-type]


async def test_the_last_number_of_each_fragment_is_found() -> None:
    high = 15 << FRAGMENT_BITS
    numbers = [3, 9, (2 << FRAGMENT_BITS) + 1, high + 7, high + 400]
    found = await last_numbers(Node(numbers))  # type: ignore[arg-type]
    assert found == {0: 9, 2: (2 << FRAGMENT_BITS) + 1, 15: high + 400}
    assert fragment(high + 7) == 15


@pytest.mark.parametrize("wanted", [[], [1], [1, 3, 900], list(range(1, 700, 2)), [5_000]])
async def test_messages_are_found_by_their_numbers_and_those_that_are_gone_are_not(wanted: list[int]) -> None:
    there = [number for number in range(1, 1000) if number % 3]
    pages = [page async for page in find(Node(there), wanted)]  # type: ignore[arg-type]
    assert [seen.number for page in pages for seen in page] == [number for number in wanted if number in there]
