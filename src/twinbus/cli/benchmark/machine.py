"""What the figures were measured on: processors, versions, and how fast the disk really syncs.

Nothing here is about messages.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import apsw

SYNCS = 300
SYNC_S = 2.0
BLOCK = b"x" * 1024


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a benchmark ran."""

    cores: int
    system: str
    python: str
    sqlite: str
    file_system: str
    syncs_per_s: int
    load_before: float


def look_at(directory: Path) -> Machine:
    """The machine, and the disk that holds a directory."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=apsw.sqlite_lib_version(),
        file_system=file_system_of(directory.resolve()),
        syncs_per_s=sync_rate(directory),
        load_before=round(os.getloadavg()[0], 2),
    )


def sync_rate(directory: Path) -> int:
    """How often in a second 1 KiB can be appended to a file and synced, as a commit has to."""
    path = directory / "sync.probe"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        count, started = 0, time.perf_counter()
        while count < SYNCS and time.perf_counter() - started < SYNC_S:
            os.write(descriptor, BLOCK)
            os.fdatasync(descriptor)
            count += 1
        return round(count / (time.perf_counter() - started))
    finally:
        os.close(descriptor)
        path.unlink()


def file_system_of(directory: Path) -> str:
    """The type of the file system that a directory is on, by the longest mount point above it."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    for mount in mounts:
        point, found = mount.split()[1:3]
        if directory.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
