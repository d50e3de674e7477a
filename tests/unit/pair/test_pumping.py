"""The pump while the primary is away: it looks for the primary, and receives nothing in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from twinbus.client import messages
from twinbus.client.diverting import divert
from twinbus.client.errors import CONNECTION_LOST, ClientError
from twinbus.model.message import Outcome
from twinbus.pair.namespace import reachability
from twinbus.pair.namespace.port import Identity
from twinbus.pair.syphon.home import Home, Progress
from twinbus.pair.syphon.pump import Pump

GONE = ClientError(CONNECTION_LOST, "nobody is there")


class Received:
    """A message of the backlog."""

    payload = divert(messages.build(b"x", message_id="m"), "orders")


class Secondary:
    """One backlog queue with one message, and its receiver."""

    path = "backlog"

    def __init__(self) -> None:
        self.left = [Received()]
        self.receives = 0

    async def receiver(self, queue: str) -> Secondary:
        return self

    async def receive(self, limit: int, wait_s: float) -> list[Received]:
        self.receives += 1
        if not self.left:
            await asyncio.sleep(wait_s)
        lot, self.left = self.left, []
        return lot

    async def settle(self, lot: list[Received], outcome: Outcome = Outcome.COMPLETE, **_: Any) -> None:
        if outcome is Outcome.RELEASE:
            self.left += lot

    async def close(self) -> None:
        pass


class Primary:
    """It is away for so many looks."""

    address = ("primary", 5671)
    reached_at = "primary:5671"
    slow_s = 30.0

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.looks = 0
        self.sent: list[bytes] = []

    async def be_there(self) -> None:
        pass

    async def send(self, path: str, payloads: list[bytes], *, timeout_s: float) -> None:
        if self.left:
            raise GONE
        self.sent += payloads

    async def identity(self, *, anew: bool) -> Identity:
        self.looks += 1
        if self.left:
            self.left -= 1
            raise GONE
        return Identity("contoso", "its id")

    async def ask(self) -> None:
        await self.identity(anew=True)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "LOOK_S", 0.001)


async def test_while_the_primary_is_away_nothing_is_received_in_vain() -> None:
    primary, secondary = Primary(looks=6), Secondary()
    progress = Progress()
    home = Home(primary, 0.0)  # type: ignore[arg-type]

    async def find() -> list[str]:
        return ["backlog"]

    pump = Pump(home, secondary, find, progress, batch=10, poll_s=60, pause_s=0.0, queues=["backlog"])  # type: ignore[arg-type]
    pump.start()
    async with asyncio.timeout(5):
        while not progress.moved:
            await asyncio.sleep(0)
    await pump.stop()
    assert primary.looks == 8  # The last one asks who it is.
    assert secondary.receives <= 3  # Found out that it is gone, brought home, and waits for more.
    assert progress.moved == {"orders": 1}
