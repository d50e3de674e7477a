"""A namespace as jobs reach it: an open connection with its management nodes, its entities, and how much waits in them.

What is received over a connection is `intake`'s and `browsing`'s business.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from twinbus.client import ClientError, Connection, ConnectionString, connect
from twinbus.client.management import Management
from twinbus.client.messages import stamped
from twinbus.client.wording import explain
from twinbus.model.limits import PEEK_COUNT_MAX
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.options import DEAD_LETTER, MAIN, TRANSFER_DEAD_LETTER, Subscribed, Target

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

TIMEOUT_S = 30.0
ADMINISTRATION_S = 10.0
DEVELOPMENT_HTTP_PORT = 5300
_COUNTS = {MAIN: "active", DEAD_LETTER: "dead_letter", TRANSFER_DEAD_LETTER: "transfer_dead_letter"}
# In a partitioned entity the fragment is above these bits, and each fragment counts for itself.
FRAGMENT_BITS = 48


def namespace_of(target: ConnectionString) -> str:
    """What a namespace is called in rows: its host, with a port where it is not the usual one."""
    return target.audience().removeprefix("sb://").rstrip("/")


def in_words(error: ClientError) -> PipelineError:
    """An error of the client as a sentence."""
    told, advice, _ = explain(error)
    return PipelineError(f"{told} {advice}".strip() if advice not in told else told)


class Namespace:
    """One connection to a namespace; links to management nodes are opened when they are first needed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.place = target.resolve()
        self._stack = AsyncExitStack()
        self._nodes: dict[str, Management] = {}
        self._connection: Connection | None = None

    async def __aenter__(self) -> Namespace:
        opening = connect(self.place, tls=self._target.tls(), timeout_s=TIMEOUT_S)
        self._connection = await self._stack.enter_async_context(opening)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def connection(self) -> Connection:
        """The connection, which is open."""
        assert self._connection is not None, "it is entered first"
        return self._connection

    async def management(self, address: str) -> Management:
        """The management node of an entity or of one of its subqueues."""
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = await self.connection.management(address)
        return node

    # Entities

    async def entities(self, subscribed: Subscribed) -> list[str]:
        """The entities that are meant; a PipelineError if there are none."""
        if subscribed.pattern is None:
            names = subscribed.names or tuple(filter(None, (self.place.entity_path,)))
            if not names:
                raise PipelineError(
                    "No entity is named: give subscribe, subscribePattern, queue, or topic with subscription."
                )
            return list(names)
        wanted = re.compile(subscribed.pattern)
        found = []
        async with self.administration() as administration:
            async for queue in administration.queues():
                found.append(queue.description.name)
            async for topic in administration.topics():
                async for subscription in administration.subscriptions(topic.description.name):
                    found.append(subscription.description.path)
        return sorted(name for name in found if wanted.fullmatch(name))

    @asynccontextmanager
    async def administration(self) -> AsyncIterator[Administration]:
        """The administration of the namespace, over HTTP, where it says it is or where it usually is."""
        from twinbus.client.atom import administer  # aiohttp is slow to import, and few need it.

        host = f"[{self.place.host}]" if ":" in self.place.host else self.place.host
        port = self._target.http_port or self.connection.http_port
        if port is None and not self.place.tls:
            port = DEVELOPMENT_HTTP_PORT
        address = f"{'https' if self.place.tls else 'http'}://{host}{f':{port}' if port else ''}"
        async with administer(self.place, address, tls=self._target.tls(), timeout_s=ADMINISTRATION_S) as found:
            yield found

    async def waiting(self, entities: list[str], sub_queue: str) -> dict[str, int]:
        """How many messages wait in each entity, as its description tells; needs the right to manage."""
        async with self.administration() as administration:
            counts = {}
            for name in entities:
                told = (await administration.entity(name)).counts
                counts[name] = getattr(told, _COUNTS[sub_queue])
            return counts


# Numbers


class Seen(NamedTuple):
    """A message that was looked at."""

    number: int
    payload: bytes


def fragment(number: int) -> int:
    """The fragment that a message of a partitioned entity is in; 0 in others."""
    return number >> FRAGMENT_BITS


async def look(node: Management, begin: int, count: int = PEEK_COUNT_MAX, session_id: str | None = None) -> list[Seen]:
    """Some messages from a number on, in the order of their numbers; none if there are no more."""
    page = await node.peek(begin, min(count, PEEK_COUNT_MAX), session_id)
    return [Seen(stamped(payload).sequence_number, payload) for payload in page]


async def find(node: Management, numbers: Sequence[int]) -> AsyncIterator[list[Seen]]:
    """Messages by their numbers, which are in order, page by page; those that are gone are left out."""
    wanted = set(numbers)
    position = 0
    while position < len(numbers):
        page = await look(node, numbers[position], numbers[-1] - numbers[position] + 1)
        yield [seen for seen in page if seen.number in wanted]
        position = bisect_right(numbers, page[-1].number) if page else len(numbers)


async def first_number(node: Management, number: int) -> int | None:
    """The number of the first message from a number on."""
    page = await look(node, number, 1)
    return page[0].number if page else None


async def last_numbers(node: Management) -> dict[int, int]:
    """The highest number of a message in each fragment that has one.

    Found by halving, since a node shows the first message from a number on and never the last.
    """
    found: dict[int, int] = {}
    known = await first_number(node, 0)
    while known is not None:
        number = fragment(known)
        beyond = (number + 1) << FRAGMENT_BITS
        step = 1
        while (seen := await first_number(node, known + step)) is not None and seen < beyond:
            known, step = seen, step * 2
        while step > 1:
            step //= 2
            seen = await first_number(node, known + step)
            known = seen if seen is not None and seen < beyond else known
        found[number] = known
        known = await first_number(node, beyond) if beyond < 1 << 63 else None
    return found
