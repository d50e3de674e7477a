"""Directories of brokers as tests need them: copies of a prepared one, and a disk of four megabytes to be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


def copy_data(source: Path, target: Path) -> None:
    """A data directory without what its stores lay aside, 8 MiB each, which a start lays aside anew."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("store-*.reserve"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where it is mounted; a test is skipped where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr}")
    yield place
    subprocess.run(["umount", place], check=True)


def fill_up(disk: Path) -> Path:
    """Leave no room; the file that takes it."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return filler
