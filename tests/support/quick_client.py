"""The official client without its naps: the second that its keep-alive sleeps before it notices that it is closed, and
the twentieth between two looks at whether a link is open, of which it takes nine.

What it says to the broker is the same, in the same order. Tests that are about the client itself take it as it is, and
do not use this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from azure.servicebus import _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import client
from azure.servicebus._pyamqp.aio import _client_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

# What these modules sleep that is not asked for by anybody, and for how long they do instead. Other sleeps stay.
NAPS_S = {1: 0.05, 0.05: 0.003}
BLOCKING = (client, _servicebus_receiver, _servicebus_sender)
ASYNCHRONOUS = (_client_async, _servicebus_receiver_async, _servicebus_sender_async)


class _Instead:
    """A module in which one function is another."""

    def __init__(self, module: ModuleType, **functions: Any) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _nap(delay_s: float) -> None:
    time.sleep(NAPS_S.get(delay_s, delay_s))


async def _nap_async(delay_s: float) -> None:
    await asyncio.sleep(NAPS_S.get(delay_s, delay_s))


@pytest.fixture(scope="module", autouse=True)
def quick_client(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("alone"):  # What measures time, measures the client as it is.
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for module in BLOCKING:
            patch.setattr(module, "time", _Instead(time, sleep=_nap))
        for module in ASYNCHRONOUS:
            patch.setattr(module, "asyncio", _Instead(asyncio, sleep=_nap_async))
        yield
