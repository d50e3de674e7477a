"""Links that are opened once for all who ask, kept by path, and opened anew when they were lost.

How a link is opened is known to the adapters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from twinbus.client.errors import ClientError


class Link(Protocol):
    """Anything that says why it is gone, if it is."""

    @property
    def error(self) -> ClientError | None: ...


L = TypeVar("L", bound=Link)


class OpenLinks(Generic[L]):
    """The links of one namespace, each being opened or open."""

    def __init__(self, open_link: Callable[[str], Coroutine[Any, Any, L]]) -> None:
        self._open = open_link
        self._links: dict[str, asyncio.Task[L]] = {}

    def __len__(self) -> int:
        return len(self._links)

    async def get(self, path: str) -> L:
        """The link to an entity; those who ask at once wait for the same one."""
        known = self._links.get(path)
        if known is None or _is_lost(known):
            known = self._links[path] = asyncio.create_task(self._open(path))
            known.add_done_callback(heard)
        return await asyncio.shield(known)

    def forget(self, path: str, link: L) -> None:
        """Do not hand out this link again."""
        known = self._links.get(path)
        if known is not None and known.done() and not _is_lost(known) and known.result() is link:
            del self._links[path]

    def clear(self) -> list[asyncio.Task[L]]:
        """Forget all of them, and return them to be closed."""
        links = list(self._links.values())
        self._links.clear()
        return links


def heard(link: asyncio.Task[Any]) -> None:
    """Those who waited for a link may have given up; that it failed is then nobody's concern."""
    if not link.cancelled():
        link.exception()


def _is_lost(link: asyncio.Task[L]) -> bool:
    """Whether a link must be opened anew: it could not be opened, or was lost since."""
    if not link.done():
        return False
    return link.cancelled() or link.exception() is not None or link.result().error is not None
