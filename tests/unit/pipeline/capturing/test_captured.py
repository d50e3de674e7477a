"""What a capture remembers of the entities that it looks at, and when it looks again."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.pipeline.capturing.captured import Captured, Numbers, repeated, seen


def write(directory: Path, name: str, *numbers: int, entity: str = "orders") -> None:
    folder = directory / "day=2026-11-16"
    folder.mkdir(parents=True, exist_ok=True)
    rows = {"namespace": ["contoso"] * len(numbers), "entity": [entity] * len(numbers), "sequenceNumber": [*numbers]}
    pq.write_table(pa.table(rows), folder / f"{name}.parquet")


def test_the_last_number_of_each_fragment_is_remembered(tmp_path: Path) -> None:
    far = 3 << 48
    write(tmp_path, "a", 1, 7, far + 2)
    write(tmp_path, "b", 5, entity="invoices")
    assert seen(tmp_path, {}, by_number=False) == {
        "contoso/orders": {"last": {"0": 7, "3": far + 2}, "each": []},
        "contoso/invoices": {"last": {"0": 5}, "each": []},
    }


def test_what_was_known_before_stays_known(tmp_path: Path) -> None:
    known: Numbers = {"contoso/orders": {"last": {"0": 9}, "each": []}, "contoso/other": {"last": {"0": 1}, "each": []}}
    write(tmp_path, "a", 4)
    assert seen(tmp_path, known, by_number=False) == known


def test_each_number_is_remembered_where_they_come_in_any_order(tmp_path: Path) -> None:
    known: Numbers = {"contoso/orders": {"last": {}, "each": [9]}}
    write(tmp_path, "a", 4)
    assert seen(tmp_path, known, by_number=True) == {"contoso/orders": {"last": {}, "each": [9, 4]}}
    assert known["contoso/orders"]["each"] == [9]


def test_a_look_is_repeated_until_it_is_told_to_end() -> None:
    until, looks = threading.Event(), Captured()

    def look() -> None:
        looks.count(Captured(batches=1, rows=5))
        if looks.batches == 3:
            until.set()

    repeated(look, 0.0, until)
    assert (looks.batches, looks.rows) == (3, 15)
    repeated(look, None, until)
    assert looks.batches == 4
