"""How far each store was, in the lock file of its directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.broker.marks import Marks

ID, OTHER = "0123456789abcdef" * 2, "f" * 32


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def test_what_was_noted_is_known_for_that_store_alone(file: int) -> None:
    marks = Marks(file)
    assert marks.read(3, ID) == 0
    marks.write(3, ID, 17)
    marks.write(3, ID, 18)
    marks.write(2, OTHER, 5)
    assert [Marks(file).read(index, ID) for index in range(5)] == [0, 0, 0, 18, 0]
    assert marks.read(3, OTHER) == 0
    marks.clear(3)
    assert (marks.read(3, ID), marks.read(2, OTHER)) == (0, 5)


def test_a_damaged_note_says_nothing(file: int) -> None:
    marks = Marks(file)
    marks.write(0, ID, 17)
    content = os.pread(file, 100, 0)
    for place in range(len(content)):
        os.pwrite(file, bytes([content[place] ^ 1]), place)
        assert marks.read(0, ID) == 0
        os.pwrite(file, content[place : place + 1], place)
    assert marks.read(0, ID) == 17


def test_nothing_is_written_into_a_file_that_was_released(file: int) -> None:
    marks = Marks(file)
    marks.close()
    marks.write(0, ID, 17)
    marks.clear(0)
    assert marks.read(0, ID) == 0
    assert os.pread(file, 100, 0) == b""
