"""What the entities need from the process around them: a place to send store commands to, and a durable catalog.

The broker provides both (threads and futures are its business); a simulation may provide others.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Command

C = TypeVar("C", bound=Command)


class StorePort(Protocol):
    """One messaging store as the entities see it."""

    def submit(self, command: Command) -> None:
        """Queue a command; its `done` is called when it is durable, or when it failed."""
        ...

    def call(self, command: C) -> Awaitable[C]:
        """Submit and wait; raises the command's error."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes of messages that were submitted and are not yet committed."""
        ...


class CatalogPort(Protocol):
    """The durable list of entities and policies."""

    async def put(self, row: EntityRow) -> None:
        """Store or replace an entity's row."""
        ...

    async def remove(self, entity: int) -> None:
        """Forget an entity."""
        ...

    async def set_meta(self, key: str, value: str) -> None:
        """Store a value of the namespace itself."""
        ...
