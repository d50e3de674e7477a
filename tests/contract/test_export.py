"""Ranges of the journal become files: each row in one of them, whatever happens in between; then the store lets go."""

from __future__ import annotations

from contextlib import closing

import duckdb
import pyarrow.dataset as ds
import pytest

from contract.conftest import QUEUE, REMOVE, Bus, ids, transfer
from support import journals
from support.broker import wait_for
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, Outcome
from twinbus.store import ranges, sweeping
from twinbus.store.commands import (
    CancelScheduled,
    Copy,
    Create,
    DeleteBatch,
    Drop,
    EntityName,
    Introduce,
    Note,
    Ping,
    QueueSettings,
    Record,
    Send,
)
from twinbus.store.export import Limits, Place, path_of
from twinbus.store.export_files import IncompleteRangeError, Names, write
from twinbus.store.range_commands import CloseRange, FinishRange, Trim

ALL = Limits(rows=1_000, bytes=1 << 30)
DAY_MS = 24 * 3600 * 1000
NAME = EntityName("orders", "queue")


class Export:
    """What the broker does with a store's journal, step by step."""

    def __init__(self, bus: Bus, directory) -> None:
        self.bus = bus
        self.directory = directory

    def streams(self):
        with closing(self.bus.factory.source()) as source:
            return source.streams()

    def next_range(self, limits=ALL, place=-1):
        with closing(self.bus.factory.source()) as source:
            return source.next_range(source.streams()[place], limits)

    def write(self, part):
        with closing(self.bus.factory.source()) as source:
            write(self.directory, Place("contoso", 0, part.writer), part, source, Names(), lambda: None)

    def run(self, limits=ALL):
        """Export everything; the ranges that were written."""
        done = []
        for place, stream in enumerate(self.streams()):
            if stream.open is not None:
                self.write(stream.open)
                self.bus.do(FinishRange(queue=0, range=stream.open))
                done.append(stream.open)
            while (part := self.next_range(limits, place)) is not None:
                self.bus.do(CloseRange(queue=0, range=part))
                self.write(part)
                self.bus.do(FinishRange(queue=0, range=part))
                done.append(part)
        return done

    def rows(self):
        return journals.exported(self.directory)

    def trim(self, before_ms=0, keep_bytes=1 << 30):
        while self.bus.do(Trim(queue=0, before_ms=before_ms, keep_bytes=keep_bytes)):
            pass


@pytest.fixture
def named(empty):
    """A store with a queue that has a name."""
    empty.do(Create(queue=QUEUE, settings=QueueSettings(), name=NAME))
    return empty


@pytest.fixture
def export(named, tmp_path):
    return Export(named, tmp_path / "journal")


def names_in(bus):
    with closing(bus.factory.source()) as source:
        return source.names(range(1, 100))


def told(rows):
    return [(row["operation"], row["message_id"], row["sequence_number"]) for row in rows]


