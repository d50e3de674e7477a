"""One fragment of an entity as a store of its own: what leaves it names the fragment, what comes in no longer does.

A plain entity is one fragment, without any of this. Stores know nothing of fragments: to them each is an entity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from twinbus.entities.partitions import NUMBER_MASK, inner_token, mark_of, outer_number, outer_token
from twinbus.entities.ports import StorePort
from twinbus.model.errors import BusError
from twinbus.model.message import Delivered
from twinbus.store.commands import (
    Acquire,
    AcquireDeferred,
    CancelScheduled,
    Command,
    Complete,
    Inspect,
    Peek,
    Publish,
    Renew,
    Send,
    Settle,
)

C = TypeVar("C", bound=Command)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Where a part of an entity, or the whole of a plain one, lies."""

    index: int
    entity: int  # Its number in the store.
    store_index: int
    store: StorePort

    def number(self, sub_queue: int) -> int:
        """The number under which the store knows the main queue or one of its sub-queues."""
        return self.entity * 4 + sub_queue


def fragments_of(entity: int, places: Iterable[int], stores: Sequence[StorePort]) -> tuple[Fragment, ...]:
    """The fragments of an entity whose numbers begin with its own, on these stores."""
    return tuple(Fragment(index, entity + index, place, stores[place]) for index, place in enumerate(places))


class FragmentPort:
    """The store of one fragment, for those who speak of numbers and tokens as clients see them."""

    __slots__ = ("_index", "_mark", "_store")

    def __init__(self, fragment: Fragment) -> None:
        self._index = fragment.index
        self._mark = mark_of(fragment.index)
        self._store = fragment.store

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a commit of the store."""
        return self._store.pending_bytes

    @property
    def is_available(self) -> bool:
        """Whether the store takes commands."""
        return self._store.is_available

    def submit(self, command: Command) -> None:
        """Queue a command."""
        self._inward(command)
        if command.done is not None:
            command.done = partial(self._finished, command.done)
        self._store.submit(command)

    def call(self, command: C) -> Awaitable[C]:
        """Submit at once; wait when awaited."""
        self._inward(command)
        return self._answer(self._store.call(command))

    async def _answer(self, waiting: Awaitable[C]) -> C:
        command = await waiting
        self._outward(command)
        return command

    def _finished(self, done: Callable[[Any], None], command: Command) -> None:
        self._outward(command)
        done(command)

    def _inward(self, command: Command) -> None:
        translate = _INWARD.get(type(command))
        if translate is not None:
            translate(command)

    def _outward(self, command: Command) -> None:
        translate = _OUTWARD.get(type(command))
        if translate is not None:
            translate(command, self._index, self._mark)


def _tokens_in(command: Any) -> None:
    command.tokens = [inner_token(token) for token in command.tokens]


def _settlements_in(command: Settle) -> None:
    command.settlements = [each._replace(token=inner_token(each.token)) for each in command.settlements]


def _numbers_in(command: Any) -> None:
    command.sequence_numbers = [number & NUMBER_MASK for number in command.sequence_numbers]


def _start_in(command: Peek) -> None:
    command.from_sequence_number &= NUMBER_MASK


_INWARD: dict[type, Callable[[Any], None]] = {
    Complete: _tokens_in,
    Inspect: _tokens_in,
    Renew: _tokens_in,
    Settle: _settlements_in,
    AcquireDeferred: _numbers_in,
    CancelScheduled: _numbers_in,
    Peek: _start_in,
}


def outer(message: Delivered, index: int, mark: bytes) -> Delivered:
    """A message as clients see it."""
    token = message.token
    return message._replace(
        sequence_number=outer_number(index, message.sequence_number), token=outer_token(mark, token) if token else token
    )


def _messages_out(command: Any, index: int, mark: bytes) -> None:
    command.result = [None if each is None else outer(each, index, mark) for each in command.result]


def _numbers_out(command: Any, index: int, mark: bytes) -> None:
    command.result = [
        each if isinstance(each, BusError) else [outer_number(index, number) for number in each]
        for each in command.result
    ]


_OUTWARD: dict[type, Callable[[Any, int, bytes], None]] = {
    Acquire: _messages_out,
    AcquireDeferred: _messages_out,
    Inspect: _messages_out,
    Peek: _messages_out,
    Send: _numbers_out,
    Publish: _numbers_out,
}


async def call_all(calls: Iterable[tuple[StorePort, C]]) -> list[C | BusError]:
    """Have several stores work at the same time and wait for all; a command that failed is replaced by its error."""
    waiting = [store.call(command) for store, command in calls]
    answers: list[C | BusError] = []
    for each in waiting:
        try:
            answers.append(await each)
        except BusError as error:
            answers.append(error)
    return answers
