"""Ordered backlog queues: found or made when a pair keeps order.

Their number is decided by the client that makes them first, and stays, because a session is found again by it.
"""

from __future__ import annotations

from twinbus.client.atom import Administration
from twinbus.client.errors import ClientError
from twinbus.model.entity import QueueDescription
from twinbus.model.logged import EventLog
from twinbus.pair.backlog import making
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.errors import PairingError
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.order import table as ordered
from twinbus.pair.route.failures import Failure, kind_of

_log = EventLog(__name__)


async def found(secondary: RemoteNamespace, primary: str) -> list[str]:
    """The ordered backlog queues that there are; none if nobody keeps order."""
    return await making.found(secondary, [primary], ordered.TRANSFER_ORDERED)


async def have(secondary: RemoteNamespace, primary: str, count: int) -> list[str]:
    """Make the missing ones; a PairingError if one is missing in the end, since no other can stand in for it."""
    try:
        async with await secondary.administer() as administration:
            there = await _there(administration, primary)
            if there and max(there) + 1 != count:
                count = max(there) + 1
                _log.warning(
                    "backlog.count.kept",
                    "'{pair}' has {count} ordered backlog queues already, and keeps that number",
                    pair=primary,
                    count=count,
                )
            for index in set(range(count)) - there:
                await making.create_or_find(administration, ordered.description(primary, index))
    except ClientError as problem:
        if kind_of(problem) is Failure.UNAUTHORIZED:
            queues = await found(secondary, primary)
            if queues == [ordered.path(primary, index) for index in range(len(queues))] and queues:
                return queues
        raise PairingError(f"The ordered backlog queues of '{primary}' could not be made: {problem.text}") from problem
    return [ordered.path(primary, index) for index in range(count)]


async def _there(administration: Administration, primary: str) -> set[int]:
    indices = set()
    async for entry in administration.queues():
        index = backlog.index_of(primary, entry.description.name, ordered.TRANSFER_ORDERED)
        if index is None:
            continue
        description = entry.description
        if not isinstance(description, QueueDescription) or not description.requires_session:
            raise PairingError(f"'{description.name}' has no sessions, so that it cannot keep order.")
        indices.add(index)
    return indices
