"""What the entities need from the process around them: a place to send store commands to, and a durable catalog.

The broker provides both (threads and futures are its business); a simulation may provide others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from twinbus.model.message import Delivered
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

    @property
    def is_available(self) -> bool:
        """Whether it takes commands: it is neither down nor hanging."""
        ...


class CatalogPort(Protocol):
    """The durable list of entities and policies."""

    async def take_ids(self, count: int) -> int:
        """Numbers for new entities, in a row, never given out twice; the first of them."""
        ...

    async def put(self, row: EntityRow) -> None:
        """Store or replace an entity's row."""
        ...

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        """Forget an entity; `parts` are its numbers in stores that are to drop them, until `dropped` says so."""
        ...

    async def dropped(self, parts: Iterable[int]) -> None:
        """The stores have dropped these."""
        ...

    async def take_up(self, row: EntityRow) -> None:
        """Store the row of an entity that stores hold and the catalog has not."""
        ...

    @property
    def generation(self) -> int:
        """How many changes there were, as far as is known here."""
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
    """What rules and forwarding need to know of a record, which only the wire can read and write."""

    def system_properties(self, record: bytes) -> Mapping[str, Any]:
        """The properties that every message may have, by their names."""
        ...

    def user_properties(self, record: bytes) -> Mapping[str, Any]:
        """The application properties."""
        ...

    def ttl_ms(self, record: bytes) -> int | None:
        """The time to live that the sender gave."""
        ...

    def partition_key(self, record: bytes) -> str | None:
        """The partition key that the sender gave."""
        ...

    def hops(self, record: bytes) -> int:
        """How often the message was forwarded."""
        ...

    def forwarded(self, message: Delivered) -> bytes:
        """The record of a message that goes on to another entity."""
        ...

    def forwarded_dead_letter(self, message: Delivered, source: str) -> bytes:
        """The record of a dead letter that goes on to another entity, away from the one of this path."""
        ...

    def with_overlay(self, record: bytes, overlay: bytes | None, removed: Iterable[str] = ()) -> bytes:
        """The record with other application properties, of which some are left out."""
        ...

    def change(
        self, record: bytes, user: Mapping[str, Any], removed: Iterable[str], system: Mapping[str, Any]
    ) -> ChangedRecord:
        """The record with an action's changes."""
        ...
