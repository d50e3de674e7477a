"""A send of the SDK ends, whatever it waits for, and only a caller's own cancellation looks like one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.sdk.attempts import Ends


async def test_silence_is_an_operation_that_timed_out() -> None:
    with pytest.raises(OperationTimeoutError):
        await Ends().ended(asyncio.sleep(60), 0.01)


async def test_what_another_send_cancelled_is_a_broken_link() -> None:
    shared = asyncio.ensure_future(asyncio.sleep(60))

    async def waits() -> None:
        await shared

    ends = Ends()
    second, first = asyncio.create_task(ends.ended(waits(), 60)), asyncio.create_task(ends.ended(waits(), 0.01))
    with pytest.raises(OperationTimeoutError):
        await first
    with pytest.raises(ServiceBusConnectionError):
        await second


async def test_a_callers_own_cancellation_stays_one() -> None:
    sending = asyncio.create_task(Ends().ended(asyncio.sleep(60), 60))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_one_that_is_cancelled_while_its_time_ends_is_cancelled() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            sending.cancel()
            raise

    sending = asyncio.create_task(Ends().ended(stubborn(), 0.01))
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_a_task_goes_on_after_a_send_whose_time_was_over() -> None:
    ends = Ends()

    async def application() -> int:
        for _ in range(2):
            with pytest.raises(OperationTimeoutError):
                await ends.ended(asyncio.sleep(60), 0.01)
        await ends.ended(asyncio.sleep(0), 60)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert await asyncio.create_task(application()) == 0


async def test_what_a_send_raises_at_the_end_of_its_time_is_raised() -> None:
    async def fails() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("its own") from None

    with pytest.raises(ValueError, match="its own"):
        await Ends().ended(fails(), 0.01)


async def test_one_that_has_no_time_and_fails_at_once_cancels_nothing_afterwards() -> None:
    async def fails() -> None:
        raise ValueError("its own")

    async def application() -> str:
        with pytest.raises(ValueError, match="its own"):
            await Ends().ended(fails(), -1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "went on"

    assert await asyncio.create_task(application()) == "went on"


async def test_one_timer_looks_after_all_sends() -> None:
    ends = Ends()
    sends = [asyncio.create_task(ends.ended(asyncio.sleep(60), 0.01 * number)) for number in (3, 1, 2)]
    done = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(each) for each in done] == [OperationTimeoutError] * 3
    assert not ends._due
    await ends.ended(asyncio.sleep(0), 60)
    first = ends._timer
    await ends.ended(asyncio.sleep(0), 60)
    assert ends._timer is first is not None


@pytest.mark.parametrize(
    ("transport", "told_s"),
    [(TransportType.Amqp, 3.5), (TransportType.AmqpOverWebsocket, 2.0)],
    ids=["TCP", "WebSocket"],
)
def test_a_blocking_send_is_told_less_where_it_ends_late(transport: TransportType, told_s: float) -> None:
    """So that what is left of the five seconds is enough for the backlog."""

    def sdk(host: str) -> ServiceBusClient:
        string = f"Endpoint=sb://{host};SharedAccessKeyName=k;SharedAccessKey=v"
        return ServiceBusClient.from_connection_string(string, transport_type=transport)

    with sdk("contoso.example") as primary, sdk("fabrikam.example") as secondary:
        client = PairedServiceBusClient(primary, secondary, SendAvailabilityOptions(state_directory=""))
        sender: Any = client.get_queue_sender("orders")
        sender._own._running = True
        assert sender._opened(3.5) == pytest.approx(told_s, abs=0.1)
        sender._own._running = False
