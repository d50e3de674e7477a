"""A send of the SDK ends, whatever it waits for, and only a caller's own cancellation looks like one."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.pair.sdk.attempts import ended


async def test_silence_is_an_operation_that_timed_out() -> None:
    with pytest.raises(OperationTimeoutError):
        await ended(asyncio.sleep(60), 0.01)


async def test_what_another_send_cancelled_is_a_broken_link() -> None:
    shared = asyncio.ensure_future(asyncio.sleep(60))

    async def waits() -> None:
        await shared

    first, second = asyncio.create_task(ended(waits(), 0.01)), asyncio.create_task(ended(waits(), 60))
    with pytest.raises(OperationTimeoutError):
        await first
    with pytest.raises(ServiceBusConnectionError):
        await second


async def test_a_callers_own_cancellation_stays_one() -> None:
    sending = asyncio.create_task(ended(asyncio.sleep(60), None))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
