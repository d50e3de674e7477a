"""The syphon: what was diverted is brought home. Receive, send to the primary, wait for the acknowledgement, complete.

`step` is one lot of one backlog queue; the pump in `pumping` and the Spark job both run it. Whoever is killed in
between leaves a message in both places, never in none, under one id.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from twinbus.client import ReceivedMessage, Receiver
from twinbus.client.diverting import Restored, RestoreError, restore
from twinbus.client.endpoint import to_its_end
from twinbus.client.errors import ClientError, is_local
from twinbus.model.message import Outcome
from twinbus.pair import tracing
from twinbus.pair.failures import is_refusal
from twinbus.pair.half import Half

NOT_RETRYABLE = "NotRetryable"


@dataclass(slots=True)
class Moved:
    """What became of one lot."""

    received: int = 0
    moved: Counter[str] = field(default_factory=Counter)  # By destination.
    dead: int = 0  # Went to the backlog queue's own dead-letter queue.
    blocked: dict[str, ClientError] = field(default_factory=dict)  # Destinations that take nothing at present.
    held: dict[str, list[ReceivedMessage]] = field(default_factory=dict)  # What waits for them, locked.
    doubled: int = 0  # Sent, but not completed: they will be sent again under the same id.
    primary_gone: bool = False


Item = tuple[ReceivedMessage, Restored]


async def step(receiver: Receiver, primary: Half, *, limit: int, wait_s: float, blocked: Sequence[str] = ()) -> Moved:
    """Move one lot. What cannot be moved now is held, locked, so that it does not stand in the way of what can.

    Whoever calls gives it back in time. When the whole primary is gone, everything is given back at once.
    """
    result = Moved()
    lot = await receiver.receive(limit, wait_s)
    result.received = len(lot)
    if lot:
        await to_its_end(_traced(receiver, primary, lot, set(blocked), result))
    return result


async def _traced(
    receiver: Receiver, primary: Half, lot: list[ReceivedMessage], blocked: set[str], result: Moved
) -> None:
    payloads = (received.payload for received in lot)
    with tracing.span(
        "syphon", receiver.path, kind="CONSUMER", type_="process", count=len(lot), payloads=payloads, root=True
    ) as span:
        await _move(receiver, primary, lot, blocked, result)
        span.say(moved=result.moved.total(), dead=result.dead, blocked=len(result.blocked))


async def _move(
    receiver: Receiver, primary: Half, lot: list[ReceivedMessage], blocked: set[str], result: Moved
) -> None:
    by_path: dict[str, list[Item]] = {}
    for received in lot:
        try:
            restored = restore(received.payload)
        except RestoreError as problem:
            await _bury(receiver, [received], problem.reason, problem.text, result)
            continue
        if restored.path in blocked:
            result.held.setdefault(restored.path, []).append(received)
        else:
            by_path.setdefault(restored.path, []).append((received, restored))
    await asyncio.gather(*(_send(receiver, primary, path, items, result) for path, items in by_path.items()))
    if result.primary_gone:
        await give_back(receiver, result.held)


async def give_back(receiver: Receiver, held: dict[str, list[ReceivedMessage]]) -> None:
    """Return what was held; a lock that is lost meanwhile has given it back already."""
    messages = [received for waiting in held.values() for received in waiting]
    held.clear()
    if messages:
        with suppress(ClientError):
            await receiver.settle(messages, Outcome.RELEASE)


async def _send(receiver: Receiver, primary: Half, path: str, items: list[Item], result: Moved) -> None:
    failed: dict[int, ClientError] = {}
    payloads = [restored.payload for _, restored in items]
    with tracing.span("send", path, kind="CLIENT", at=primary.address, count=len(items), payloads=payloads) as span:
        span.say(syphon=True)
        try:
            sender = await primary.sender(path)
            await sender.send(payloads)
        except ClientError as error:
            span.fail(error)
            failed = error.failed or dict.fromkeys(range(len(items)), error)
    sent = [received for position, (received, _) in enumerate(items) if position not in failed]
    if sent:
        result.moved[path] += len(sent)
        try:
            await receiver.settle(sent)
        except ClientError as error:
            result.doubled += len(error.failed) or len(sent)
    for position, problem in failed.items():
        received = items[position][0]
        if is_refusal(problem):
            await _bury(receiver, [received], NOT_RETRYABLE, f"'{path}' refuses the message: {problem}", result)
        else:
            result.held.setdefault(path, []).append(received)
            result.blocked[path] = problem
            result.primary_gone |= is_local(problem)


async def _bury(
    receiver: Receiver, messages: list[ReceivedMessage], reason: str, description: str, result: Moved
) -> None:
    """Undeliverable messages do not block the queue."""
    with suppress(ClientError):
        await receiver.settle(messages, Outcome.DEAD_LETTER, reason=reason, description=description[:4096])
        result.dead += len(messages)
