"""A messaging store that is a database's, as the event loop sees it: it comes and goes with its connection.

Locks are rows there and outlive a lost connection, so what frees them is repeated until the database has heard it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinbus.broker.opened import Audience
from twinbus.broker.stores import StoreShell
from twinbus.model.clock import Clock
from twinbus.model.errors import Fault
from twinbus.store.commands import Command, DropLocks, ReleaseSession
from twinbus.store.postgres.store import PostgresStore

REOPEN_S = 1.0  # So often a store whose database is gone is tried again, and what frees locks is repeated.
REPEATS_MAX = 300  # No lock lasts longer than five minutes.


class SharedStoreShell(StoreShell):
    """One store with its thread, on a connection that is made anew by itself."""

    def __init__(self, number: int, open_store: Callable[[], PostgresStore], clock: Clock, audience: Audience) -> None:
        super().__init__(number, self._opened_by(open_store), clock, audience, retry_s=REOPEN_S)
        self.opened: PostgresStore | None = None

    def _opened_by(self, open_store: Callable[[], PostgresStore]) -> Callable[[], PostgresStore]:
        def open_one() -> PostgresStore:
            self.opened = open_store()
            return self.opened

        return open_one

    @property
    def is_available(self) -> bool:
        """Whether it takes commands, as far as is known."""
        return self._is_up and (self.opened is None or self.opened.is_connected)

    @property
    def state_name(self) -> str:
        """Its state in a word."""
        return "disconnected" if self._is_up and not self.is_available else super().state_name

    def submit(self, command: Command) -> None:
        """Queue a command; one that frees locks is repeated while the database is out of reach."""
        if isinstance(command, DropLocks | ReleaseSession):
            self._insist(command, command.done)
        super().submit(command)

    def _insist(self, command: Command, told: Callable[[Any], None] | None) -> None:
        left = REPEATS_MAX

        def done(answered: Command) -> None:
            nonlocal left
            left -= 1
            if answered.error is not None and answered.error.fault is Fault.STORE_UNAVAILABLE and left:
                command.error = None
                self._loop.call_later(REOPEN_S, super(SharedStoreShell, self).submit, command)
            elif told is not None:
                told(answered)

        command.done = done
