"""Pages for people that somebody else serves on the HTTP port, beside the interfaces for programs.

The root is an address of the administration: only a browser that asks for a page there is sent on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler


class Site(Protocol):
    """Whoever serves pages."""

    @property
    def home(self) -> str:
        """The address of the first page."""
        ...

    @property
    def routes(self) -> Mapping[str, Handler]:
        """What is served, by path."""
        ...

    async def begin(self, directory: Path | None) -> None:
        """The broker is ready; what is to outlive it may be kept in this directory, if there is one."""
        ...

    async def close(self) -> None:
        """End what is still going on."""
        ...


def is_for_people(request: web.Request) -> bool:
    """Whether a browser asks for a page at the root."""
    return request.method == "GET" and request.path == "/" and "text/html" in request.headers.get("Accept", "")
