"""Frames cut out of a stream, however the bytes arrive."""

from __future__ import annotations

import pytest

from twinbus.faults.frames import FrameCutter, Says

HEADER = b"AMQP\x03\x01\x00\x00"


def frame(code: int, kind: int = 0, body: bytes = b"\x45") -> bytes:
    content = b"\x00\x53" + bytes((code,)) + body
    return (8 + len(content)).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + content


STREAM = HEADER + frame(0x41, kind=1) + frame(0x10) + frame(0x14, body=b"\x45" + b"x" * 300) + frame(0x15)
HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"


@pytest.mark.parametrize("step", [1, 3, 7, len(STREAM)])
def test_frames_are_found_however_the_bytes_arrive(step: int) -> None:
    cutter = FrameCutter()
    found = [each for at in range(0, len(STREAM), step) for each in cutter.feed(STREAM[at : at + step])]

    assert [each.says for each in found] == [Says.NOTHING, Says.NOTHING, Says.OPEN, Says.TRANSFER, Says.DISPOSITION]
    assert b"".join(each.data for each in found) == STREAM


def test_a_heartbeat_says_nothing() -> None:
    assert [each.says for each in FrameCutter().feed(HEARTBEAT)] == [Says.NOTHING]
