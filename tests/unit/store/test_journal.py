"""The journal's packing, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.model.message import Origin
from twinbus.store.commands import Note
from twinbus.store.journal import DamagedRowError, JournalPage, JournalRow, content, is_checked, read

NUMBERS = st.integers(0, 2**40)
MESSAGES = st.lists(st.tuples(st.text(), NUMBERS, NUMBERS, NUMBERS), min_size=1)


def unpacked(page: JournalPage) -> list:
    return read(JournalRow(9, 77, page.encode(77)), store=2)


@given(MESSAGES)
def test_what_is_packed_comes_out_again(messages):
    page = JournalPage()
    page.add("send", 4, Origin("c", "client"), tuple(list(column) for column in zip(*messages, strict=True)), "ok")
    entries = unpacked(page)
    assert [(e.message_id, e.sequence_number, e.delivery_count, e.bytes) for e in entries] == messages
    assert {(e.at_ms, e.store, e.batch, e.operation, e.queue, e.outcome) for e in entries} == {
        (77, 2, 9, "send", 4, "ok")
    }
    assert {(e.connection, e.client, e.tracking_id, e.count) for e in entries} == {("c", "client", "", 1)}


def test_consecutive_numbers_and_equal_values_are_written_once():
    page = JournalPage()
    page.add("send", 4, Origin("c"), (["a", "b", "c"], [7, 8, 9], [0, 0, 0], [5, 5, 5]))
    assert content(JournalRow(9, 77, page.encode(77))) == [["send", 4, "c", "", "", ["a", "b", "c"], 7, 0, 5]]
    assert [entry.sequence_number for entry in unpacked(page)] == [7, 8, 9]


def test_an_operation_on_no_messages_is_not_entered():
    page = JournalPage()
    page.add("send", 4, Origin("c"), ([], [], [], []))
    assert not page


def test_a_note_keeps_its_count_and_tracking_id():
    page = JournalPage()
    page.note(Note("empty_poll", 4, count=3, tracking_id="t", connection="other"), Origin("c", "client"))
    [entry] = unpacked(page)
    assert (entry.operation, entry.count, entry.tracking_id, entry.connection) == ("empty_poll", 3, "t", "other")
    assert (entry.message_id, entry.sequence_number, entry.client) == ("", 0, "client")


def test_a_row_of_an_older_version_is_read_without_a_checksum():
    row = JournalRow(9, 77, b'[["send",4,"c","","",["a"],7,0,5]]')
    assert not is_checked(row)
    [entry] = read(row)
    assert (entry.message_id, entry.sequence_number) == ("a", 7)


def test_any_flipped_bit_of_a_row_is_noticed():
    page = JournalPage()
    page.add("send", 4, Origin("c"), (["a", "b"], [7, 8], [0, 0], [5, 5]))
    ops = page.encode(77)
    assert is_checked(JournalRow(9, 77, ops))
    for bit in range(len(ops) * 8):
        flipped = bytearray(ops)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedRowError):
            content(JournalRow(9, 77, bytes(flipped)))
    for bit in range(40):
        with pytest.raises(DamagedRowError):
            content(JournalRow(9, 77 ^ 1 << bit, ops))


@pytest.mark.parametrize("ops", [b"", b"[", b"[1", b'{"a": 1}', b"\x01", b"\x01\x00\x00\x00\x00"])
def test_what_is_no_row_is_refused(ops):
    with pytest.raises(DamagedRowError):
        content(JournalRow(9, 77, ops))
