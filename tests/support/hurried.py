"""An event loop for which time passes faster than for everyone else: an idle hour takes a few seconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from twinbus.pair.aio import PairedServiceBusClient

HURRY = 600  # Seconds that pass in the loop while one passes for everyone else.


class _Hurried(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> Any:
        return super().select(None if timeout is None else timeout / HURRY)


class _HurriedLoop(asyncio.SelectorEventLoop):
    def time(self) -> float:
        return super().time() * HURRY


def patient(client: PairedServiceBusClient) -> PairedServiceBusClient:
    """Give both namespaces a minute of everyone else's time to answer, since theirs is not hurried."""
    for namespace in (client._core.primary, client._core.secondary):
        namespace.timeout_s = 60.0 * HURRY
    return client


def hurried(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in such a loop."""
    with asyncio.Runner(loop_factory=lambda: _HurriedLoop(_Hurried())) as runner:
        runner.run(work())
