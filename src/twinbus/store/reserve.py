"""Disk space laid aside beside a database: given up when the disk is full, so that receiving and settling can go on.

When that is, and that no more messages are taken until the space could be laid aside again, is the store's decision.
"""

from __future__ import annotations

import os
from contextlib import suppress

RESERVE_BYTES = 8 * 1024 * 1024


class Reserve:
    """A file that holds nothing but room."""

    def __init__(self, path: str, size_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        self._size_bytes = size_bytes

    def lay_aside(self) -> bool:
        """Take the room, unless it is taken already; False if the disk has not so much to give."""
        with suppress(OSError):
            if os.path.getsize(self._path) >= self._size_bytes:
                return True
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, self._size_bytes)
            else:
                os.ftruncate(file, self._size_bytes)
        except OSError:
            self.give_up()
            return False
        finally:
            os.close(file)
        return True

    def give_up(self) -> None:
        """Let others have the room."""
        with suppress(OSError):
            os.unlink(self._path)
