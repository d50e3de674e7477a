"""What a person may have meant who named something that is not there: the names nearest to it.

Asking costs a few requests and a right that not everybody has, so it is done after a failure only, and may come to
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches

from twinbus.cli.address import Address, parse_address
from twinbus.cli.connection import Namespace
from twinbus.cli.running import PromptError, words
from twinbus.cli.showing import clean
from twinbus.client import ClientError

NOT_FOUND = "amqp:not-found"
TIMEOUT_S = 3.0
CUTOFF = 0.6


@asynccontextmanager
async def finding(place: Namespace, name: str) -> AsyncIterator[None]:
    """When what is named is not found inside the block, the error tells which names are near."""
    try:
        yield
    except ClientError as error:
        near = await nearest(place, name) if error.condition == NOT_FOUND else []
        if not near:
            raise
        raise PromptError(f"{words(error)}\n  There is {_listed(near)}.") from None


async def nearest(place: Namespace, name: str) -> list[str]:
    """Names that there are and that look like the given one, the nearest first."""
    try:
        async with place.administer(timeout_s=TIMEOUT_S) as administration:
            known = [entry.description.name async for entry in administration.queues()]
            topics = [entry.description.name async for entry in administration.topics()]
            for topic in topics:
                if parse_address(name).entity.lower().startswith(topic.lower()):
                    known += [
                        Address(topic, entry.description.name).short
                        async for entry in administration.subscriptions(topic)
                    ]
    except ClientError:
        return []
    by_key = {_key(candidate): candidate for candidate in (*known, *topics)}
    asked = _key(parse_address(name).short)
    return [by_key[key] for key in get_close_matches(asked, by_key, n=3, cutoff=CUTOFF) if key != asked or "/" in name]


def _key(name: str) -> str:
    """`orders/audit` is as good as `orders:audit`, for those who guess."""
    return name.lower().replace(":", "/")


def _listed(names: list[str]) -> str:
    quoted = [f"'{clean(name)}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