class TestFiles:
    def test_they_have_what_the_journal_has(self, named, export):
        named.send("a", "b")
        named.complete(*named.receive(1))
        export.run()
        entries = [(e.operation, e.message_id, e.sequence_number) for e in named.journal()]
        assert told(export.rows()) == entries
        assert {(row["entity"], row["kind"], row["queue"]) for row in export.rows()} == {("orders", "queue", QUEUE)}

    def test_each_range_begins_where_the_last_one_ended(self, named, export):
        for message_id in "abcde":
            named.send(message_id)
        assert [(part.first, part.last) for part in export.run(Limits(2, 1 << 30))] == [(1, 2), (3, 4), (5, 5)]
        named.send("f")
        assert [(part.first, part.last) for part in export.run()] == [(6, 6)]
        assert [row["message_id"] for row in export.rows()] == list("abcdef")
        assert export.run() == []

    def test_a_range_holds_so_many_bytes_or_one_transaction(self, named, export):
        for message_id in ("a", "b" * 300, "c"):
            named.send(message_id)
        parts = export.run(Limits(1_000, 150))
        assert [(part.first, part.last) for part in parts] == [(1, 1), (2, 2), (3, 3)]
        assert sum(part.bytes for part in parts) == sum(len(row.ops) for row in named.factory.journal(named.store))

    def test_a_range_is_of_one_day(self, named, export):
        named.now = 20 * DAY_MS - 1
        named.send("a")
        named.send("b")
        named.now += 1
        named.send("c")
        named.now += 2 * DAY_MS
        named.send("d")
        named.now -= DAY_MS  # A clock that was set back.
        named.send("e")
        parts = export.run()
        assert [(part.first, part.last) for part in parts] == [(1, 2), (3, 3), (4, 4), (5, 5)]
        days = sorted(path.parent.name for path in export.directory.glob("day=*/*.parquet"))
        assert days == ["day=1970-01-20", "day=1970-01-21", "day=1970-01-22", "day=1970-01-23"]
        assert {row["at"].strftime("%d") for row in export.rows()} == {"20", "21", "22", "23"}

    def test_what_is_longer_than_one_read_is_whole(self, named, export, monkeypatch):
        monkeypatch.setattr("twinbus.store.export_files.CHUNK_BYTES", 200)
        for number in range(20):
            named.send(f"m{number}")
        export.run()
        assert [row["message_id"] for row in export.rows()] == [f"m{number}" for number in range(20)]

    def test_other_readers_see_the_same(self, named, export):
        named.send("a", "b")
        named.complete(*named.receive(1))
        export.run()
        dataset = ds.dataset(export.directory, partitioning="hive").to_table()
        assert dataset.group_by("operation").aggregate([("count", "sum")]).to_pydict() == {
            "operation": ["send", "receive", "complete"],
            "count_sum": [2, 1, 1],
        }
        counted = duckdb.sql(
            f"SELECT entity, operation, sum(count)::int FROM read_parquet('{export.directory}/day=*/*.parquet',"
            " hive_partitioning = true) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert counted == [("orders", "complete", 1), ("orders", "receive", 1), ("orders", "send", 2)]

    def test_any_text_can_be_an_id(self, named, export):
        odd = ["\x00", "\ue000", "é\u2028", "\U0001f600", "'\"\\"]
        named.send(*odd)
        export.run()
        assert [row["message_id"] for row in export.rows()] == odd


class TestCrashes:
    def test_an_unfinished_range_is_written_again_with_the_same_name_and_content(self, named, export):
        named.send("a")
        named.send("b")
        part = export.next_range()
        named.do(CloseRange(queue=0, range=part))
        export.write(part)
        before = export.rows()
        files = list(export.directory.glob("day=*/*"))
        named.crash()
        named.send("c")  # Whatever comes later is in another file.
        assert part in export.run()
        assert set(files) < set(export.directory.glob("day=*/*"))
        assert export.rows()[: len(before)] == before
        assert sorted(row["message_id"] for row in export.rows() if row["operation"] == "send") == ["a", "b", "c"]

    def test_a_closed_range_survives_the_process(self, named, export):
        named.send("a")
        part = export.next_range()
        named.do(CloseRange(queue=0, range=part))
        named.crash()
        assert export.streams()[0].open == part

    def test_an_unfinished_file_is_no_file(self, named, export, monkeypatch):
        named.send("a")
        part = export.next_range()
        monkeypatch.setattr("twinbus.store.export_files.table_of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export.write(part)
        assert list(export.directory.glob("day=*/*")) == []
        assert list(export.directory.glob("day=*/.*")) == []

    def test_a_full_disk_leaves_no_file_and_the_next_attempt_is_whole(self, named, export):
        named.send("a")
        part = export.next_range()
        named.do(CloseRange(queue=0, range=part))
        target = export.directory / path_of("contoso", 0, part)
        target.parent.mkdir(parents=True)
        target.with_name(f".{target.name}.tmp").symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left"):
            export.write(part)
        assert list(target.parent.iterdir()) == []
        assert export.run() == [part]
        assert [row["message_id"] for row in export.rows()] == ["a"]

    def test_rows_that_are_not_there_any_more_are_not_passed_over(self, named, export):
        for message_id in "abc":
            named.send(message_id)
        part = export.next_range()
        export.run()
        named.now += DAY_MS
        export.trim(before_ms=named.now)
        with pytest.raises(IncompleteRangeError):
            export.write(part)
        assert len(export.rows()) == 3


class TestOneExporter:
    def test_a_range_is_closed_once(self, named, export):
        named.send("a")
        part = export.next_range()
        named.do(CloseRange(queue=0, range=part))
        named.send("b")
        for again in (part, part._replace(last=2), part._replace(first=2, last=2)):
            with pytest.raises(BusError) as refused:
                named.do(CloseRange(queue=0, range=again))
            assert refused.value.fault is Fault.NOT_ALLOWED

    def test_what_is_in_a_file_is_in_no_other_range(self, named, export):
        for message_id in "abc":
            named.send(message_id)
        late = export.next_range(Limits(2, 1 << 30))
        export.run()
        for again in (late, late._replace(first=2, last=5), late._replace(first=3, last=3)):
            with pytest.raises(BusError):
                named.do(CloseRange(queue=0, range=again))

    def test_a_refused_range_disturbs_nobody(self, named, export):
        named.send("a")
        [message] = named.receive()
        part = export.next_range()
        named.do(CloseRange(queue=0, range=part))
        named.commit(CloseRange(queue=0, range=part), Send(queue=QUEUE, units=[[Incoming(b"x", "b")]]))
        named.complete(message)  # The lock was not lost.
        assert ids(named.peek()) == ["b"]

    def test_while_one_exports_a_store_others_do_not(self, named):
        if named.factory.has_one_journal:
            pytest.skip("its process has the file to itself")
        first, second = named.factory.source(), named.factory.source()
        assert (first.hold(), second.hold(), first.hold()) == (True, False, True)
        first.close()
        wait_for(second.hold, "the server to notice")
        second.close()


class TestTrimming:
    def test_what_is_in_files_goes_by_age_and_the_newest_row_stays(self, named, export):
        for message_id in "abc":
            named.send(message_id)
        export.run(Limits(2, 1 << 30))
        named.now += 1_000
        named.send("d")
        export.trim(before_ms=named.now - 500)
        assert [row.id for row in named.factory.journal(named.store)] == [4]
        named.send("e")
        export.run()
        assert [row["message_id"] for row in export.rows()] == list("abcde")

    def test_what_is_young_and_little_stays(self, named, export):
        named.send("a")
        export.run()
        export.trim(before_ms=named.now)
        assert len(named.factory.journal(named.store)) == 1

    def test_more_than_is_to_be_kept_goes_from_the_oldest_on(self, named, export):
        for message_id in "abcd":
            named.send(message_id)
            export.run()
            named.now += 1
        size = len(named.factory.journal(named.store)[0].ops)
        export.trim(keep_bytes=2 * size)
        assert [row.id for row in named.factory.journal(named.store)] == [3, 4]

    def test_what_is_not_in_a_file_is_never_trimmed(self, named, export):
        named.send("a")
        named.send("b")
        export.run(Limits(1, 1 << 30))
        named.send("c")
        part = export.next_range()
        named.do(CloseRange(queue=0, range=part))
        named.now += 100 * DAY_MS
        export.trim(before_ms=named.now, keep_bytes=0)
        assert [row.id for row in named.factory.journal(named.store)] == [3]

    def test_a_long_range_goes_in_chunks(self, named, export, monkeypatch):
        monkeypatch.setattr(ranges, "CHUNK", 2)
        for number in range(7):
            named.send(f"m{number}")
        export.run()
        command = Trim(queue=0, before_ms=named.now + 1, keep_bytes=0)
        assert named.do(command)
        assert [row.id for row in named.factory.journal(named.store)] == [3, 4, 5, 6, 7]
        export.trim(before_ms=named.now + 1)
        assert [row.id for row in named.factory.journal(named.store)] == [7]
        assert [(stream.exported, stream.waiting_rows) for stream in export.streams()] == [(7, 0)]

    def test_numbers_go_on_behind_what_was_trimmed_and_after_a_restart(self, named, export):
        if not named.factory.has_one_journal:
            pytest.skip("a gateway has a new stream after a restart")
        named.send("a")
        named.send("b")
        export.run()
        export.trim(before_ms=named.now + 1)
        named.restart()
        named.send("c")
        assert [(part.first, part.last) for part in export.run()] == [(3, 3)]


class TestNames:
    def test_an_entity_that_is_gone_has_its_name_in_the_files(self, named, export):
        named.send("a", "b")
        named.do(Drop(queue=QUEUE))
        named.sweep()
        named.restart()
        export.run()
        assert {row["entity"] for row in export.rows()} == {"orders"}
        assert [row[:2] for row in told(export.rows())][-2:] == [("drop", "a"), ("drop", "b")]

    def test_a_name_is_forgotten_when_the_journal_speaks_of_it_no_more(self, named, export):
        named.do(Create(queue=8, settings=QueueSettings(), name=EntityName("stays", "queue")))
        named.send("a")
        named.do(Drop(queue=QUEUE))
        named.sweep()
        named.now += ranges.LATE_MS + 1
        named.send("b", queue=8)
        export.run()
        assert names_in(named) == {1: NAME, 2: EntityName("stays", "queue")}
        export.trim(before_ms=named.now + 1)
        assert names_in(named) == {2: EntityName("stays", "queue")}

    def test_names_can_be_told_later_and_are_told_once(self, empty):
        bus = empty
        bus.create(kind="")
        assert names_in(bus) == {}
        hybrid = EntityName("relayed", "hybrid")
        bus.do(Introduce(queue=0, names={1: NAME, 7: hybrid}))
        bus.do(Introduce(queue=0, names={1: EntityName("other", "topic", 3)}, gone=[7]))
        assert names_in(bus) == {1: NAME, 7: hybrid}

    def test_a_fragment_is_part_of_the_name(self, empty):
        name = EntityName("events/Subscriptions/audit", "subscription", 15)
        empty.do(Create(queue=8, settings=QueueSettings(), name=name))
        assert names_in(empty) == {2: name}


class TestEverythingIsTold:
    """What is made, moved and ended is in the journal of its transaction, so that the line of copies balances."""

    def test_messages_dropped_with_their_entity_are_told_one_by_one(self, bus):
        bus.send("a", "b", "c", "d", "e")
        bus.send("later", due_at_ms=bus.now + 1_000)
        first, second, third = bus.receive(3)
        bus.settle(Outcome.DEAD_LETTER, first)
        bus.settle(Outcome.DEFER, second)
        bus.settle(Outcome.TRANSFER_DEAD_LETTER, third)
        bus.do(Drop(queue=QUEUE))
        bus.sweep()
        dropped = {(e.queue, e.message_id) for e in bus.journal() if e.operation == "drop"}
        assert dropped == {(4, "b"), (4, "d"), (4, "e"), (4, "later"), (5, "a"), (6, "c")}
        assert {e.client for e in bus.journal() if e.operation == "drop"} == {"broker"}
        assert bus.told() == set()

    def test_a_damaged_message_ends_once(self, bus):
        bus.send("good", "bad")
        bus.restart()
        bus.factory.damage(bus.store, "bad")
        assert ids(bus.receive()) == ["good"]
        assert bus.told() == bus.resident(QUEUE) == {(4, 1)}
        bus.do(Drop(queue=QUEUE))
        bus.sweep()
        ended = [(e.operation, e.message_id) for e in bus.journal() if e.operation in ("damaged", "drop")]
        assert ended == [("damaged", "bad"), ("drop", "good")]

    def test_a_long_queue_is_dropped_and_told_in_chunks(self, bus, monkeypatch):
        monkeypatch.setattr(sweeping, "CHUNK", 10)
        bus.send(*[f"m{number}" for number in range(25)])
        bus.do(Drop(queue=QUEUE))
        bus.sweep()
        dropped = [e for e in bus.journal() if e.operation == "drop"]
        assert [e.message_id for e in dropped] == [f"m{number}" for number in range(25)]
        assert len({e.batch for e in dropped}) == 3

    def test_the_line_balances_over_every_way_to_make_and_end_a_copy(self, empty):
        empty.create(QUEUE, dead_letter_on_expiry=True, duplicate_window_ms=20_000)
        empty.create(8)
        empty.send("a", "b", "c", "d", "e", "f")
        empty.send("a")  # A duplicate.
        empty.do(Ping(queue=QUEUE, message_id="ping", size=1))
        empty.send("brief", ttl_ms=10)
        empty.send("gone", queue=8, ttl_ms=10)
        [cancelled, _] = empty.send("later", "much later", due_at_ms=empty.now + 5_000)
        empty.do(CancelScheduled(queue=QUEUE, sequence_numbers=[cancelled]))
        empty.pass_ms(6_000)
        one, two, three = empty.receive(3)
        empty.complete(one)
        empty.settle(Outcome.DEAD_LETTER, two)
        empty.do(Send(queue=8, units=[[Incoming(b"x", "c")]], transfers=[transfer(three)]))
        empty.receive(1, mode=REMOVE)
        empty.do(DeleteBatch(queue=QUEUE, limit=1, before_ms=empty.now + 1))
        [dead, _] = empty.receive(2, queue=5)
        empty.do(Send(queue=QUEUE, units=[[Incoming(b"x", dead.message_id)]], transfers=[transfer(dead, 5)]))
        assert empty.told() == empty.resident(QUEUE, 8)
        assert len(empty.told()) == 5
        outcomes = {e.outcome for e in empty.journal() if e.operation == "send" and not e.sequence_number}
        assert outcomes == {"duplicate", "ping"}

    def test_what_makes_a_copy_in_a_session_names_it(self, topic):
        topic.create(20, requires_session=True)
        topic.send("s", queue=20, session_id="A")
        topic.send("later", queue=20, session_id="B\x00", due_at_ms=topic.now + 1_000)
        topic.send("plain", queue=8)
        topic.publish("p", to=[Copy(8, "p", "C"), Copy(12, "p", "C"), Copy(16, "p")])
        made = {(e.operation, e.message_id, e.queue): e.session_id for e in topic.journal()}
        assert made == {
            ("send", "s", 20): "A",
            ("schedule", "later", 20): "B\x00",
            ("send", "plain", 8): "",
            ("send", "p", 4): "",
            ("copy", "p", 8): "C",
            ("copy", "p", 12): "C",
            ("copy", "p", 16): "",
        }

    def test_notes_have_counts_and_concern_no_message(self, named, export):
        named.do(Record(queue=0, notes=[Note("receive", QUEUE, "empty", count=3), Note("connect", 0, connection="c")]))
        export.run()
        first, second = export.rows()
        assert (first["entity"], first["operation"], first["outcome"], first["count"]) == (
            "orders",
            "receive",
            "empty",
            3,
        )
        assert (second["entity"], second["kind"], second["connection"], second["count"]) == ("", "", "c", 1)
