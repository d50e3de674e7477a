"""Verifying and backing up a running namespace: begun by one request, asked about by others.

It takes as long as there is to read, so nobody waits for it; what happens is told by `Examinations`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from twinbus.admin.asked import Asked, Document
from twinbus.admin.faults import HttpError
from twinbus.model.errors import BusError, Fault


class Examinations(Protocol):
    """Who verifies and backs up."""

    def latest(self, what: str) -> Mapping[str, Any] | None:
        """How far the latest one is, or what came out of it."""
        ...

    async def begin(self, what: str, destination: str | None = None) -> Mapping[str, Any]:
        """Start one."""
        ...


class ExaminationRoutes:
    """The routes of `verify` and `backup`."""

    def __init__(self, examinations: Examinations, instant: Callable[[int], str]) -> None:
        self._examinations = examinations
        self._instant = instant
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", "(verify|backup)"): self._latest,
            ("POST", "verify"): self._verify,
            ("POST", "backup"): self._back_up,
        }

    async def _latest(self, asked: Asked) -> Document:
        found = self._examinations.latest(asked.open[0])
        if found is None:
            raise HttpError(404, f"No {asked.open[0]} was asked for since the broker started.")
        return self._document(found)

    async def _verify(self, asked: Asked) -> Document:
        if asked.body:
            raise BusError(Fault.ARGUMENT, f"'{next(iter(asked.body))[:40]}' is not known here.")
        return self._document(await self._examinations.begin("verify"))

    async def _back_up(self, asked: Asked) -> Document:
        destination = asked.body.pop("destination", None)
        if not isinstance(destination, str) or not destination.startswith("/"):
            raise BusError(
                Fault.ARGUMENT, "'destination' must be the whole path of a directory on the broker's machine."
            )
        if asked.body:
            raise BusError(Fault.ARGUMENT, f"'{next(iter(asked.body))[:40]}' is not known here.")
        return self._document(await self._examinations.begin("backup", destination))

    def _document(self, state: Mapping[str, Any]) -> Document:
        told = {key: value for key, value in state.items() if key not in ("began_ms", "ended_ms")}
        ended_ms = state["ended_ms"]
        return {
            **told,
            "began_at": self._instant(state["began_ms"]),
            "ended_at": None if ended_ms is None else self._instant(ended_ms),
        }
