"""Looking at entities without taking anything: which numbers there are, cut into ranges, and the messages of a range.

Knows no Spark. A message that is locked, deferred or scheduled is seen like any other; one that is gone is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from twinbus.client import ClientError
from twinbus.client.management import Management
from twinbus.pipeline.namespace import FRAGMENT_BITS, Namespace, Seen, find, first_number, in_words, last_numbers, look
from twinbus.pipeline.options import SourceOptions, Subscribed, Target
from twinbus.pipeline.reading.loop import Loop

T = TypeVar("T")


class Span(NamedTuple):
    """Numbers of one entity, the last one included."""

    entity: str
    first: int
    last: int


# Planning


def plan(options: SourceOptions) -> list[Span]:
    """What there is now, cut into at least so many ranges as were asked for, as far as there are numbers enough."""
    loop = Loop("twinbus-browsing")
    try:
        return loop.run(_plan(options))
    except ClientError as error:
        raise in_words(error) from error
    finally:
        loop.stop()


async def _plan(options: SourceOptions) -> list[Span]:
    spans: list[Span] = []
    first = options.starting_sequence_number or 0
    last = options.ending_sequence_number
    async with Namespace(options.target) as namespace:
        for entity in await namespace.entities(options.subscribed):
            node = await namespace.management(options.subscribed.address(entity))
            for fragment, highest in (await last_numbers(node)).items():
                begin = max(first, fragment << FRAGMENT_BITS)
                end = highest if last is None else min(last, highest)
                lowest = await first_number(node, begin) if begin <= end else None
                if lowest is not None and lowest <= end:
                    spans.append(Span(entity, lowest, end))
    return cut(spans, options.min_partitions or 1)


def cut(spans: Sequence[Span], parts: int) -> list[Span]:
    """The same numbers in at least so many spans of like size, if there are numbers enough."""
    total = sum(span.last - span.first + 1 for span in spans)
    if not total or len(spans) >= parts:
        return list(spans)
    size = max(-(-total // parts), 1)
    return [
        Span(span.entity, begin, min(begin + size - 1, span.last))
        for span in spans
        for begin in range(span.first, span.last + 1, size)
    ]


# Reading


class Browser:
    """One connection on which a task looks at messages."""

    def __init__(self, target: Target, subscribed: Subscribed) -> None:
        self._loop = Loop("twinbus-browsing")
        self._namespace = Namespace(target)
        self._subscribed = subscribed

    def __enter__(self) -> Browser:
        try:
            self._loop.run(self._namespace.__aenter__())
        except BaseException as problem:
            self._loop.stop()
            if isinstance(problem, ClientError):
                raise in_words(problem) from problem
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._namespace.__aexit__())
        finally:
            self._loop.stop()

    def span(self, span: Span, session_id: str | None = None) -> Iterator[Seen]:
        """The messages of a range, in the order of their numbers."""
        begin = span.first
        while begin <= span.last:
            page = self._run(self._look(span, begin, session_id))
            if not page:
                return
            yield from (seen for seen in page if seen.number <= span.last)
            begin = page[-1].number + 1

    async def _look(self, span: Span, begin: int, session_id: str | None) -> list[Seen]:
        return await look(await self._node(span.entity), begin, span.last - begin + 1, session_id)

    def numbers(self, entity: str, wanted: Sequence[int]) -> Iterator[Seen]:
        """Messages by their numbers, which are in order; those that are gone are left out."""
        pages = find(self._run(self._node(entity)), wanted)
        while (page := self._run(_next(pages))) is not None:
            yield from page

    async def _node(self, entity: str) -> Management:
        return await self._namespace.management(self._subscribed.address(entity))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except ClientError as error:
            raise in_words(error) from error


async def _next(pages: AsyncIterator[list[Seen]]) -> list[Seen] | None:
    return await anext(pages, None)
