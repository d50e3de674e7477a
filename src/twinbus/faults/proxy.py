"""A TCP proxy between a client and a broker that misbehaves on demand: slow, silent, gone, or cut at a chosen frame.

The modes are a table of what happens to new connections and to bytes; the frames are told apart by `frames`. It never
decides by itself when to misbehave.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import NamedTuple

from twinbus.faults.frames import Frame, FrameCutter, Says

CHUNK_BYTES = 64 * 1024
UNDER_WAY_MAX = 256  # Chunks that latency holds back.
LOOPBACK = "127.0.0.1"


class Mode(Enum):
    """How the proxy treats connections."""

    PASS = "pass"
    BLACKHOLE = "blackhole"  # Connections open and stay open; no byte gets through, until it heals.
    REFUSE = "refuse"  # Whoever connects is cut off at once; who is connected, too.
    SILENT = "silent"  # New connections are accepted and never answered; old ones go on.


class Toward(Enum):
    """The direction of bytes."""

    BROKER = "broker"
    CLIENT = "client"


class Cut(NamedTuple):
    """What happens when a frame of a kind comes: it is swallowed, and the connection perhaps cut."""

    says: Says
    toward: Toward
    frames: int = 1  # How many, counted over all connections.
    then_reset: bool = True


class FaultProxy:
    """Listens on a loopback port of its own, for the time of an `async with` block."""

    def __init__(self, port: int, host: str = LOOPBACK, listen_port: int = 0) -> None:
        self._target = (host, port)
        self._listen_port = listen_port
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._cuts: list[Cut] = []
        self.mode = Mode.PASS
        self.latency_s = 0.0  # Added to each chunk, in each direction.
        self.bytes_per_s: float | None = None
        self.seen: Counter[tuple[Toward, Says]] = Counter()
        self.arrived: Counter[tuple[Toward, Says]] = Counter()  # The same, with what is held back here.
        self.connections = 0

    @property
    def port(self) -> int:
        """Where clients connect."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self._listen_port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        self._open.set()
        await asyncio.gather(*(pair.ended() for pair in list(self._pairs)), return_exceptions=True)

    def set(self, mode: Mode) -> None:
        """Change how connections are treated."""
        self.mode = mode
        if mode is Mode.BLACKHOLE:
            self._open.clear()
        else:
            self._open.set()
        if mode is Mode.REFUSE:
            self.reset()

    def cut(self, says: Says, toward: Toward, frames: int = 1, then_reset: bool = True) -> None:
        """Swallow the next frames of a kind, then cut the connection.

        `cut(Says.DISPOSITION, Toward.CLIENT)` loses an answer whose message is stored.
        """
        self._cuts.append(Cut(says, toward, frames, then_reset))

    def reset(self) -> None:
        """Cut every connection with a reset."""
        for pair in list(self._pairs):
            pair.reset()

    def forget(self) -> None:
        """Nothing goes through connections that are open now, ever again; nobody is told. New ones are none the worse.

        So does a firewall that has lost its table, or a load balancer whose backend was replaced.
        """
        for pair in self._pairs:
            pair.is_forgotten = True

    async def gate(self) -> None:
        """Wait while nothing gets through."""
        await self._open.wait()

    def is_swallowed(self, says: Says, toward: Toward) -> Cut | None:
        """Whether a frame is swallowed, and by which cut."""
        self.seen[toward, says] += 1
        for position, cut in enumerate(self._cuts):
            if (cut.says, cut.toward) == (says, toward):
                if cut.frames > 1:
                    self._cuts[position] = cut._replace(frames=cut.frames - 1)
                    return cut._replace(then_reset=False)
                del self._cuts[position]
                return cut
        return None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.mode is Mode.REFUSE:
            _reset(writer)
            return
        pair = _Pair(self, reader, writer)
        self._pairs.add(pair)
        try:
            await pair.run(None if self.mode is Mode.SILENT else self._target)
        finally:
            self._pairs.discard(pair)


class _Chunk(NamedTuple):
    """Bytes on their way."""

    due: float  # By the loop's clock.
    size: int  # None is the end.
    frames: list[Frame]  # That were complete with it.


class _Pair:
    """A client's connection and the one to the broker behind it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self.is_forgotten = False
        self._task = asyncio.current_task()

    async def run(self, target: tuple[str, int] | None) -> None:
        """Carry bytes both ways until one side ends."""
        client = self._writers[0]
        try:
            await self._proxy.gate()
            if target is None:
                await asyncio.Event().wait()
                return
            reader, writer = await asyncio.open_connection(*target)
            self._writers.append(writer)
            ways = [
                asyncio.create_task(self._carry(self._reader, writer, Toward.BROKER)),
                asyncio.create_task(self._carry(reader, client, Toward.CLIENT)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            _reset(client)  # The broker is not there, and the client is to see that.
        except asyncio.CancelledError:
            return
        finally:
            for each in self._writers:
                each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, toward: Toward) -> None:
        """Read and write beside each other, so that latency delays bytes without holding up those behind them."""
        proxy, cutter = self._proxy, FrameCutter()
        under_way: asyncio.Queue[_Chunk] = asyncio.Queue(UNDER_WAY_MAX)
        delivering = asyncio.create_task(self._deliver(under_way, writer, toward))
        try:
            loop = asyncio.get_running_loop()
            while data := await reader.read(CHUNK_BYTES):
                frames = cutter.feed(data)
                proxy.arrived.update((toward, frame.says) for frame in frames)
                await under_way.put(_Chunk(loop.time() + proxy.latency_s, len(data), frames))
            await under_way.put(_Chunk(loop.time() + proxy.latency_s, 0, []))
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(self, under_way: asyncio.Queue[_Chunk], writer: asyncio.StreamWriter, toward: Toward) -> None:
        proxy, loop = self._proxy, asyncio.get_running_loop()
        while True:
            due, size, frames = await under_way.get()
            if not size:
                return
            await asyncio.sleep(max(due - loop.time(), 0))
            if proxy.bytes_per_s:
                await asyncio.sleep(size / proxy.bytes_per_s)
            await proxy.gate()
            if self.is_forgotten:
                await asyncio.Event().wait()
            for frame in frames:
                if writer.is_closing():
                    return  # Who reads there is gone, perhaps killed.
                swallowed = proxy.is_swallowed(frame.says, toward)
                if swallowed is None:
                    writer.write(frame.data)
                elif swallowed.then_reset:
                    self.reset()
                    return
            await writer.drain()

    def reset(self) -> None:
        """Cut both sides."""
        for writer in self._writers:
            _reset(writer)
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until nothing of it is left."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset and not an end."""
    found = writer.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
