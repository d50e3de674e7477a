"""Rows of COPY in binary, and digests that do not depend on the order of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.sql.copy_rows import HEADER, TRAILER, Kind, Tally, packer, rows_in


@pytest.mark.parametrize(
    ("kind", "value", "packed"),
    [
        (Kind.INT8, -2, "00000008 fffffffffffffffe"),
        (Kind.INT4, 258, "00000004 00000102"),
        (Kind.INT2, 3, "00000002 0003"),
        (Kind.BOOL, 1, "00000001 01"),
        (Kind.TEXT, "\u00e4", "00000002 c3a4"),
        (Kind.BYTES, b"\0\xff", "00000002 00ff"),
        (Kind.BYTES, b"", "00000000"),
        (Kind.TEXT, None, "ffffffff"),
        (
            Kind.INT8S,
            [7, 8],
            "0000002c 00000001 00000000 00000014 00000002 00000001 00000008 0000000000000007 00000008 0000000000000008",
        ),
    ],
)
def test_a_column_is_its_length_and_its_bytes(kind: Kind, value: object, packed: str) -> None:
    assert packer([kind])([value]) == bytes.fromhex("0001" + packed)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=4)))


def tally_of(rows: list[tuple[int, bytes]]) -> Tally:
    pack, tally = packer([Kind.INT8, Kind.BYTES]), Tally(by_first=True)
    for row in rows:
        tally.add(pack(row))
    return tally


@given(ROWS, st.randoms())
def test_the_order_of_rows_does_not_matter(rows, random) -> None:
    mixed = list(rows)
    random.shuffle(mixed)
    assert tally_of(rows).differences(tally_of(mixed)) == []
    assert tally_of(rows).digest == tally_of(mixed).digest


@given(ROWS, ROWS)
def test_other_rows_are_told_by_their_first_column(ours, theirs) -> None:
    differ = {
        key for key in range(4) if sorted(r for r in ours if r[0] == key) != sorted(r for r in theirs if r[0] == key)
    }
    assert tally_of(ours).differences(tally_of(theirs)) == sorted(differ)
    assert (tally_of(ours).digest == tally_of(theirs).digest) == (not differ)
    assert tally_of(ours).rows == len(ours)


def test_a_row_twice_is_not_a_row_once() -> None:
    assert tally_of([(1, b"a")] * 2).differences(tally_of([(1, b"a")])) == [1]
    assert tally_of([(1, b"a")] * 3).count(1) == 3


def test_the_header_is_in_front_of_the_first_row() -> None:
    assert list(rows_in([HEADER + b"one", b"two", TRAILER])) == [b"one", b"two"]
    assert list(rows_in([HEADER, b"one", TRAILER])) == [b"one"]
    assert list(rows_in([HEADER + TRAILER])) == []


def test_something_else_than_copy_in_binary_is_noticed() -> None:
    with pytest.raises(ValueError, match="COPY in binary"):
        list(rows_in([b"1\tone\n"]))
