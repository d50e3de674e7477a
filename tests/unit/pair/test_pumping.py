"""The pump while the primary is away: it looks for the primary, and receives nothing in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from twinbus.client import messages
from twinbus.client.diverting import divert
from twinbus.client.errors import CONNECTION_LOST, ClientError
from twinbus.model.message import Outcome
from twinbus.pair.failures import DISABLED, is_refusal
from twinbus.pair.pumping import Pump

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

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.looks = 0
        self.sent: list[bytes] = []

    async def sender(self, path: str) -> Primary:
        if self.left:
            raise GONE
        return self

    async def send(self, payloads: list[bytes]) -> None:
        self.sent += payloads

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[None]:
        self.looks += 1
        if self.left:
            self.left -= 1
            raise GONE
        yield


async def test_while_the_primary_is_away_nothing_is_received_in_vain() -> None:
    primary, secondary = Primary(looks=6), Secondary()
    pump = Pump(primary, secondary, ["backlog"], batch=10, poll_s=60, pause_s=0.0)  # type: ignore[arg-type]
    pump.start()
    async with asyncio.timeout(5):
        while not pump.moved:
            await asyncio.sleep(0)
    await pump.stop()
    assert primary.looks == 7
    assert secondary.receives <= 3  # Found out that it is gone, brought home, and waits for more.
    assert pump.moved == {"orders": 1}


@pytest.mark.parametrize(
    ("condition", "is_final"),
    [(DISABLED, False), ("amqp:not-found", True), ("amqp:resource-limit-exceeded", False), (CONNECTION_LOST, False)],
)
def test_what_will_never_be_taken(condition: str, is_final: bool) -> None:
    assert is_refusal(ClientError(condition, "")) is is_final
