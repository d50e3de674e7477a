"""Frames as bytes, and the inbox that keeps what is not whole."""

from __future__ import annotations

import pytest

from twinbus.amqp.conditions import ViolationError
from twinbus.amqp.frames import EMPTY_FRAME, Inbox, amqp_frame, frame_header, sasl_frame


def test_a_frame_is_its_size_offset_type_and_channel() -> None:
    assert amqp_frame(0x0102, b"body") == b"\x00\x00\x00\x0c\x02\x00\x01\x02body"
    assert sasl_frame(b"body") == b"\x00\x00\x00\x0c\x02\x01\x00\x00body"
    assert amqp_frame(0, b"") == EMPTY_FRAME


def test_a_header_says_where_the_body_begins() -> None:
    assert frame_header(b"x" + amqp_frame(7, b"body"), 1, 512) == (12, 9, 0, 7)
    assert frame_header(b"\x00\x00\x00\x10\x04\x00\x00\x07", 0, 512) == (16, 16, 0, 7)


@pytest.mark.parametrize(
    "header", ["00000201" + "02000000", "00000000" + "02000000", "00000010" + "01000000", "00000010" + "05000000"]
)
def test_a_header_that_cannot_be_is_a_violation(header: str) -> None:
    with pytest.raises(ViolationError) as violation:
        frame_header(bytes.fromhex(header), 0, 512)
    assert violation.value.condition == "amqp:connection:framing-error"


def test_the_inbox_joins_pieces_when_there_are_enough() -> None:
    inbox = Inbox()
    inbox.keep(b"ab", 5)
    inbox.put(b"c")
    assert not inbox.ready()
    inbox.put(b"de")
    assert inbox.ready()
    assert inbox.take() == b"abcde"
    assert inbox.size == 0
    assert not inbox.ready()
    inbox.keep(b"", 8)
    assert not inbox.ready()
