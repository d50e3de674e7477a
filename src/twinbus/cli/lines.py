"""Lines of a file or of standard input, as they come, without holding up the event loop or the end of the command.

A thread reads, because a terminal or a pipe may be silent for long. What a line means is the command's.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

_CHUNK_BYTES = 256 * 1024
_CHUNKS_AHEAD = 4


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, a few at a time, to the end of the input."""
    rest = b""
    async for chunk in _chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


async def read_all(descriptor: int) -> bytes:
    """Everything to the end of the input."""
    return b"".join([chunk async for chunk in _chunks(descriptor)])


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)

    def read() -> None:
        chunk: bytes | OSError = b"something"
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as problem:
                chunk = problem
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, chunk)
            except RuntimeError:
                return  # The loop is gone, and nobody is interested any more.

    # A daemon, and by the descriptor rather than `sys.stdin`: neither keeps the process from ending.
    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk = await arrived.get()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk
        room.release()
