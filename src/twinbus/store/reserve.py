"""Disk space laid aside beside a database: given up when the disk is full, so that what is in it can be had.

How much, when, and in which steps it is given up, is `store.room`'s decision, or that of the catalog.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from twinbus.model.errors import BusError, Fault

_OTHERWISE = (errno.ENOSPC, errno.EDQUOT, errno.ENOENT)  # Found out, and said, by whoever needs room or a directory.
RESERVE_BYTES = 8 * 1024 * 1024


class Reserve:
    """A file that holds nothing but room."""

    def __init__(self, path: str, size_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        self._size_bytes = size_bytes

    @property
    def held_bytes(self) -> int:
        """How much is laid aside."""
        try:
            return os.path.getsize(self._path)
        except OSError:
            return 0

    def check(self) -> None:
        """Raise why there can be no room laid aside, if it is not for lack of room."""
        try:
            with open(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as file:
                why = "" if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else "it is no file"
        except OSError as problem:
            why = "" if problem.errno in _OTHERWISE else os.strerror(problem.errno or 0)
        if why:
            raise BusError(
                Fault.STORE_UNAVAILABLE,
                f"Room for a full disk cannot be laid aside in {self._path}: {why}. Remove it, or give it to the user"
                " that the broker runs as",
                definite=True,
            )

    def free_bytes(self) -> int:
        """What the disk has beside it."""
        try:
            disk = os.statvfs(os.path.dirname(self._path) or ".")
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def lay_aside(self, more_bytes: int = 0) -> bool:
        """Hold this room and so much more, neither less nor more than that; False if the disk has not so much."""
        held, wanted = self.held_bytes, self._size_bytes + more_bytes
        if held >= wanted:
            self.give_up(keep_bytes=wanted)
            return True
        try:
            # Looked at first, so that nobody else finds the disk full meanwhile.
            if self.free_bytes() < wanted - held:
                return False
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, wanted)
            else:
                os.ftruncate(file, wanted)
        except OSError:
            self._shrink_to(held)
            return False
        finally:
            os.close(file)
        return True

    def give_up(self, size_bytes: int | None = None, *, keep_bytes: int = 0) -> None:
        """Let others have so much of the room, or all of it, but keep a rest."""
        held = self.held_bytes
        wanted = keep_bytes if size_bytes is None else max(held - size_bytes, keep_bytes)
        if wanted < held:
            self._shrink_to(wanted)

    def _shrink_to(self, size_bytes: int) -> None:
        with suppress(OSError):
            if size_bytes:
                os.truncate(self._path, size_bytes)
            else:
                os.unlink(self._path)
