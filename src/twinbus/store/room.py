"""A store whose disk is full: when that is so, for what the room laid aside is given up, and when it is over.

What is laid aside is always enough to move the whole log into the database. So on a full disk that is done first: the
log's file, which does not shrink, is then room for many commits that nobody else can take. A rest is kept for the next
start, because opening a database needs room, too. What a full store refuses is the store's own business.
"""

from __future__ import annotations

import os

import apsw

from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.sql import sqlite
from twinbus.store.reserve import RESERVE_BYTES, Reserve

_log = EventLog(__name__)

STEP_BYTES = 1024 * 1024  # So much is given up at a time, beside what moving the log needs.
START_BYTES = 1024 * 1024  # Kept for a start: the log's index, and what was locked at the end.
COVER_BYTES = 4 * 1024 * 1024  # What is laid aside grows with the log, in such steps.
LOG_BYTES = 256 * 1024  # On a full disk the log is moved so soon.
LOOK_MS = 1_000
ENOUGH_BYTES = 2 * RESERVE_BYTES  # With so much room a store that was full takes messages again.


class NoRoomError(BusError):
    """A store cannot be opened because its disk is full."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(
            Fault.STORE_UNAVAILABLE,
            f"There is no room on its disk to open the messaging store; it is tried again ({problem}).",
            definite=True,
        )


class Room:
    """The room that one store has."""

    def __init__(self, path: str, number: int, now_ms: int) -> None:
        self.is_full = False
        self._path = os.path.realpath(path)  # A link may lead to another disk.
        self._number = number
        self._reserve = Reserve(f"{self._path}.reserve")
        self._looked_ms = now_ms
        self._found_bytes = 0  # Of the log that a start found, as far as the database has to grow for it.
        self._covered_bytes = COVER_BYTES

    def before_opening(self) -> None:
        """Make room for opening where there is none; raises if room can never be laid aside."""
        self._reserve.check()
        if os.path.exists(self._path) and self._reserve.free_bytes() < START_BYTES:
            self._reserve.give_up(START_BYTES)

    def explain(self, problem: Exception) -> None:
        """The store could not be opened: raise that there is no room, if that may be why."""
        is_refused = isinstance(problem, BusError) and problem.fault is not Fault.STORE_UNAVAILABLE
        if isinstance(problem, apsw.FullError) or (not is_refused and self._reserve.free_bytes() < START_BYTES):
            raise NoRoomError(problem) from problem

    def opened(self, database: apsw.Connection) -> None:
        """Lay aside what the log needs, or find the disk full."""
        self._found_bytes = self._growth(database)
        if not self._has_room(self._found_bytes):
            self.run_out(database, step_bytes=0)  # What opening has left of its room is enough for the beginning.

    def covers(self, log_bytes: int, database: apsw.Connection) -> bool:
        """Keep enough laid aside for a log that has grown; False if the disk is short and the log was moved instead."""
        needed = log_bytes + self._found_bytes
        if self.is_full or needed <= self._covered_bytes:
            return True
        wanted = needed + COVER_BYTES
        if self._reserve.free_bytes() - (wanted - self._covered_bytes) >= RESERVE_BYTES:
            if self._reserve.lay_aside(wanted):
                self._covered_bytes = wanted
            return True
        if self._growth(database) > self._reserve.free_bytes():
            self.run_out(database)
            return True
        return not self._move(database)

    def moved(self) -> None:
        """The whole log was moved into the database."""
        self._found_bytes = 0

    def run_out(self, database: apsw.Connection, step_bytes: int = STEP_BYTES) -> None:
        """The disk is full: give up what moving the log needs, and move it."""
        if not self.is_full:
            _log.critical("store.full", "store {store}: the disk is full; it takes no messages", store=self._number)
        self.is_full = True
        self._reserve.give_up(step_bytes, keep_bytes=START_BYTES)
        self._move(database)

    def _move(self, database: apsw.Connection, *, truncate: bool = False) -> bool:
        """Move the log, between two commits, and make its file empty if wanted; True if all of it was moved."""
        if not self.may_move(database):
            return False
        try:
            moved_all = sqlite.checkpoint(database, truncate)
        except (apsw.FullError, apsw.BusyError, apsw.LockedError):  # There is no room after all, or it is being moved.
            return False
        if moved_all:
            self.moved()
        return moved_all

    def may_move(self, database: apsw.Connection) -> bool:
        """Whether there is room for what moving the log adds to the database: moving half of it would use that up."""
        lacking = self._growth(database) - self._reserve.free_bytes()
        if lacking <= 0:
            return True
        if lacking > self._reserve.held_bytes - START_BYTES:
            return False
        self._reserve.give_up(lacking, keep_bytes=START_BYTES)
        return self._growth(database) <= self._reserve.free_bytes()

    def is_to_be_looked_for(self, now_ms: int) -> bool:
        """Whether it is time to look for room again."""
        if abs(now_ms - self._looked_ms) < LOOK_MS:
            return False
        self._looked_ms = now_ms
        return True

    def has_returned(self, database: apsw.Connection) -> bool:
        """Whether there is room again, on the disk and in the store's own files together."""
        lacking = ENOUGH_BYTES - self._own(database) - self._reserve.free_bytes()
        if 0 < lacking <= _size(f"{self._path}-wal"):  # It need not be so large.
            self._move(database, truncate=True)
            lacking = ENOUGH_BYTES - self._own(database) - self._reserve.free_bytes()
        if lacking > 0:
            return False
        # That a disk has room does not mean that this process may have it; only taking it shows.
        if not self._reserve.lay_aside(self._growth(database)) and self._own(database) < ENOUGH_BYTES:
            return False
        _log.warning("store.room", "store {store}: there is room again, it takes messages", store=self._number)
        self.is_full = False
        self._covered_bytes = COVER_BYTES
        return True

    def _own(self, database: apsw.Connection) -> int:
        """What the store has for messages: laid aside, or free in its file, which does not shrink."""
        inside_bytes: int = database.execute("PRAGMA freelist_count").get * sqlite.PAGE_BYTES
        return inside_bytes + self._reserve.held_bytes - self._growth(database)

    def _has_room(self, growth_bytes: int) -> bool:
        """Whether enough can be laid aside, and as much is left."""
        return self._reserve.lay_aside(growth_bytes) and self._reserve.free_bytes() >= RESERVE_BYTES

    def _growth(self, database: apsw.Connection) -> int:
        """By how much the database's file grows when the log is moved into it."""
        pages: int = database.execute("PRAGMA page_count").get
        size = _size(self._path)  # 0 if somebody has taken it away; what that means is found when it is written.
        return max(pages * sqlite.PAGE_BYTES - size, 0) if size else 0


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
