"""What the entities need from the process around them: a place to send store commands to, and a durable catalog.

The broker provides both (threads and futures are its business); a simulation may provide others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

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


class ChangedRecord(Protocol):
    """A record after a rule's action."""

    @property
    def overlay(self) -> bytes | None:
        """What replaces its application properties."""
        ...

    @property
    def record(self) -> bytes | None:
        """The record anew, if more than application properties changed."""
        ...


class RecordReader(Protocol):
    """What rules need to know of a record, which only the wire can read."""

    def system_properties(self, record: bytes) -> Mapping[str, Any]:
        """The properties that every message may have, by their names."""
        ...

    def user_properties(self, record: bytes) -> Mapping[str, Any]:
        """The application properties."""
        ...

    def ttl_ms(self, record: bytes) -> int | None:
        """The time to live that the sender gave."""
        ...

    def change(
        self, record: bytes, user: Mapping[str, Any], removed: Iterable[str], system: Mapping[str, Any]
    ) -> ChangedRecord:
        """The record with an action's changes."""
        ...
