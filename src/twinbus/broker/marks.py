"""How far each store of a directory was: noted in the directory's lock file at each synced commit, and not waited for.

What the catalog notes of a store is up to five seconds old. So a copy that was made within these seconds, or a log that
has lost its last commits, would look right. A kill leaves what is noted here. A power cut may leave an older number,
never one that is too high: a commit is on the disk before it is noted.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from struct import Struct

_NOTE = Struct("<32sQ")
_CHECKSUM = Struct("<I")
_SLOT_BYTES = 64


class Marks:
    """The notes in an open file, one for each store."""

    def __init__(self, file: int) -> None:
        self._file = file

    def write(self, index: int, store: str, journal: int) -> None:
        """The store with this id has so many rows in its journal. If that cannot be noted, it is only known later."""
        note = _NOTE.pack(store.encode()[:32], journal)
        with suppress(OSError):
            os.pwrite(self._file, note + _CHECKSUM.pack(zlib.crc32(note)), index * _SLOT_BYTES)

    def read(self, index: int, store: str) -> int:
        """How far the store with this id was; 0 if nothing is known of it."""
        try:
            slot = os.pread(self._file, _NOTE.size + _CHECKSUM.size, index * _SLOT_BYTES)
        except OSError:
            return 0
        if len(slot) < _NOTE.size + _CHECKSUM.size:
            return 0
        note = slot[: _NOTE.size]
        noted, journal = _NOTE.unpack(note)
        if _CHECKSUM.pack(zlib.crc32(note)) != slot[_NOTE.size :] or noted.rstrip(b"\0") != store.encode()[:32]:
            return 0
        return int(journal)

    def clear(self, index: int) -> None:
        """Whatever lies in the store's place is right."""
        with suppress(OSError):
            os.pwrite(self._file, bytes(_SLOT_BYTES), index * _SLOT_BYTES)

    def close(self) -> None:
        """Touch the file no more: a disk that did not answer may answer when its number is another file's."""
        self._file = -1
