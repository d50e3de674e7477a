"""A sender's log: read whole, also when a sender was killed over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.drill.history import SendLog
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.proof.sendlog import lines, read


def rows(*paths: Path) -> dict[str, dict[str, object]]:
    return {row["message_id"]: row for row in read(paths).table.to_pylist()}


def test_what_the_drill_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    with SendLog(path) as log:
        log.attempted("a", "orders", 1_800_000_000.5)
        log.failed("a", 1_800_000_001, "timed out")
        log.attempted("a", "orders", 1_800_000_002)
        log.acknowledged("a", 1_800_000_003, diverted=True)
        log.attempted("b", "carts", 1_800_000_004, tag="job-7")
    assert rows(path) == {
        "a": {
            "message_id": "a", "entity": "orders", "log": 0, "attempted_line": 0,
            "attempted_us": 1_800_000_000_500_000, "acknowledged_line": 3, "attempts": 2, "acknowledgements": 1,
            "diverted": True, "tag": None,
        },
        "b": {
            "message_id": "b", "entity": "carts", "log": 0, "attempted_line": 4,
            "attempted_us": 1_800_000_004_000_000, "acknowledged_line": None, "attempts": 1, "acknowledgements": 0,
            "diverted": False, "tag": "job-7",
        },
    }  # fmt: skip


def test_a_last_line_that_is_cut_off_is_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    path.write_text('{"attempted": "a", "at": 1}\n{"acknowledged": "a", "at"')
    assert read([path]).damaged == 1
    assert rows(path)["a"]["acknowledgements"] == 0


def test_a_sender_that_goes_on_behind_a_torn_line_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    path.write_text('{"attempted": "a", "en{"attempted": "b", "at": 1}\n{"acknowledged": "b", "at": 2}\n')
    assert read([path]).damaged == 1
    assert rows(path).keys() == {"b"}
    assert rows(path)["b"]["acknowledgements"] == 1


def test_a_clock_that_does_not_count_from_1970_gives_an_order_and_no_instants(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    path.write_text('{"attempted": "a", "at": 0.25}\n{"acknowledged": "a", "at": 0.5, "diverted": false}\n')
    assert rows(path)["a"]["attempted_us"] is None
    assert rows(path)["a"]["acknowledged_line"] == 1


def test_logs_are_kept_apart(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text('{"attempted": "a", "at": 1}\n{"acknowledged": "a", "at": 2}\n')
    found = read([tmp_path / "first", tmp_path / "second"]).table.to_pylist()
    assert [(row["message_id"], row["log"]) for row in found] == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("text", ["7", '"attempted"', '{"attempted": 7}', '{"other": "a"}', "{}", "null", "[]"])
def test_what_is_no_entry_is_damaged_and_stops_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sent.jsonl"
    path.write_text(f'{text}\n\n{{"attempted": "a", "at": 1}}\n')
    assert read([path]).damaged == 1
    assert rows(path).keys() == {"a"}


def test_only_lines_that_may_be_about_a_message_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    path.write_text('{"attempted": "a\\u00e9", "at": 1}\n{"attempted": "b", "at": 2}\n')
    found = [line.message_id for line in lines(path, "aé") if line is not None]
    assert found == ["aé"]


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nowhere\.jsonl"):
        read([tmp_path / "nowhere.jsonl"])
