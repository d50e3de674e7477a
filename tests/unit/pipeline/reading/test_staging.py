"""Segments on disk: whole or not there, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading.staging import Key, Staged, Staging, by_session, ranges, read_range

MESSAGES = [Staged("orders", number, None, 1_000 + number, bytes([number])) for number in range(1, 6)]


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    found = Staging(tmp_path / "staging")
    found.open("contoso")
    return found


def test_a_segment_is_read_as_it_was_written(staging: Staging) -> None:
    staging.write(7, MESSAGES)
    assert staging.numbers() == [7]
    assert staging.keys(7) == [Key("orders", number) for number in range(1, 6)]
    assert list(read_range(staging.path(7), 0, 5)) == MESSAGES
    assert list(read_range(staging.path(7), 2, 2)) == MESSAGES[2:4]
    staging.remove(7)
    staging.remove(7)
    assert staging.numbers() == []


def test_what_spark_is_done_with_is_remembered_and_never_goes_back(tmp_path: Path, staging: Staging) -> None:
    assert staging.finished == 0
    staging.finish(5)
    staging.finish(3)
    assert Staging(tmp_path / "staging").finished == 5


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path, staging: Staging) -> None:
    namespace = tmp_path / "staging" / "segment-000000000001.arrow.new"
    namespace.write_bytes(b"half")
    assert staging.numbers() == []
    staging.close()
    staging.open("contoso")
    assert not namespace.exists()


def test_two_queries_cannot_share_a_directory(tmp_path: Path, staging: Staging) -> None:
    with pytest.raises(PipelineError, match="used by another query"):
        Staging(tmp_path / "staging").open("contoso", wait_s=0.0)
    staging.close()
    Staging(tmp_path / "staging").open("contoso", wait_s=0.0)


def test_a_directory_belongs_to_one_namespace(tmp_path: Path, staging: Staging) -> None:
    staging.close()
    with pytest.raises(PipelineError, match="belongs to namespace 'contoso'"):
        Staging(tmp_path / "staging").open("fabrikam")


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(PipelineError, match="cannot be used"):
        Staging(tmp_path / "x").open("contoso")


def test_sessions_stay_together_in_their_order() -> None:
    mixed = [Staged("q", n, session, 0, b"") for n, session in enumerate(["b", "a", None, "b", "a"])]
    assert [(each.session_id, each.number) for each in by_session(mixed)] == [
        (None, 2), ("a", 1), ("a", 4), ("b", 0), ("b", 3),
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=30).map(lambda names: sorted(names, key=str)),
    st.integers(1, 8),
)
def test_ranges_hold_every_row_once_and_cut_no_session(sessions: list[str | None], parts: int) -> None:
    cut = ranges(sessions, parts)
    rows = [row for first, count in cut for row in range(first, first + count)]
    assert rows == list(range(len(sessions)))
    for first, _ in cut[1:]:
        assert sessions[first] is None or sessions[first] != sessions[first - 1]
