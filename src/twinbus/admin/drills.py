"""Drills over HTTP: which there were, one of them while it runs, its report; begin one, and abort it.

A drill is a process that the broker starts; how is `broker.drilling`'s business.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from aiohttp import web

from twinbus.admin.asked import Asked, Document
from twinbus.admin.faults import HttpError
from twinbus.model.errors import BusError, Fault

FOR_S, FOR_S_MAX = 10.0, 3_600.0
RATE, RATE_MAX = 20.0, 1_000.0
_SCENARIO = re.compile(r"[a-z][a-z-]{0,39}")
_DRILL = r"drills/([0-9a-z-]{1,40})"


class Wanted(NamedTuple):
    """A drill that somebody wants."""

    scenario: str
    for_s: float
    rate: float
    dry_run: bool

    def document(self) -> Document:
        """As it was asked for."""
        return {"scenario": self.scenario, "for": self.for_s, "rate": self.rate, "dry_run": self.dry_run}


class Drills(Protocol):
    """Who runs drills. Looking reads files, and is done on a thread."""

    def all(self) -> list[Document]:
        """The newest first."""
        ...

    def one(self, drill: str) -> Document | None:
        """One, whole; None if there is none of that id."""
        ...

    def report(self, drill: str) -> bytes | None:
        """Its report in HTML, if there is one yet."""
        ...

    async def begin(self, wanted: Wanted) -> str:
        """Start one; its id. One at a time."""
        ...

    async def abort(self, drill: str) -> None:
        """Ask a running one to end."""
        ...


class DrillRoutes:
    """The routes about drills; `drills` is None where no pair was described."""

    def __init__(self, drills: Drills | None) -> None:
        self._drills = drills
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document | web.Response]]] = {
            ("GET", "drills"): self._list,
            ("POST", "drills"): self._begin,
            ("GET", _DRILL): self._one,
            ("GET", f"{_DRILL}/report"): self._report,
            ("DELETE", _DRILL): self._abort,
        }

    async def _list(self, asked: Asked) -> Document:
        drills = self._drills
        return {"allowed": drills is not None, "drills": [] if drills is None else await asyncio.to_thread(drills.all)}

    async def _one(self, asked: Asked) -> Document:
        found = None if self._drills is None else await asyncio.to_thread(self._drills.one, asked.open[0])
        if found is None:
            raise HttpError(404, "There is no such drill.")
        return found

    async def _report(self, asked: Asked) -> web.Response:
        found = None if self._drills is None else await asyncio.to_thread(self._drills.report, asked.open[0])
        if found is None:
            raise HttpError(404, "There is no such report, or not yet.")
        return web.Response(body=found, content_type="text/html", charset="utf-8")

    async def _begin(self, asked: Asked) -> web.Response:
        wanted = _wanted(asked.body)
        if self._drills is None:
            raise HttpError(409, "No pair was described to this broker: serve with --console-pair, or `twinbus up`.")
        return web.json_response({"id": await self._drills.begin(wanted)}, status=202)

    async def _abort(self, asked: Asked) -> Document:
        found = await self._one(asked)
        assert self._drills is not None
        if found["state"] != "running":
            raise HttpError(409, "This drill is over.")
        await self._drills.abort(asked.open[0])
        return found


def _wanted(body: Document) -> Wanted:
    scenario, dry_run = body.pop("scenario", None), body.pop("dry_run", False)
    if not isinstance(scenario, str) or _SCENARIO.fullmatch(scenario) is None:
        raise BusError(Fault.ARGUMENT, "'scenario' must be the name of a drill, as in 'outage'.")
    if not isinstance(dry_run, bool):
        raise BusError(Fault.ARGUMENT, "'dry_run' must be true or false.")
    wanted = Wanted(scenario, _number(body, "for", FOR_S, FOR_S_MAX), _number(body, "rate", RATE, RATE_MAX), dry_run)
    if body:
        raise BusError(Fault.ARGUMENT, f"'{next(iter(body))[:40]}' is not known here.")
    return wanted


def _number(body: Document, name: str, default: float, most: float) -> float:
    found = body.pop(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 1 <= found <= most:
        raise BusError(Fault.ARGUMENT, f"'{name}' must be a number from 1 to {most:g}.")
    return float(found)
