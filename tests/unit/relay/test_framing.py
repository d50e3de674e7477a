"""WebSocket frames: what a client sends in any pieces comes out as the messages that it meant."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.relay.framing import (
    Close,
    FrameReader,
    FramingError,
    Opcode,
    Piece,
    close_piece,
    frame,
    mask_in_place,
    mask_in_place_slowly,
    read_close,
)


def sent(opcode: int, payload: bytes, *, final: bool = True, key: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A frame as a client sends it."""
    masked = bytes(value ^ key[at % 4] for at, value in enumerate(payload))
    first, length = opcode | (0x80 if final else 0), len(payload)
    if length < 126:
        head = struct.pack(">BB", first, 0x80 | length)
    elif length < 1 << 16:
        head = struct.pack(">BBH", first, 0x80 | 126, length)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, length)
    return head + key + masked


def together(pieces: list[Piece]) -> list[tuple[Opcode, bytes]]:
    """The messages that pieces make; a piece that does not fit fails."""
    messages: list[tuple[Opcode, bytes]] = []
    under_way: tuple[Opcode, bytes] | None = None
    for piece in pieces:
        if piece.opcode >= Opcode.CLOSE:
            messages.append((piece.opcode, bytes(piece.data)))
            continue
        assert piece.begins == (under_way is None)
        under_way = (piece.opcode, (under_way[1] if under_way else b"") + bytes(piece.data))
        if piece.ends:
            messages.append(under_way)
            under_way = None
    assert under_way is None
    return messages


messages = st.lists(
    st.tuples(
        st.sampled_from([Opcode.TEXT, Opcode.BINARY]),
        st.lists(st.binary(max_size=300), min_size=1, max_size=4),
        st.one_of(st.none(), st.binary(max_size=125)),
        st.binary(min_size=4, max_size=4),
    ),
    max_size=5,
)


@given(messages, st.lists(st.integers(1, 400), max_size=40))
def test_messages_come_out_whole_however_the_bytes_are_cut(
    said: list[tuple[Opcode, list[bytes], bytes | None, bytes]], cuts: list[int]
) -> None:
    wire, expected = b"", []
    for opcode, parts, ping, key in said:
        for number, part in enumerate(parts):
            kind = Opcode.CONTINUATION if number else opcode
            wire += sent(kind, part, final=number == len(parts) - 1, key=key)
            if number == 0 and ping is not None:  # Between the fragments of a message, or behind it.
                wire += sent(Opcode.PING, ping, key=key)
                expected.append((Opcode.PING, ping))
        expected.append((opcode, b"".join(parts)))
    reader, pieces, at = FrameReader(), [], 0
    for cut in [*cuts, len(wire)]:
        pieces += reader.feed(wire[at : at + cut])
        at += cut
    assert sorted(together(pieces)) == sorted(expected)
    in_order = [each for each in expected if each[0] is not Opcode.PING]
    assert [each for each in together(pieces) if each[0] is not Opcode.PING] == in_order


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=100))
def test_both_ways_of_masking_do_the_same(mask: bytes, data: bytes) -> None:
    one, other = bytearray(data), bytearray(data)
    mask_in_place(mask, one)
    mask_in_place_slowly(mask, other)
    assert one == other


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_frame_says_its_length_in_the_shortest_form(size: int) -> None:
    made = frame(Piece(Opcode.BINARY, b"x" * size))
    unmasked = sent(Opcode.BINARY, b"x" * size, key=bytes(4))
    head = len(made) - size
    assert made == bytes([unmasked[0], unmasked[1] & 0x7F]) + unmasked[2:head] + b"x" * size


@pytest.mark.parametrize(
    ("piece", "first"),
    [
        (Piece(Opcode.TEXT, b"", True, True), 0x81),
        (Piece(Opcode.TEXT, b"", True, False), 0x01),
        (Piece(Opcode.TEXT, b"", False, False), 0x00),
        (Piece(Opcode.TEXT, b"", False, True), 0x80),
    ],
)
def test_pieces_become_fragments(piece: Piece, first: int) -> None:
    assert frame(piece)[0] == first


@pytest.mark.parametrize(
    "wire",
    [
        b"\x82\x00",  # Not masked.
        sent(0x3, b""),  # A kind that nobody knows.
        sent(0x40 | Opcode.BINARY, b""),  # An extension.
        sent(Opcode.PING, b"x" * 126),
        sent(Opcode.PING, b"", final=False),
        sent(Opcode.CONTINUATION, b"x"),
        sent(Opcode.TEXT, b"x", final=False) + sent(Opcode.TEXT, b"x"),
        b"\x82\xff" + b"\xff" * 12,  # Longer than anything.
    ],
)
def test_what_breaks_the_protocol_is_refused(wire: bytes) -> None:
    with pytest.raises(FramingError) as refusal:
        FrameReader().feed(wire)
    assert refusal.value.code is Close.PROTOCOL_ERROR


def test_a_large_frame_is_handed_out_as_it_comes() -> None:
    wire = sent(Opcode.BINARY, b"0123456789" * 100)
    reader = FrameReader()
    first = reader.feed(wire[:500])
    assert [(piece.begins, piece.ends, len(piece.data)) for piece in first] == [(True, False, 500 - 8)]
    assert [(piece.begins, piece.ends) for piece in reader.feed(wire[500:])] == [(False, True)]


def test_close_codes_are_read_as_they_are_written() -> None:
    assert read_close(close_piece(4001, "enough").data) == (4001, "enough")
    assert read_close(close_piece(Close.NO_CODE).data) == (Close.NO_CODE, "")
    assert len(close_piece(1000, "é" * 200).data) <= 125
    for wrong in (b"x", b"\x03\xed", b"\x00\x01", b"\x13\x88"):
        with pytest.raises(FramingError):
            read_close(wrong)
