"""Presence: a paired client or a syphon says to both namespaces that it is there, so that an operator can see it.

A small record with a time to live, renewed now and then and when something changes. Best effort: nothing waits for
it, and a namespace that does not offer it is left in peace.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from twinbus.client import upkeep
from twinbus.client.atom import AtomError
from twinbus.client.errors import ClientError
from twinbus.model.logged import EventLog
from twinbus.pair.namespace.port import RemoteNamespace

_log = EventLog(__name__)

RENEW_S = 30.0
TTL_S = 90
SELDOM_S = 1800.0  # A namespace that does not offer it, or refuses us, is asked again after so long.
FAILED_S = 5.0  # One that cannot be reached is tried again after so long, whatever changes meanwhile.
CALM_S = 1.0  # Changes that follow each other closely are announced together.
ATTEMPT_S = 5.0
FAREWELL_S = 1.0


@dataclass(slots=True)
class Presence:
    """The record of one client. `run` is a task; `end` says goodbye."""

    kind: str  # paired-client or syphon
    pair: str  # The primary's name, by which the backlog queues go.
    namespaces: tuple[RemoteNamespace, RemoteNamespace]
    state: Callable[[], dict[str, Any]]
    renew_s: float = RENEW_S
    prepare: Callable[[], Awaitable[None]] | None = None  # Looks at what `state` cannot wait for.
    record: str = field(default_factory=lambda: uuid4().hex)
    _woken: dict[str, asyncio.Event] = field(default_factory=dict)  # By role.
    _failed: set[str] = field(default_factory=set)  # Roles of those that could not be reached when last tried.
    _told: set[str] = field(default_factory=set)  # Roles of the namespaces that may have a record.

    def changed(self) -> None:
        """Something is to be announced soon."""
        for woken in self._woken.values():
            woken.set()

    async def run(self) -> None:
        """Renew the record in both namespaces until cancelled."""
        await asyncio.gather(*(self._keep(namespace) for namespace in self.namespaces))

    async def _keep(self, namespace: RemoteNamespace) -> None:
        woken = self._woken[namespace.role] = asyncio.Event()
        while True:
            woken.clear()
            if not await self._announce(namespace):
                await asyncio.sleep(SELDOM_S)
                continue
            if namespace.role in self._failed:
                await asyncio.sleep(min(FAILED_S, self.renew_s))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self.renew_s):
                    await woken.wait()
                    await asyncio.sleep(CALM_S)

    async def _announce(self, namespace: RemoteNamespace) -> bool:
        """One attempt; whether another one makes sense soon."""
        self._failed.add(namespace.role)
        try:
            async with asyncio.timeout(ATTEMPT_S):
                if self.prepare is not None:
                    await self.prepare()
                if not await namespace.is_twinbus():
                    return False
                async with await namespace.administer() as administration:
                    self._told.add(namespace.role)  # Even if the answer is lost there may be a record.
                    await upkeep.put_client(administration, self.record, self.document())
        except AtomError as refusal:
            _log.debug(
                "presence.failed",
                "the {namespace} takes no status record: {error}",
                namespace=namespace.role,
                error=refusal.text,
            )
            return refusal.status >= 500
        except (ClientError, TimeoutError, OSError) as problem:
            _log.debug(
                "presence.failed",
                "the {namespace} got no status record: {error}",
                namespace=namespace.role,
                error=problem,
            )
            return True
        self._failed.discard(namespace.role)
        return True

    def document(self) -> dict[str, Any]:
        """The record as it is put."""
        return {
            "kind": self.kind,
            "pair": self.pair,
            "host": socket.gethostname() or "unknown",
            "process": os.getpid(),
            "ttl": TTL_S,
            "state": self.state(),
        }

    async def end(self) -> None:
        """Take the record away where there is one; one that does not answer at once will forget it by itself."""
        await asyncio.gather(*(self._leave(namespace) for namespace in self.namespaces if namespace.role in self._told))

    async def _leave(self, namespace: RemoteNamespace) -> None:
        with suppress(ClientError, TimeoutError, OSError):
            async with asyncio.timeout(FAREWELL_S), await namespace.administer() as administration:
                await upkeep.remove_client(administration, self.record)
