"""A broker for claims by deferral: setting messages aside under a mark, finding them again, completing, giving back.

Receiving under lock is `intake`'s business, and what is claimed is decided in `deferred`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from twinbus.client import ClientError
from twinbus.client.management import Management
from twinbus.client.messages import again, read
from twinbus.model.message import MessageState, Outcome
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.namespace import Namespace, find, in_words
from twinbus.pipeline.options import Subscribed, Target
from twinbus.pipeline.reading.staged import Limit
from twinbus.pipeline.reading.staging import Key
from twinbus.pipeline.rows import CLAIM

if TYPE_CHECKING:
    from twinbus.pipeline.reading.intake import Intake

LOT = 100  # Deferred messages that are fetched by one request, all or none.


class Deferring:
    """One query's view of its broker."""

    def __init__(self, intake: Intake, claim_name: str) -> None:
        self._intake = intake
        self._claim_name = claim_name

    def receive(self, limit: Limit, wait_s: float) -> list[Key]:
        """Lock messages, at most so many."""
        return [Key(message.entity, message.number) for message in self._intake.receive(limit, wait_s, lambda _: False)]

    def defer(self, keys: Iterable[Key]) -> set[Key]:
        """Set aside what is locked; those of which the broker confirmed it."""
        wanted = list(keys)
        deferred = self._intake.settle(wanted, Outcome.DEFER, {CLAIM: self._claim_name})
        self._intake.let_go(key for key in wanted if key not in deferred)
        return deferred

    def complete(self, keys: Iterable[Key]) -> set[Key]:
        """Complete what is set aside; those that are certainly gone. What cannot be reached now is not."""
        return self._intake.use(lambda namespace: self._complete(namespace, list(keys)), set())

    def marked(self) -> set[Key]:
        """All that is set aside under this query's mark."""

        async def look(namespace: Namespace) -> set[Key]:
            return {
                Key(entity, number)
                for entity in await namespace.entities(self._intake.subscribed)
                async for number, _ in marked(await self._node(namespace, entity), self._claim_name)
            }

        return self._intake.use(look)

    async def _node(self, namespace: Namespace, entity: str) -> Management:
        return await namespace.management(self._intake.subscribed.address(entity))

    async def _complete(self, namespace: Namespace, keys: list[Key]) -> set[Key]:
        gone: set[Key] = set()
        for entity in {key.entity for key in keys}:
            node = await self._node(namespace, entity)
            numbers = sorted(key.number for key in keys if key.entity == entity)
            for first in range(0, len(numbers), LOT):
                lot = numbers[first : first + LOT]
                try:
                    await _complete(node, lot)
                    gone.update(Key(entity, number) for number in lot)
                except ClientError:
                    # Some were completed before a crash, or are locked by whoever began to: one by one.
                    left = await _still_there(node, lot)
                    gone.update(Key(entity, number) for number in lot if number not in left)
                    gone.update([Key(entity, number) for number in left if await _could_complete(node, number)])
        return gone


async def marked(node: Management, claim_name: str) -> AsyncIterator[tuple[int, bytes]]:
    """Number and payload of what is set aside in an entity under a mark."""
    sign = CLAIM.encode()
    async for page in node.peek_all():
        for payload in page:
            if sign in payload:  # Most have no mark, and are not read.
                message = read(payload)
                if message.state is MessageState.DEFERRED and message.properties.get(CLAIM) == claim_name:
                    yield message.sequence_number, payload


async def release(target: Target, subscribed: Subscribed, claim_name: str) -> dict[str, int]:
    """Give back what an abandoned query has set aside: how many of each entity.

    A deferred message cannot be made an ordinary one again, so it is sent anew, under its id, and then completed.
    """
    counts: dict[str, int] = {}
    try:
        async with Namespace(target) as namespace:
            for entity in await namespace.entities(subscribed):
                if "/subscriptions/" in entity.lower():
                    raise PipelineError(
                        f"'{entity}' is a subscription, to which nothing can be sent: what is set aside there can only"
                        " be read by a query with the same claimName."
                    )
                node = await namespace.management(subscribed.address(entity))
                sender = await namespace.connection.sender(entity)
                counts[entity] = 0
                found = [each async for each in marked(node, claim_name)]
                for number, payload in found:
                    await sender.send([again(payload, without=(CLAIM,))])
                    await _complete(node, [number])
                    counts[entity] += 1
    except ClientError as error:
        raise in_words(error) from error
    return counts


async def _complete(node: Management, numbers: list[int]) -> None:
    held = await node.receive_deferred(numbers)
    await node.settle([message.token for message in held], Outcome.COMPLETE)


async def _could_complete(node: Management, number: int) -> bool:
    try:
        await _complete(node, [number])
    except ClientError:
        return False
    return True


async def _still_there(node: Management, numbers: list[int]) -> list[int]:
    return [seen.number async for page in find(node, numbers) for seen in page]
