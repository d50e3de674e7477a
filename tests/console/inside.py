"""A broker and its console in the test's own process, for what cannot be seen from outside: how long a page waits for
a namespace that is silent, and drills that another program stands in for.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from twinbus.broker.drilling import Drilling
from twinbus.broker.process import Broker
from twinbus.broker.settings import NamespaceSettings, Settings
from twinbus.console import Console, Pair, Side
from twinbus.console.asking import Asker
from twinbus.console.pair import PairWatch
from twinbus.console.signing import Credential
from twinbus.wire.sas import make_token

TICK_S = 0.01
POLICY, KEY = "RootManageSharedAccessKey", "a-key-of-this-test-alone-0123456789"


@dataclass
class Inside:
    """The broker of the namespace `contoso`, and who asks it."""

    broker: Broker
    http: aiohttp.ClientSession

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.broker.ports['http']}"

    def url(self, page: str) -> str:
        return f"{self.address}/$console/{page}"

    async def sign_in(self) -> None:
        form = {"policy": POLICY, "key": KEY}
        async with self.http.post(self.url("sign-in"), data=form, headers={"Origin": self.address}) as answer:
            assert answer.status == 200, await answer.text()

    async def page(self, page: str) -> str:
        async with self.http.get(self.url(page)) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return text

    async def api(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        token = make_token(f"{self.address}/", POLICY, KEY, int(time.time()) + 60)
        headers = {"Authorization": token}
        async with self.http.request(method, f"{self.address}/$api/{path}", json=body, headers=headers) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()


@asynccontextmanager
async def inside(directory: Path, other: str, command: Sequence[str] = ()) -> AsyncIterator[Inside]:
    """A broker whose pair's secondary is at another address; `command` stands in for `twinbus drill`."""
    namespace = NamespaceSettings(name="contoso", data=directory / "data", key=KEY, stores=1)
    settings = Settings(amqp_port=0, http_port=0, namespaces=[namespace])
    drilling = Drilling(directory / "data" / "drills", directory / "pair.toml", command) if command else None
    started: list[Inside] = []

    async def own() -> str:
        return started[0].address

    async def others() -> str:
        return other

    credential = Credential(POLICY, KEY)
    console = Console(
        Pair(
            Side("primary", credential, own, "127.0.0.1", "contoso"),
            Side("secondary", credential, others, "127.0.0.1", "fabrikam"),
        )
    )
    broker = Broker(settings, site=console, drilling=drilling)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        started.append(Inside(broker, http))
        await broker.start()
        try:
            yield started[0]
        finally:
            await broker.stop()


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """The address of somebody who takes every connection and says nothing."""
    held: set[asyncio.StreamWriter] = set()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.add(writer)
        with suppress(ConnectionError):
            while await reader.read(4096):
                pass

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in held:
            writer.close()


@dataclass
class Waits:
    """How long each page waited for an address, measured where it waits; and how late the loop itself was meanwhile."""

    address: str
    by_page: dict[str, float] = field(default_factory=dict)
    lag_s: dict[str, float] = field(default_factory=dict)  # Of what each page waited.
    _late_s: float = 0.0
    _due_s: float = 0.0

    def late_s(self) -> float:
        """By how much the loop has been late, in sum: without a processor nobody notices that the time is over."""
        return self._late_s + max(time.monotonic() - self._due_s, 0.0)

    async def tick(self) -> None:
        while True:
            self._due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._late_s += max(time.monotonic() - self._due_s, 0.0)

    def too_long(self, patience_s: float) -> dict[str, float]:
        """Pages that waited for longer, though the loop was there to end it."""
        return {
            page: waited_s
            for page, waited_s in self.by_page.items()
            if waited_s > patience_s + self.lag_s.get(page, 0.0) + 2 * TICK_S
        }


@asynccontextmanager
async def measured(monkeypatch: pytest.MonkeyPatch, address: str) -> AsyncIterator[Waits]:
    """Measure pages, and not the watch that goes on beside them."""
    waits, making = Waits(address), contextvars.ContextVar("making", default="")
    serve, send, view = Console._serve, Asker.send, PairWatch.view
    until_s: dict[str, float] = {}  # Of each page, until when it has been counted: it may wait for several at once.

    def waited(since_s: float, late_s: float) -> None:
        if page := making.get():
            now_s = time.monotonic()
            waits.by_page[page] += now_s - max(since_s, until_s.get(page, 0.0))
            waits.lag_s[page] = waits.lag_s.get(page, 0.0) + waits.late_s() - late_s
            until_s[page] = now_s

    async def serving(self: Console, request: Any, page: str) -> Any:
        making.set(f"{len(waits.by_page)} {request.path_qs}")
        waits.by_page[making.get()] = 0.0
        return await serve(self, request, page)

    async def sending(self: Asker, *args: Any, **options: Any) -> bytes:
        began_s, late_s = time.monotonic(), waits.late_s()
        try:
            return await send(self, *args, **options)
        finally:
            if self.door.address == waits.address:
                waited(began_s, late_s)

    async def viewing(self: PairWatch) -> float:
        began_s, late_s = time.monotonic(), waits.late_s()
        try:
            return await view(self)
        finally:
            waited(began_s, late_s)

    monkeypatch.setattr(Console, "_serve", serving)
    monkeypatch.setattr(Asker, "send", sending)
    monkeypatch.setattr(PairWatch, "view", viewing)
    ticking = asyncio.create_task(waits.tick())
    await asyncio.sleep(0)  # So that it has begun.
    try:
        yield waits
    finally:
        ticking.cancel()
