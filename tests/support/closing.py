"""The official client, closed without the second that its keep-alive sleeps before it notices.

Its connection is closed by then, and nobody sees the rest but who waits for it: tests that are about the client itself
take it as it is, and do not use this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from azure.servicebus._pyamqp import client as blocking
from azure.servicebus._pyamqp.aio import _client_async as asynchronous

NAP_S = 1  # The only whole second that these two modules ever sleep.
SHORT_NAP_S = 0.05


class _Instead:
    """A module in which one function is another."""

    def __init__(self, module: ModuleType, **functions: Any) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _nap(delay_s: float) -> None:
    time.sleep(SHORT_NAP_S if delay_s == NAP_S else delay_s)


async def _nap_async(delay_s: float) -> None:
    await asyncio.sleep(SHORT_NAP_S if delay_s == NAP_S else delay_s)


@pytest.fixture(scope="module", autouse=True)
def quick_closing(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("alone"):  # What measures time, measures the client as it is.
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking, "time", _Instead(time, sleep=_nap))
        patch.setattr(asynchronous, "asyncio", _Instead(asyncio, sleep=_nap_async))
        yield
