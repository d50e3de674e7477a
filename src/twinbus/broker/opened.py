"""What the shell around a messaging store needs: the opened store itself, the states it can be in, and who is told.

Any engine's store will do; `broker.stores` runs it on a thread and watches over it.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from twinbus.model.errors import BusError, Fault
from twinbus.store.commands import Command, Hints
from twinbus.store.quarantine import Held
from twinbus.store.sums import Sums


class StoreState(Enum):
    """Whether a store takes commands, and why not."""

    UP = "up"
    DOWN = "down"  # An operator took it down.
    FAILED = "failed"  # Its disk failed, or it could not be opened.
    HANGING = "hanging"  # Its disk has not answered for too long.
    SET_ASIDE = "set-aside"  # What lies in its place is not what was served: only an operator knows what to do.


class SetAsideError(BusError):
    """The store in this place must not be served."""

    def __init__(self, text: str) -> None:
        super().__init__(Fault.STORE_UNAVAILABLE, text, definite=True)


STORE_STATES = (*(state.value for state in StoreState), "full")  # One that is up may be full.


class OpenStore(Protocol):
    """A store that was opened, for one thread."""

    sums: Sums  # Where it counts what it has committed.

    @property
    def synced_commits(self) -> int:
        """Commits that waited for the disk."""
        ...

    @property
    def failure(self) -> BusError | None:
        """Why it takes no more commands, if so; then it is closed, and may be opened anew."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether its disk is full, so that it hands messages out but takes none."""
        ...

    def commit(self, group: list[Command], now_ms: int) -> Hints:
        """Execute the commands; durable when this returns."""
        ...

    def due_at_ms(self) -> int | None:
        """When the next Sweep will have something to do."""
        ...

    def held(self) -> list[Held]:
        """The entities that it holds."""
        ...

    def checkpoint_due(self) -> bool:
        """Whether its log should be moved."""
        ...

    def checkpoint(self) -> bool:
        """Move what can be moved of the log."""
        ...

    def close(self) -> None:
        """Release the database."""
        ...


class Audience(Protocol):
    """Who is told what happens to a store. All calls come from the event loop."""

    def hinted(self, hints: Hints) -> None:
        """A commit may have made something possible."""
        ...

    def flush(self) -> None:
        """Everything that one commit or change of state brought about has been told."""
        ...

    def store_lost(self, number: int, error: BusError) -> None:
        """The store takes no more commands, and all its locks are gone."""
        ...

    def store_returned(self, number: int, held: list[Held]) -> None:
        """The store takes commands again; these are the entities that it holds."""
        ...
