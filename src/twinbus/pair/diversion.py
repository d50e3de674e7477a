"""Diverted sends: messages rewritten for a backlog queue, and sent to one that takes them, within one call.

When to divert is `sending`'s decision; bringing the messages home is the syphon's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twinbus.client import messages
from twinbus.client.diverting import divert
from twinbus.client.errors import ClientError, is_local
from twinbus.pair import tracing
from twinbus.pair.backlog import Rotation
from twinbus.pair.errors import BacklogError
from twinbus.pair.failures import Failure, kind_of
from twinbus.pair.half import Half


class Diverted(NamedTuple):
    """Messages that a backlog queue has taken, for whoever listens."""

    path: str  # Where they belong.
    queue: str
    message_ids: list[str]


class Diversion:
    """Sends to the backlog queues of the secondary."""

    def __init__(
        self,
        secondary: Half,
        rotation: Rotation,
        timeout_s: float,
        new_id: Callable[[], str],
        told: Callable[[Diverted], None] | None = None,
    ) -> None:
        self._secondary = secondary
        self._rotation = rotation
        self._timeout_s = timeout_s
        self._new_id = new_id
        self._told = told
        self.diverted = 0  # Messages, for the status.

    def pick(self) -> str | None:
        """A backlog queue for a new sender, at random; it stays with it while it works."""
        return self._rotation.pick()

    async def send(self, payloads: Sequence[bytes], path: str, preferred: str | None, timeout_s: float | None) -> str:
        """Have every message in a backlog queue, and tell which took the last; raises a BacklogError if none would.

        A message keeps its id over all attempts, so that one that arrived twice can be recognised.
        """
        left = [divert(payload, path, self._new_id) for payload in payloads]
        tried: list[str] = []
        problem: ClientError | None = None
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                while (queue := self._rotation.pick(preferred, tried)) is not None:
                    tried.append(queue)
                    failed = await self._try(queue, left, path)
                    self._tell(path, queue, [each for at, each in enumerate(left) if at not in failed])
                    if not failed:
                        self._rotation.worked(queue)
                        return queue
                    problem = next(iter(failed.values()))
                    left = [left[position] for position in failed]
                    if kind_of(problem) is Failure.PERMANENT and not _is_about_the_queue(problem):
                        raise BacklogError(f"The backlog refuses a message for '{path}': {problem.text}") from problem
                    self._rotation.failed(queue)
                    if is_local(problem):
                        break  # The whole secondary is gone: another queue of it will not do better.
        except TimeoutError:
            problem = problem or ClientError("twinbus:timed-out", "no answer in time")
        said = problem.text if problem is not None else "there is none"
        raise BacklogError(
            f"No backlog queue takes {len(left)} of {len(payloads)} messages for '{path}': {said}"
        ) from problem

    def _tell(self, path: str, queue: str, taken: list[bytes]) -> None:
        self.diverted += len(taken)
        if taken and self._told is not None:
            self._told(Diverted(path, queue, [messages.read(payload).message_id or "" for payload in taken]))

    async def _try(self, queue: str, payloads: Sequence[bytes], path: str) -> dict[int, ClientError]:
        at, count = self._secondary.address, len(payloads)
        with tracing.span("send", queue, kind="CLIENT", at=at, count=count, payloads=payloads) as span:
            span.say(diverted=True, destination=path)
            try:
                sender = await self._secondary.sender(queue)
                await sender.send(payloads)
            except ClientError as error:
                span.fail(error)
                return error.failed or dict.fromkeys(range(len(payloads)), error)
        return {}


def _is_about_the_queue(error: ClientError) -> bool:
    """Whether another queue may take what this one did not."""
    return error.condition in ("amqp:not-found", "com.microsoft:entity-disabled", "amqp:resource-deleted")
