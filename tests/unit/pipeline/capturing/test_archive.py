"""An archive loses nothing and has nothing twice, wherever its writer is killed; readers see whole files only."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinbus.pipeline.capturing import archive as module
from twinbus.pipeline.capturing import compaction
from twinbus.pipeline.capturing.archive import Archive, Batch
from twinbus.pipeline.errors import PipelineError

DAYS = ("2026-11-15", "2026-11-16")


class KilledError(BaseException):
    """The process is gone at this point."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it wrote; the disk is waited for in vain here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def writer(first: int, count: int = 4, tasks: int = 2) -> Callable[[Path], dict[str, Any]]:
    """Writes rows by day, a file for each task, as Spark does: the first half is of the first day."""

    def write(directory: Path) -> dict[str, Any]:
        for task in range(tasks):
            for day in range(2):
                rows = [first + n for n in range(count) if n % 2 == day and n // 2 % tasks == task]
                if rows:
                    folder = directory / f"day={DAYS[day]}"
                    folder.mkdir(exist_ok=True)
                    # The names of Spark's files differ in the middle only.
                    name = f"part-{task:05}-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee.c000.zstd.parquet"
                    pq.write_table(pa.table({"n": rows}), folder / name)
        (directory / "_SUCCESS").touch()
        return {"until": first + count}

    return write


def rows(root: Path) -> list[int]:
    """What a reader finds who goes by names alone, as readers of Parquet do."""
    found: list[int] = []
    for path in root.glob("day=*/*.parquet"):
        if not path.name.startswith(("_", ".")):
            found += pq.read_table(path, partitioning=None)["n"].to_pylist()
    return sorted(found)


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, kind: str | None = None) -> Iterator[list[str]]:
    """Just before the n-th act on the file system, of a kind or of any, the process is gone; what was done stays."""
    acts: list[str] = []

    def before(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any, **kwargs: Any) -> Any:
            if kind in (None, name) and (acts.count(name) if kind else len(acts)) == step:
                raise KilledError(name)
            acts.append(name)
            return act(*args, **kwargs)

        return acting

    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "mkdir", "write_text"):
            patched.setattr(Path, name, before(name, getattr(Path, name)))
        patched.setattr(shutil, "rmtree", before("rmtree", shutil.rmtree))
        patched.setattr(module, "sync", before("sync", module.sync))
        patched.setattr(compaction, "exchange", before("exchange", compaction.exchange))
        patched.setattr(os, "link", before("link", os.link))
        yield acts


def test_rows_are_where_their_day_is(tmp_path: Path) -> None:
    with Archive(tmp_path).open() as archive:
        published = archive.publish(Batch("q", 0), writer(0))
        assert not published.again
        assert len(published.files) == 4
        assert {day: len(files) for day, files in archive.days().items()} == dict.fromkeys(DAYS, 2)
        assert (archive.last("q"), archive.last("other")) == (0, None)
        assert archive.notes("q") == {"until": 4}
    assert rows(tmp_path) == [0, 1, 2, 3]
    assert not list(tmp_path.glob("day=*/_*"))


def test_a_batch_that_comes_again_is_left_alone(tmp_path: Path) -> None:
    with Archive(tmp_path).open() as archive:
        for number in (0, 1):
            archive.publish(Batch("q", number), writer(4 * number))
        for number in (0, 1):
            assert archive.publish(Batch("q", number), writer(100)).again
    assert rows(tmp_path) == list(range(8))


def test_sources_count_for_themselves(tmp_path: Path) -> None:
    with Archive(tmp_path).open() as archive:
        archive.publish(Batch("a", 7), writer(0))
        assert not archive.publish(Batch("b", 0), writer(4)).again
    assert rows(tmp_path) == list(range(8))


def test_an_empty_batch_is_remembered(tmp_path: Path) -> None:
    with Archive(tmp_path).open() as archive:
        assert archive.publish(Batch("q", 0), lambda directory: None).files == []
        assert archive.last("q") == 0


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    with (
        Archive(tmp_path).open(),
        pytest.raises(PipelineError, match="Another process writes"),
        Archive(tmp_path).open(),
    ):
        pass


def test_a_writer_that_fails_leaves_nothing_to_see(tmp_path: Path) -> None:
    def fails(directory: Path) -> None:
        writer(0)(directory)
        raise ValueError("no")

    with Archive(tmp_path).open() as archive:
        with pytest.raises(ValueError, match="no"):
            archive.publish(Batch("q", 0), fails)
        assert rows(tmp_path) == []
        archive.publish(Batch("q", 0), writer(0))
    assert rows(tmp_path) == [0, 1, 2, 3]


