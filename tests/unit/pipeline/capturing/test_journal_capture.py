"""Exported files of the journal are kept, each once; what is missing is told before anything is added."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinbus.model.journal import VERSION, VERSION_KEY
from twinbus.pipeline.capturing import compaction
from twinbus.pipeline.capturing.archive import Archive
from twinbus.pipeline.capturing.journal_capture import Exported, Gap, capture, exported, plan
from twinbus.pipeline.errors import PipelineError

SCHEMA = pa.schema([pa.field("batch", pa.int64(), nullable=False)], metadata={VERSION_KEY: str(VERSION)})


def export(root: Path, first: int, last: int, stream: str = "contoso-s0-w0", day: str = "2026-11-16") -> None:
    """As a broker does it."""
    folder = root / f"day={day}"
    folder.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"batch": list(range(first, last + 1))}, schema=SCHEMA)
    pq.write_table(rows, folder / f"{stream}-{first}-{last}.parquet")


def captured(root: Path) -> list[int]:
    return sorted(n for path in root.glob("day=*/*.parquet") for n in pq.ParquetFile(path).read()["batch"].to_pylist())


def file(first: int, last: int, stream: str = "a-s0-w0") -> Exported:
    return Exported(stream, first, last, Path(f"{stream}-{first}-{last}.parquet"))


def test_what_is_new_is_captured_in_order() -> None:
    assert plan([file(5, 9), file(1, 4), file(10, 12)], {"a-s0-w0": 4}).files == [file(5, 9), file(10, 12)]


def test_a_stream_begins_where_its_first_file_does_and_then_has_no_gaps() -> None:
    assert plan([file(7, 9)], {}).gaps == []
    assert plan([file(7, 9), file(12, 13)], {"a-s0-w0": 4}).gaps == [Gap("a-s0-w0", 5, 6), Gap("a-s0-w0", 10, 11)]


def test_ranges_that_overlap_are_refused() -> None:
    with pytest.raises(PipelineError, match="that an earlier file has, too"):
        plan([file(1, 5), file(4, 8)], {})


def test_a_batch_has_so_many_files() -> None:
    assert len(plan([file(n, n) for n in range(1, 9)], {}, at_once=3).files) == 3


def test_two_brokers_into_one_archive(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    export(one, 1, 3)
    export(two, 1, 2, "fabrikam-s0-w0", "2026-11-15")
    with Archive(tmp_path / "out").open() as archive:
        published, _ = capture(archive, [one, two])
        assert len(published.files) == 2
        export(one, 4, 4)
        assert len(capture(archive, [one, two])[0].files) == 1
        assert capture(archive, [one, two])[0].files == []
    assert captured(tmp_path / "out") == [1, 1, 2, 2, 3, 4]


def test_unfinished_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    export(tmp_path / "one", 1, 3)
    (tmp_path / "one" / "day=2026-11-16" / ".contoso-s0-w0-4-5.parquet.tmp").touch()
    (tmp_path / "one" / "day=2026-11-16" / "readme.parquet").touch()
    assert [each.last for each in exported([tmp_path / "one"])] == [3]


def test_a_gap_stops_the_capture_until_it_is_allowed(tmp_path: Path) -> None:
    export(tmp_path / "one", 1, 3)
    with Archive(tmp_path / "out").open() as archive:
        capture(archive, [tmp_path / "one"])
        export(tmp_path / "one", 6, 7)
        with pytest.raises(PipelineError, match=r"contoso-s0-w0: 4 to 5.*--allow-gaps"):
            capture(archive, [tmp_path / "one"])
        assert captured(tmp_path / "out") == [1, 2, 3]
        assert capture(archive, [tmp_path / "one"], allow_gaps=True)[1] == [Gap("contoso-s0-w0", 4, 5)]
    assert captured(tmp_path / "out") == [1, 2, 3, 6, 7]


def test_joined_files_are_still_files_of_the_journal(tmp_path: Path) -> None:
    for n in range(1, 9):
        export(tmp_path / "one", n, n)
    with Archive(tmp_path / "out").open() as archive:
        capture(archive, [tmp_path / "one"])
        compaction.compact(archive)
        ((joined,),) = archive.days().values()
        assert capture(archive, [tmp_path / "one"])[0].files == []
    found = pq.read_schema(joined)
    assert found.metadata[VERSION_KEY.encode()] == str(VERSION).encode()
    assert not found.field("batch").nullable
    assert captured(tmp_path / "out") == list(range(1, 9))


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="There is no directory"):
        exported([tmp_path / "nowhere"])
