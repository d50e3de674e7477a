"""Rows as PostgreSQL's COPY carries them in binary: the same row has the same bytes on its way in and on its way out.

Pure: values in, bytes out, and a digest of rows in any order. Who sends them where is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from hashlib import blake2b
from struct import Struct
from typing import Any

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # The signature, no flags, no extension.
TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_INT8_TYPE = 20

_KEY = Struct("!2xiq")  # Of a row's bytes: the length of its first column, and that column if it is a bigint.
_DIGEST_BYTES = 16
_DIGEST_MASK = (1 << 8 * _DIGEST_BYTES) - 1
_SEVERAL = Struct("!iiiii")


def _number(layout: str, size: int) -> Callable[[Any], bytes]:
    pack = Struct(layout).pack
    return lambda value: pack(size, value)


def _bytes(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


_int8 = _number("!iq", 8)


def _int8s(values: Sequence[int]) -> bytes:
    # One dimension, no empty elements, counted from 1.
    return _bytes(_SEVERAL.pack(1, 0, _INT8_TYPE, len(values), 1) + b"".join(map(_int8, values)))


class Kind(Enum):
    """The types of columns that stores have."""

    INT8 = "bigint"
    INT4 = "int"
    INT2 = "smallint"
    BOOL = "boolean"
    TEXT = "text"
    BYTES = "bytea"
    INT8S = "bigint[]"


_PACK: dict[Kind, Callable[[Any], bytes]] = {
    Kind.INT8: _int8,
    Kind.INT4: _number("!ii", 4),
    Kind.INT2: _number("!ih", 2),
    Kind.BOOL: _number("!i?", 1),
    Kind.TEXT: _text,
    Kind.BYTES: _bytes,
    Kind.INT8S: _int8s,
}


def packer(kinds: Sequence[Kind]) -> Callable[[Sequence[Any]], bytes]:
    """What makes a row's bytes from its values, one for each column; None is an empty column."""
    begin = len(kinds).to_bytes(2, "big")
    packs = [_PACK[kind] for kind in kinds]

    def pack(row: Sequence[Any]) -> bytes:
        return begin + b"".join(
            [_NULL if value is None else each(value) for each, value in zip(packs, row, strict=True)]
        )

    return pack


class Tally:
    """How many rows there were, and their digest, for each value of the first column or for all of them together.

    The digest is the sum of the rows' own digests: a table has no order, and the two databases sort texts differently.
    """

    def __init__(self, *, by_first: bool) -> None:
        self._by_first = by_first
        self._found: dict[int, tuple[int, int]] = {}

    def add(self, row: bytes) -> None:
        """Count one row, as its bytes."""
        key = _KEY.unpack_from(row)[1] if self._by_first else 0
        count, total = self._found.get(key, (0, 0))
        digest = int.from_bytes(blake2b(row, digest_size=_DIGEST_BYTES).digest(), "big")
        self._found[key] = (count + 1, total + digest & _DIGEST_MASK)

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(count for count, _ in self._found.values())

    @property
    def digest(self) -> str:
        """Of all rows, in hexadecimal digits."""
        total = sum(total for _, total in self._found.values()) & _DIGEST_MASK
        return f"{total:0{2 * _DIGEST_BYTES}x}"

    @staticmethod
    def joined(tallies: Iterable[Tally]) -> str:
        """One digest for several tables."""
        return blake2b("".join(tally.digest for tally in tallies).encode(), digest_size=_DIGEST_BYTES).hexdigest()

    def count(self, key: int) -> int:
        """How many rows one value of the first column has."""
        return self._found.get(key, (0, 0))[0]

    def differences(self, other: Tally) -> list[int]:
        """The values of the first column whose rows are not the same there; 0 where they are not told apart."""
        return sorted(key for key in self._found | other._found if self._found.get(key) != other._found.get(key))


def rows_in(blocks: Iterable[bytes | bytearray | memoryview]) -> Iterable[bytes]:
    """The rows of a COPY on its way out, which come one in a block; the header is in front of the first one."""
    is_first = True
    for block in blocks:
        row = bytes(block)
        if is_first:
            is_first = False
            if not row.startswith(HEADER):
                raise ValueError("the database does not send what COPY in binary begins with")
            row = row[len(HEADER) :]
        if row and row != TRAILER:
            yield row
