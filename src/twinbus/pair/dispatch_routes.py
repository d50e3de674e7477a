"""The ways out of an outbox: to one namespace alone, or through a pair, where the health of an entity says which way.

What an error means for a message that can wait is decided here; the order is `dispatch_lanes`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from twinbus.client.errors import TIMED_OUT, ClientError, is_local
from twinbus.pair.dispatch_lanes import Fate, Lot, Outcome
from twinbus.pair.failures import Failure, kind_of
from twinbus.pair.half import Half

Deliver = Callable[[Lot], Awaitable[list[Outcome]]]

TIMEOUT_S = 20.0
SENT = Outcome(Fate.SENT)
# About the entity and not the message, and an operator's act: it will pass when it is taken back.
_DISABLED = "com.microsoft:entity-disabled"


def fate_of(error: ClientError) -> Outcome:
    """What an error means: a message is refused for good only if a broker said so, and nothing can change its mind."""
    for_good = kind_of(error) is Failure.PERMANENT and not is_local(error) and error.condition != _DISABLED
    return Outcome(Fate.REFUSED if for_good else Fate.LATER, str(error))


def outcomes_of(error: ClientError, count: int) -> list[Outcome]:
    """What became of each message of one send that failed."""
    if not error.failed:
        return [fate_of(error)] * count
    return [fate_of(error.failed[position]) if position in error.failed else SENT for position in range(count)]


async def send_within(half: Half, path: str, payloads: Sequence[bytes], timeout_s: float = TIMEOUT_S) -> None:
    """Send to an entity of one namespace; a namespace that is silent is told as a ClientError, too."""
    try:
        async with asyncio.timeout(timeout_s):
            await (await half.sender(path)).send(payloads)
    except TimeoutError:
        raise ClientError(TIMED_OUT, f"'{path}' did not answer within {timeout_s:g} s") from None


async def send(half: Half, path: str, payloads: Sequence[bytes]) -> list[Outcome]:
    """Send to one namespace."""
    try:
        await send_within(half, path, payloads)
    except ClientError as error:
        return outcomes_of(error, len(payloads))
    return [SENT] * len(payloads)


def alone(half: Half) -> Deliver:
    """The way to one namespace without a pair."""

    async def deliver(lot: Lot) -> list[Outcome]:
        return await send(half, lot.path, [entry.payload for entry in lot.entries])

    return deliver
