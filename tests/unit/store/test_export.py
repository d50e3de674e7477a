"""Journal rows become a table with the promised columns; names, numbers and days are those that readers expect."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from twinbus.model.journal import COLUMNS, VERSION
from twinbus.model.message import Origin
from twinbus.store.commands import EntityName, Note
from twinbus.store.export import NOBODY, Place, day_of, part_of, path_of, schema, table_of
from twinbus.store.export_files import Found, superfluous
from twinbus.store.journal import JournalPage, JournalRow, read
from twinbus.store.range_commands import Range

PLACE = Place("contoso", 2, 7)
NOON = 1_763_294_400_000  # 2025-11-16 12:00 UTC
CLIENT = Origin("c1", "sender")
NAMES = {
    1: EntityName("orders", "queue"),
    2: EntityName("events", "topic", 3),
    3: EntityName("events/Subscriptions/audit", "subscription", 3),
}


def named(entity: int) -> EntityName:
    return NAMES.get(entity, NOBODY)


def columns(*messages: tuple[str, int, int, int]) -> tuple[list[str], list[int], list[int], list[int]]:
    ids, numbers, counts, sizes = zip(*messages, strict=True)
    return list(ids), list(numbers), list(counts), list(sizes)


def rows_of(*pages: JournalPage) -> list[JournalRow]:
    return [JournalRow(number, NOON + number, page.encode(NOON + number)) for number, page in enumerate(pages, 11)]


def everything() -> list[JournalRow]:
    """Rows with every form that a group can have."""
    first = JournalPage()
    first.add("send", 4, CLIENT, columns(("a", 1, 0, 7), ("b", 2, 0, 7), ("c", 3, 0, 9)), session="S")
    first.add("deadletter", 4, CLIENT, columns(("d", 9, 4, 7), ("e", 5, 1, 8)), "why")
    first.add("complete", 5, CLIENT, columns(("d", 9, 4, 7)))
    second = JournalPage()
    second.add("send", 4, CLIENT, (["x", "y"], [0, 0], [0], [1, 2]), "duplicate")
    second.copies([12, 13], CLIENT, (8, 40), (["p", "q"], [100, 7], [5, 6]), "T")
    second.note(Note("receive", 4, "empty", count=12, connection="c9", tracking_id="t"), CLIENT)
    second.note(Note("connect", 0), CLIENT)
    return rows_of(first, second)


def test_the_schema_is_the_contract_with_its_version():
    made = schema()
    assert made.names == [column.name for column in COLUMNS]
    assert made.metadata == {b"twinbus.journal.version": str(VERSION).encode()}
    assert made.field("at").type == pa.timestamp("us", tz="UTC")
    assert not any(field.nullable for field in made)


def test_the_table_has_what_reading_the_rows_gives():
    table = table_of(PLACE, everything(), named).to_pylist()
    entries = [entry for row in everything() for entry in read(row, PLACE.store)]
    assert len(table) == len(entries) == 14
    plain = ("operation", "queue", "message_id", "delivery_count", "bytes", "count", "connection", "client")
    for row, entry in zip(table, entries, strict=True):
        assert (row["namespace"], row["store"], row["writer"], row["batch"]) == ("contoso", 2, 7, entry.batch)
        assert row["at"].timestamp() == entry.at_ms / 1000
        assert [row[name] for name in (*plain, "tracking_id", "session_id")] == [
            getattr(entry, name) for name in (*plain, "tracking_id", "session_id")
        ]


def test_places_count_from_zero_in_each_transaction():
    table = table_of(PLACE, everything(), named)
    assert table["place"].to_pylist() == [*range(6), *range(8)]


def test_entities_have_names_kinds_and_sub_queues():
    table = table_of(PLACE, everything(), named).to_pylist()
    told = {(row["entity"], row["kind"], row["sub_queue"]) for row in table}
    assert told == {
        ("orders", "queue", ""),
        ("orders", "queue", "$DeadLetterQueue"),
        ("events/Subscriptions/audit", "subscription", ""),
        ("events/Subscriptions/audit", "subscription", "$DeadLetterQueue"),
        ("", "", ""),
    }


def test_numbers_of_a_fragment_are_as_receivers_see_them():
    mark = 3 << 48
    copies = [row for row in table_of(PLACE, everything(), named).to_pylist() if row["operation"] == "copy"]
    assert [row["sequence_number"] for row in copies] == [mark | 100, mark | 101, mark | 7, mark | 8]
    assert [row["outcome"] for row in copies] == [f"8/{mark | 40}", f"8/{mark | 41}"] * 2


def test_the_old_number_of_an_activated_message_names_its_fragment_too():
    page = JournalPage()
    page.add("activate", 8, CLIENT, columns(("a", 5, 0, 1)), "4")
    [row] = table_of(PLACE, rows_of(page), named).to_pylist()
    assert (row["sequence_number"], row["outcome"]) == (3 << 48 | 5, str(3 << 48 | 4))


def test_a_dropped_duplicate_has_no_number_even_in_a_fragment():
    page = JournalPage()
    page.add("send", 8, CLIENT, (["a", "b"], [0, 0], [0], [1, 1]), "duplicate")
    page.add("receive", 8, CLIENT, columns(("c", 9, 0, 1), ("d", 2, 0, 1)))
    numbers = table_of(PLACE, rows_of(page), named)["sequence_number"].to_pylist()
    assert numbers == [0, 0, 3 << 48 | 9, 3 << 48 | 2]


def test_no_rows_are_an_empty_table():
    assert table_of(PLACE, [], named).num_rows == 0


@pytest.mark.parametrize(
    ("at_ms", "day"),
    [(NOON, "2025-11-16"), (NOON + 43_199_999, "2025-11-16"), (NOON + 43_200_000, "2025-11-17"), (0, "1970-01-01")],
)
def test_days_are_in_utc(at_ms, day):
    assert day_of(at_ms) == day


def test_a_file_is_named_after_its_range_and_known_by_its_name():
    path = path_of("a-b", 3, Range(7, 12, 90, NOON, NOON + 5, 100))
    assert path == "day=2025-11-16/a-b-s3-w7-12-90.parquet"
    assert part_of("a-b", path.partition("/")[2]) == (3, 7, 12, 90)
    for name in ("a-b-s3-w7-12-90.parquet.tmp", ".a-b-s3-w7-12-90.parquet.tmp", "x-a-b-s3-w7-12-90.parquet"):
        assert part_of("a-b", name) is None
    assert part_of("a", "a-b-s3-w7-12-90.parquet") is None


def found(day: str, size: int) -> Found:
    return Found(Path(day), day, size)


@pytest.mark.parametrize(
    ("before_day", "keep_bytes", "gone"),
    [
        ("2025-01-01", 100, []),
        ("2025-01-03", 100, [0, 1]),
        ("2025-01-01", 25, [0]),
        ("2025-01-01", 0, [0, 1]),
        ("2026-01-01", 100, [0, 1]),
    ],
)
def test_the_oldest_files_go_by_age_and_size_and_the_newest_never(before_day, keep_bytes, gone):
    files = [found("2025-01-01", 10), found("2025-01-02", 10), found("2025-01-03", 10)]
    assert superfluous(files, before_day, keep_bytes) == [files[index] for index in gone]


def test_the_documents_have_every_column():
    page = (Path(__file__).parents[3] / "docs" / "journal.md").read_text()
    assert [(name, kind, meaning) for name, kind, meaning in re.findall(r"\| `(\w+)` \| (\w+) \| (.*) \|", page)][
        : len(COLUMNS)
    ] == [tuple(column) for column in COLUMNS]
    assert f"This is version {VERSION}." in page
