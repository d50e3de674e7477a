"""The mover: brings messages from a source to where they belong, and has the source forget them when they have arrived.

Receive, restore, send, wait for the acknowledgement, complete. A mover that is stopped between two of these steps, in
whatever way, leaves a message in both places and never in none, under one id; the next one goes on with it. Which
messages go together, and when what had to wait is tried again, is decided by those who use it: the syphon, an outbox,
a redrive.

| a message that | ends as |
|---|---|
| cannot be restored | set aside |
| belongs to a destination that is passed over | waiting |
| was acknowledged, and then completed | done |
| was acknowledged, and could not be completed | doubled: it will be sent again under the same id |
| is refused for good | set aside |
| is not taken at present | waiting |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from twinbus.client.diverting import RestoreError
from twinbus.client.errors import ClientError, is_local, is_refusal
from twinbus.model.failpoints import failpoint

T = TypeVar("T")  # What a source knows a message by.
Held = TypeVar("Held", contravariant=True)

NOT_RETRYABLE = "NotRetryable"
DESCRIPTION_MAX = 4096


class Ready(NamedTuple):
    """A message as it is sent, and where to."""

    path: str
    payload: bytes


class Source(Protocol[Held]):
    """Where messages come from. It holds what it handed out, and hands it out again when a mover is gone.

    How long it may take is its own part.
    """

    def restore(self, held: Held) -> Ready:
        """The message as it is to be sent; a RestoreError if it cannot be."""

    async def complete(self, held: Sequence[Held]) -> None:
        """Forget messages; a ClientError for those that it did not forget."""

    async def set_aside(self, held: Held, reason: str, description: str) -> None:
        """Put a message where it does not stand in the way, and where people find it."""


class Destination(Protocol):
    """Where messages go; `pair.namespace.port.RemoteNamespace` is one."""

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Have an entity take messages; a ClientError says which it did not take (`failed`)."""


@dataclass(slots=True)
class Moved(Generic[T]):
    """What became of one lot."""

    received: int = 0
    moved: Counter[str] = field(default_factory=Counter)  # Acknowledged, by destination.
    done: list[T] = field(default_factory=list)
    doubled: list[T] = field(default_factory=list)
    set_aside: list[tuple[T, str]] = field(default_factory=list)  # With what people read about it.
    failed: list[tuple[T, ClientError]] = field(default_factory=list)  # Everything that was not acknowledged.
    waiting: dict[str, list[T]] = field(default_factory=dict)  # By destination; the source still holds it.
    blocked: dict[str, ClientError] = field(default_factory=dict)  # Destinations that take nothing at present.
    problem: ClientError | None = None  # Why something that arrived could not be completed.
    is_gone: bool = False  # Nobody answers at the destination.


async def move(
    source: Source[T], destination: Destination, lot: Sequence[T], passed_over: Collection[str] = ()
) -> Moved[T]:
    """Move one lot, to all its destinations at the same time.

    What belongs to a destination that is passed over, or that takes nothing at present, is left to the caller. It is
    not to be cancelled (`endpoint.to_its_end`), or what has arrived would arrive again.
    """
    moved: Moved[T] = Moved(received=len(lot))
    by_path: dict[str, list[tuple[T, bytes]]] = {}
    for held in lot:
        try:
            path, payload = source.restore(held)
        except RestoreError as problem:
            await _set_aside(source, held, problem.reason, problem.text, moved)
            continue
        if path in passed_over:
            moved.waiting.setdefault(path, []).append(held)
        else:
            by_path.setdefault(path, []).append((held, payload))
    failpoint("mover.before_send")
    await asyncio.gather(*(_send(source, destination, path, items, moved) for path, items in by_path.items()))
    return moved


async def _send(
    source: Source[T], destination: Destination, path: str, items: list[tuple[T, bytes]], moved: Moved[T]
) -> None:
    failed = await failures(destination.send(path, [payload for _, payload in items]), len(items))
    failpoint("mover.before_complete")
    await _complete(source, path, [held for at, (held, _) in enumerate(items) if at not in failed], moved)
    for at, problem in failed.items():
        held = items[at][0]
        moved.failed.append((held, problem))
        if is_refusal(problem):
            await _set_aside(source, held, NOT_RETRYABLE, f"'{path}' refuses the message: {problem}", moved)
        else:
            moved.waiting.setdefault(path, []).append(held)
            moved.blocked[path] = problem
            moved.is_gone |= is_local(problem)


async def _complete(source: Source[T], path: str, sent: list[T], moved: Moved[T]) -> None:
    if not sent:
        return
    moved.moved[path] += len(sent)
    undone = await failures(source.complete(sent), len(sent))
    failpoint("mover.after_complete")
    moved.problem = next(iter(undone.values()), moved.problem)
    for at, held in enumerate(sent):
        (moved.doubled if at in undone else moved.done).append(held)


async def _set_aside(source: Source[T], held: T, reason: str, description: str, moved: Moved[T]) -> None:
    failpoint("mover.before_set_aside")
    if not await failures(source.set_aside(held, reason, description[:DESCRIPTION_MAX]), 1):
        moved.set_aside.append((held, description))
    failpoint("mover.after_set_aside")


async def failures(work: Awaitable[None], count: int) -> dict[int, ClientError]:
    """Which of `count` messages failed, and why, by position."""
    try:
        await work
    except ClientError as error:
        return error.failed or dict.fromkeys(range(count), error)
    return {}
