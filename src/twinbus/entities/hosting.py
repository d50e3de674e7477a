"""The namespaces that one process hosts, and which of them a host name means.

Doors ask here first; when the host name does not tell, they find the namespace by the key that a client holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault

if TYPE_CHECKING:
    from twinbus.entities.ports import RecordReader
    from twinbus.store.catalog import EntityRow

NOBODY = "*"  # Not a namespace name, so that nobody can have it.


class Hosting:
    """One or more namespaces with different names, and the one without anything in it that strangers meet."""

    def __init__(self, namespaces: Sequence[Namespace], nobody: Namespace) -> None:
        self.namespaces = tuple(namespaces)
        self.nobody = nobody
        self._by_name = {namespace.name.lower(): namespace for namespace in namespaces}

    @property
    def only(self) -> Namespace | None:
        """The namespace, if there is no other."""
        return self.namespaces[0] if len(self.namespaces) == 1 else None

    @property
    def label(self) -> str:
        """What the process calls itself."""
        return "twinbus" if self.only is None else self.only.name

    def by_host(self, host: str | None) -> Namespace | None:
        """The namespace that a host name begins with; None for names that do not tell, such as `localhost`."""
        if self.only is not None:
            return self.only
        return self._by_name.get((host or "").partition(".")[0].partition(":")[0].lower())


class _NoCatalog:
    """Nobody can change what is nobody's."""

    async def take_ids(self, count: int) -> int:
        raise _nothing_here()

    async def put(self, row: EntityRow) -> None:
        raise _nothing_here()

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        raise _nothing_here()

    async def dropped(self, parts: Iterable[int]) -> None:
        raise _nothing_here()

    async def take_up(self, row: EntityRow) -> None:
        raise _nothing_here()

    @property
    def generation(self) -> int:
        return 0

    async def set_meta(self, key: str, value: str) -> None:
        raise _nothing_here()


def _nothing_here() -> BusError:
    return BusError(Fault.UNAUTHORIZED, "Neither host name nor key told which namespace is meant.")


def nobodys(clock: Clock, reader: RecordReader) -> Namespace:
    """A namespace without stores, entities and policies, for clients that have not said which one they mean."""
    return Namespace(NOBODY, clock, [], _NoCatalog(), reader)
