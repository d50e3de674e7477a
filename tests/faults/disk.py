"""A broker on disks that can be made to fail: `python disk.py CONTROL STALL_S serve …` is `twinbus serve …`.

A file `CONTROL/store-1.db` with one of the words below makes that store's disk behave so, until it is removed. The
broker itself is as always; only SQLite's way to the disk is another.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import apsw

from twinbus.store.reserve import RESERVE_BYTES

BROKEN, FULL, HANGING = "broken", "full", "hanging"
RESERVE = ".reserve"


class Disk(apsw.VFS):
    """Passes everything on, unless the file's fault says otherwise."""

    def __init__(self, control: Path) -> None:
        self.control = control
        super().__init__("faulty", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return File(self, name, flags)

    def fault(self, store: str) -> str:
        try:
            return (self.control / store).read_text()
        except OSError:
            return ""


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        path = (name.filename() if isinstance(name, apsw.URIFilename) else name) or ""
        self._disk = disk
        self._store = os.path.basename(path).removesuffix("-wal")
        self._reserve = path.removesuffix("-wal") + RESERVE
        super().__init__("unix", name, flags)

    def _obey(self) -> str:
        fault = self._disk.fault(self._store)
        while fault == HANGING:
            time.sleep(0.005)
            fault = self._disk.fault(self._store)
        if fault == BROKEN:
            raise apsw.IOError("the disk is gone")
        return fault

    def _is_reserve_whole(self) -> bool:
        return os.path.exists(self._reserve) and os.path.getsize(self._reserve) >= RESERVE_BYTES

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        # What the store gives up first of all that it has laid aside is enough for these tests.
        if self._obey() == FULL and offset + len(data) > self.xFileSize() and self._is_reserve_whole():
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._obey()
        super().xSync(flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._obey()
        return super().xRead(amount, offset)


def main() -> None:
    control, stall_s = Path(sys.argv[1]), float(sys.argv[2])
    disk = Disk(control)
    assert disk.control == control
    from twinbus.broker import stores
    from twinbus.cli import main as run
    from twinbus.store.reserve import Reserve

    stores.STALL_S = stall_s
    lay_aside = Reserve.lay_aside
    Reserve.lay_aside = lambda self, more_bytes=0: (  # type: ignore[method-assign]
        disk.fault(os.path.basename(self._path).removesuffix(RESERVE)) != FULL and lay_aside(self, more_bytes)
    )
    sys.argv[1:3] = []
    run()


if __name__ == "__main__":
    main()
