"""Lines as they come, from a pipe that may be silent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from twinbus.cli.lines import read_all, read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    out, into = os.pipe()
    yield out, into
    os.close(out)


async def lines_of(descriptor: int) -> list[bytes]:
    return [line async for lot in read_lines(descriptor) for line in lot]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\n\ntwo", [b"one", b"", b"two"]),
        (b"one\r\ntwo\r\n", [b"one", b"two"]),
        (b"\xff\x00\n", [b"\xff\x00"]),
    ],
)
async def test_a_line_ends_with_its_end_or_with_the_input(
    pipe: tuple[int, int], content: bytes, lines: list[bytes]
) -> None:
    os.write(pipe[1], content)
    os.close(pipe[1])
    assert await lines_of(pipe[0]) == lines


async def test_a_line_comes_before_the_input_ends(pipe: tuple[int, int]) -> None:
    lots = read_lines(pipe[0])
    os.write(pipe[1], b"one\ntw")
    assert await anext(lots) == [b"one"]
    os.write(pipe[1], b"o\n")
    assert await anext(lots) == [b"two"]
    os.close(pipe[1])
    with pytest.raises(StopAsyncIteration):
        await anext(lots)


async def test_a_long_line_arrives_whole(pipe: tuple[int, int]) -> None:
    line = b"x" * 700_000
    reading = asyncio.create_task(lines_of(pipe[0]))
    await asyncio.to_thread(_write, pipe[1], line + b"\n" + line)
    assert await reading == [line, line]


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


async def test_everything_at_once(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\ntwo\n")
    os.close(pipe[1])
    assert await read_all(pipe[0]) == b"one\ntwo\n"


async def test_what_cannot_be_read_is_told(tmp_path: os.PathLike[str]) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            await read_all(directory)
    finally:
        os.close(directory)