def test_killed_anywhere_nothing_is_missing_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs the batch again, perhaps with other tasks; then it goes on."""
    step, over = 0, False
    while not over:
        root = tmp_path / str(step)
        with Archive(root).open() as archive:
            archive.publish(Batch("q", 0), writer(0))
        with killed_at(step, monkeypatch):
            try:
                with Archive(root).open() as archive:
                    archive.publish(Batch("q", 1), writer(4))
                over = True
            except KilledError:
                pass
        seen = rows(root)
        assert set(seen) >= {0, 1, 2, 3}
        assert len(seen) == len({*seen})
        with Archive(root).open() as archive:
            archive.publish(Batch("q", 1), writer(4, tasks=1))
            archive.publish(Batch("q", 2), writer(8))
        assert rows(root) == list(range(12)), f"killed before act {step}"
        step += 1
    assert step > 15


def test_killed_while_recovering_nothing_is_missing_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, over = 0, False
    while not over:
        root = tmp_path / str(step)
        with (
            killed_at(3, monkeypatch, "rename"),
            pytest.raises(KilledError),
            Archive(root).open() as archive,
        ):
            archive.publish(Batch("q", 0), writer(0))
        assert len(rows(root)) == 2  # It was complete, and two of its files were moved.
        with killed_at(step, monkeypatch):
            try:
                with Archive(root).open():
                    over = True
            except KilledError:
                pass
        with Archive(root).open() as archive:
            archive.publish(Batch("q", 0), writer(0, tasks=1))
        assert rows(root) == [0, 1, 2, 3], f"killed before act {step} of the recovery"
        step += 1
    assert step > 3


# Compaction


def filled(root: Path, batches: int = 3) -> list[int]:
    with Archive(root).open() as archive:
        for number in range(batches):
            archive.publish(Batch("q", number), writer(4 * number))
    return list(range(4 * batches))


def test_small_files_of_a_day_become_one(tmp_path: Path) -> None:
    expected = filled(tmp_path)
    with Archive(tmp_path).open() as archive:
        done = compaction.compact(archive)
        assert [(each.day, each.files_before, each.files_after, each.rows) for each in done] == [
            (day, 6, 1, 6) for day in DAYS
        ]
        assert compaction.compact(archive) == []
    assert rows(tmp_path) == expected


def test_what_a_day_was_before_is_removed_when_nobody_can_be_listing_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with Archive(tmp_path).open() as archive:
        compaction.compact(archive)
    beside = tmp_path / module.COMPACTING
    with Archive(tmp_path).open():
        assert len(list(beside.iterdir())) == 2
    monkeypatch.setattr(module, "GRACE_S", -1.0)
    with Archive(tmp_path).open():
        assert list(beside.iterdir()) == []


def test_large_files_and_days_with_few_stay_as_they_are(tmp_path: Path) -> None:
    filled(tmp_path)
    with Archive(tmp_path).open() as archive:
        before = archive.days()
        assert compaction.compact(archive, fewest=7) == []
        assert compaction.compact(archive, small=1) == []
        assert archive.days() == before


def test_a_batch_that_was_joined_is_not_written_again(tmp_path: Path) -> None:
    expected = filled(tmp_path)
    with Archive(tmp_path).open() as archive:
        compaction.compact(archive)
        assert archive.publish(Batch("q", 2), writer(8)).again
    assert rows(tmp_path) == expected


def test_killed_while_joining_a_reader_sees_the_day_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, over = 0, False
    while not over:
        root = tmp_path / str(step)
        expected = filled(root)
        with killed_at(step, monkeypatch):
            try:
                with Archive(root).open() as archive:
                    compaction.compact(archive)
                over = True
            except KilledError:
                pass
        assert rows(root) == expected, f"killed before act {step}"
        with Archive(root).open() as archive:
            compaction.compact(archive)
            assert [len(files) for files in archive.days().values()] == [1, 1]
        assert rows(root) == expected
        step += 1
    assert step > 10


def test_files_with_more_columns_keep_them(tmp_path: Path) -> None:
    def wider(directory: Path) -> None:
        folder = directory / f"day={DAYS[0]}"
        folder.mkdir()
        pq.write_table(pa.table({"n": [99], "more": ["x"]}), folder / "wide.parquet")

    filled(tmp_path)
    with Archive(tmp_path).open() as archive:
        archive.publish(Batch("q", 3), wider)
        compaction.compact(archive)
        (file,) = archive.days()[DAYS[0]]
    table = pq.read_table(file, partitioning=None)
    assert [row for row in table.to_pylist() if row["more"] is not None] == [{"n": 99, "more": "x"}]


def test_files_are_joined_up_to_a_size(tmp_path: Path) -> None:
    sizes = {tmp_path / name: size for name, size in zip("abcde", (40, 40, 40, 90, 10), strict=True)}
    assert compaction.plan(sizes, small=80, large=90) == [
        [tmp_path / "a", tmp_path / "b"],
        [tmp_path / "c", tmp_path / "e"],
    ]


def test_where_directories_cannot_be_exchanged_nothing_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = filled(tmp_path)
    monkeypatch.setattr(compaction.sys, "platform", "other")
    with Archive(tmp_path).open() as archive, pytest.raises(PipelineError, match="on Linux only"):
        compaction.compact(archive)
    assert rows(tmp_path) == expected


def test_whoever_reads_meanwhile_sees_all_rows_or_a_file_that_is_gone(tmp_path: Path) -> None:
    expected = filled(tmp_path, 6)
    over, looks = threading.Event(), []

    def read() -> None:
        while not over.is_set():
            try:
                looks.append(rows(tmp_path))
            except FileNotFoundError:
                looks.append([])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with Archive(tmp_path).open() as archive:
            for number in range(6, 18):
                archive.publish(Batch("q", number), lambda directory: None)
                compaction.compact(archive, fewest=2)
                for day in archive.days():  # Cut it up again, in the same way: by one exchange.
                    _cut(tmp_path, day)
    finally:
        over.set()
        reader.join()
    whole = [found for found in looks if found]
    assert whole
    assert all(found == expected for found in whole)


def _cut(root: Path, day: str) -> None:
    fresh = root / module.COMPACTING / uuid4().hex
    fresh.mkdir(parents=True)
    for path in (root / f"day={day}").glob("*.parquet"):
        for number, value in enumerate(pq.ParquetFile(path).read()["n"].to_pylist()):
            pq.write_table(pa.table({"n": [value]}), fresh / f"{path.stem}-{number}.parquet")
    compaction.exchange(fresh, root / f"day={day}")
