"""Diverted sends: messages rewritten for a backlog queue, and sent to one that takes them, within one call.

When to divert is `sending`'s decision; bringing the messages home is the syphon's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from twinbus.client import messages
from twinbus.client.diverting import MeantFor, divert
from twinbus.client.errors import CONNECTION_LOST, ClientError, is_local
from twinbus.model.limits import BACKLOG_ROOM_BYTES, MESSAGE_BYTES_MAX
from twinbus.pair import listeners, tracing
from twinbus.pair.backlog.rotation import Rotation
from twinbus.pair.errors import BacklogError
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.route.entity_facts import too_large
from twinbus.pair.route.failures import Failure, kind_of

_FOR_GOOD = (Failure.PERMANENT, Failure.MISTAKE)
_ABOUT_THE_MESSAGE = ("amqp:decode-error", "com.microsoft:argument-error")  # Wherever it is sent.


class Diverted(NamedTuple):
    """Messages that a backlog queue has taken, for those who listen."""

    path: str  # Where they belong.
    queue: str
    message_ids: list[str]


class Diversion:
    """Sends to the backlog queues of the secondary."""

    def __init__(
        self,
        secondary: RemoteNamespace,
        rotation: Rotation,
        timeout_s: float,
        new_id: Callable[[], str],
        on_diverted: Callable[[Diverted], None] | None = None,
    ) -> None:
        self._secondary = secondary
        self._rotation = rotation
        self._timeout_s = timeout_s
        self._new_id = new_id
        self._on_diverted = on_diverted
        self.diverted = 0  # Messages, for the status.
        self.meant_for: MeantFor | None = None  # The primary, in each message.
        self.find: Callable[[], Awaitable[str]] | None = None  # Looks for backlog queues; says why there are none.

    def pick(self) -> str | None:
        """A backlog queue for a new sender, at random; it stays with it while it works."""
        return self._rotation.pick()

    async def send(
        self,
        payloads: Sequence[bytes],
        path: str,
        preferred: str | None,
        timeout_s: float | None,
        bytes_max: int | None = None,
    ) -> str:
        """Have every message in a backlog queue, and return the last one; raises a BacklogError if none took them.

        A message keeps its id over all attempts, so that one that arrived twice can be recognised. What the primary
        would not take either, which is known to take `bytes_max`, is the caller's mistake, and a ClientError.
        """
        room = bytes_max or MESSAGE_BYTES_MAX
        tried: list[str] = []
        problem: ClientError | None = None
        said = "there is none"
        was_lost = False
        left: Sequence[bytes] = payloads
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                if not self._rotation.queues and self.find is not None:
                    said = await self.find()
                left = [
                    divert(payload, path, self._new_id, meant_for=self.meant_for, bytes_max=room)
                    for payload in payloads
                ]
                while (queue := self._rotation.pick(preferred, tried)) is not None:
                    tried.append(queue)
                    if bytes_max is None:
                        await refuse_larger(self._secondary, queue, payloads)
                    failed = await self._try(queue, left, path)
                    self._announce(path, queue, [each for at, each in enumerate(left) if at not in failed])
                    if not failed:
                        self._rotation.worked(queue)
                        return queue
                    problem = next(iter(failed.values()))
                    left = [left[position] for position in failed]
                    if problem.condition in _ABOUT_THE_MESSAGE:
                        raise problem
                    if kind_of(problem) in _FOR_GOOD and not _is_about_the_queue(problem):
                        raise BacklogError(f"The backlog refuses a message for '{path}': {problem.text}") from problem
                    if problem.condition == CONNECTION_LOST and not was_lost:
                        was_lost = True  # It may have been dead for long: with a new one the same queue may do.
                        tried.remove(queue)
                        continue
                    self._rotation.failed(queue)
                    if is_local(problem):
                        break  # The whole secondary is gone: another queue of it will not do better.
        except TimeoutError:
            problem = problem or ClientError("twinbus:timed-out", "no answer in time")
        said = problem.text if problem is not None else said
        raise BacklogError(
            f"No backlog queue takes {len(left)} of {len(payloads)} messages for '{path}': {said}"
        ) from problem

    def _announce(self, path: str, queue: str, taken: list[bytes]) -> None:
        self.diverted += len(taken)
        if taken and self._on_diverted is not None:
            ids = [messages.read(payload).message_id or "" for payload in taken]
            listeners.call(self._on_diverted, Diverted(path, queue, ids))

    async def _try(self, queue: str, payloads: Sequence[bytes], path: str) -> dict[int, ClientError]:
        at, count = self._secondary.address, len(payloads)
        with tracing.span("send", queue, kind="CLIENT", at=at, count=count, payloads=payloads) as span:
            span.say(diverted=True, destination=path)
            try:
                await self._secondary.send(queue, payloads, timeout_s=self._timeout_s)
            except ClientError as error:
                span.fail(error)
                return error.failed or dict.fromkeys(range(len(payloads)), error)
        return {}


async def refuse_larger(secondary: RemoteNamespace, queue: str, payloads: Sequence[bytes]) -> None:
    """Refuse what is larger than other queues take: the room that only a backlog queue has is for what we add.

    For a primary that never said its limit: that it takes as much as the secondary is the best that can be known.
    """
    try:
        bytes_max = await secondary.message_bytes_max(queue)
        if bytes_max is None or not await secondary.is_twinbus():
            return
    except ClientError:
        return  # The send will meet it, too.
    for payload in payloads:
        if len(payload) > bytes_max - BACKLOG_ROOM_BYTES:
            raise too_large(len(payload), bytes_max - BACKLOG_ROOM_BYTES)


def _is_about_the_queue(error: ClientError) -> bool:
    """Whether another queue may take what this one did not."""
    return error.condition in ("amqp:not-found", "com.microsoft:entity-disabled", "amqp:resource-deleted")
