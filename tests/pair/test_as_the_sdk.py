"""A paired client is used as the SDK's own: the same mistakes, the same `with`, made from one connection string."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus import aio as sdk_aio
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

import twinbus.pair
import twinbus.pair.aio
from support.pair_scene import QUICK, Scene
from twinbus.faults.frames import Says
from twinbus.faults.proxy import Mode, Toward
from twinbus.pair import NotWhileDivertedError, SendAvailabilityOptions

LATER = datetime.now(UTC) + timedelta(days=1)
LIMIT = 262_144


class Flavour:
    """The blocking client or the one for asyncio, used alike."""

    def __init__(self, name: str) -> None:
        self.is_sync = name == "sync"
        self.sdk: Any = ServiceBusClient if self.is_sync else sdk_aio.ServiceBusClient
        self.paired: Any = (twinbus.pair if self.is_sync else twinbus.pair.aio).PairedServiceBusClient

    async def do(self, call: Callable[[], Any]) -> Any:
        """Call, and wait for it, without a stop of this loop: the proxy runs on it."""
        done = await asyncio.to_thread(call) if self.is_sync else call()
        return await done if inspect.isawaitable(done) else done

    @asynccontextmanager
    async def pair(self, scene: Scene, **options: Any) -> AsyncIterator[Any]:
        """A pair whose way to the primary is through the proxy."""
        client = self.paired.from_connection_strings(
            scene.connection_string(),
            scene.secondary.connection_string(),
            SendAvailabilityOptions(**{**QUICK, "attempts": 1, "failover_interval": 0, **options}),
            primary_name=scene.name,
            on_change=scene.changes.append,
            on_diverted=scene._was_diverted,
        )
        await self.do(client.__enter__ if self.is_sync else client.__aenter__)
        try:
            yield client
        finally:
            await self.do(client.close)


@pytest.fixture(params=["sync", "aio"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return Flavour(request.param)


def plain(body: bytes = b"x", **settings: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, **settings)


def of_size(size: int, message_id: str = "m") -> ServiceBusMessage:
    """A message that is so large on the wire."""
    return plain(b"x" * (size - 28 - len(message_id)), message_id=message_id)


# What is wrong, whether to a queue with sessions, and the call.
Mistakes = dict[str, tuple[bool, Callable[[Any], Any]]]
MISTAKES: Mistakes = {
    "no session": (True, lambda sender: sender.send_messages(plain())),
    "one of a list without": (True, lambda sender: sender.send_messages([plain(session_id="s"), plain()])),
    "no time": (False, lambda sender: sender.send_messages(plain(), timeout=0)),
    "less than no time": (False, lambda sender: sender.send_messages(plain(), timeout=-1)),
    "one byte too large": (False, lambda sender: sender.send_messages(of_size(LIMIT + 1))),
    "3,000 bytes too large": (False, lambda sender: sender.send_messages(of_size(LIMIT + 3000))),
    "a list too large": (False, lambda sender: sender.send_messages([of_size(LIMIT // 2), of_size(LIMIT // 2)])),
    "no value": (False, lambda sender: sender.send_messages(plain(application_properties={"a": object()}))),
    "no number": (False, lambda sender: sender.send_messages(plain(application_properties={"a": 2**70}))),
    "in a list": (False, lambda sender: sender.send_messages([plain(application_properties={"a": 2**70})])),
    "no name": (False, lambda sender: sender.send_messages(plain(application_properties={1: 2}))),
    "a life before birth": (False, lambda sender: sender.send_messages(plain(time_to_live=timedelta(seconds=-5)))),
    "no text": (False, lambda sender: sender.send_messages(plain(subject="\ud800"))),
    "no message": (False, lambda sender: sender.send_messages("hello")),
    "a huge batch": (False, lambda sender: sender.create_message_batch(10**9)),
    "scheduled in no time": (False, lambda sender: sender.schedule_messages(plain(), LATER, timeout=0)),
    "nothing scheduled": (False, lambda sender: sender.schedule_messages("hello", LATER)),
}
# Which only the primary can know.
AT_THE_PRIMARY: Mistakes = {
    "a number that is gone": (False, lambda sender: sender.cancel_scheduled_messages(4711)),
    "scheduled without a session": (True, lambda sender: sender.schedule_messages(plain(), LATER)),
}


async def raised(flavour: Flavour, client: Any, queues: tuple[str, str], mistakes: Mistakes) -> dict[str, type]:
    """What each mistake raises; each is made with a sender of its own, and all at once, as the SDK takes its time."""

    async def make(sessions: bool, call: Callable[[Any], Any]) -> type:
        sender = client.get_queue_sender(queues[sessions])
        with pytest.raises((ServiceBusError, TypeError, ValueError)) as caught:
            await flavour.do(lambda: call(sender))
        return caught.type

    found = await asyncio.gather(*(make(*mistake) for mistake in mistakes.values()))
    return dict(zip(mistakes, found, strict=True))


async def test_mistakes_raise_as_in_the_bare_sdk_and_fail_nothing_over(scene: Scene, flavour: Flavour) -> None:
    queues = queue, sessions = scene.queue(), scene.queue(RequiresSession=True)
    everything = MISTAKES | AT_THE_PRIMARY
    bare = flavour.sdk.from_connection_string(scene.primary.connection_string(), retry_total=0)
    expected = await raised(flavour, bare, queues, everything)
    await flavour.do(bare.close)

    async with flavour.pair(scene) as client:
        assert await raised(flavour, client, queues, everything) == expected
        assert (client.status().ill, client.status().diverted) == ({}, 0)

        scene.proxy.set(Mode.REFUSE)
        ours = client.get_queue_sender(queue), client.get_queue_sender(sessions)
        await flavour.do(lambda: ours[0].send_messages(plain()))
        await flavour.do(lambda: ours[1].send_messages(plain(session_id="s")))
        assert client.status().diverted == 2
        assert await raised(flavour, client, queues, MISTAKES) == {name: expected[name] for name in MISTAKES}
        refused = await raised(flavour, client, queues, AT_THE_PRIMARY)
        assert set(refused.values()) == {NotWhileDivertedError}
        closed = client.get_queue_sender(queue)
        await flavour.do(closed.close)
        with pytest.raises(ValueError, match="shutdown"):
            await flavour.do(lambda: closed.send_messages(plain()))
        outcomes = await flavour.do(lambda: ours[1].send_many([plain(session_id="s"), plain(), plain(session_id="s")]))
        assert [type(outcome.error) for outcome in outcomes] == [type(None), ServiceBusError, type(None)]
        assert client.status().diverted == 4
    assert sum(scene.backlog().values()) == 4


@pytest.mark.parametrize("over", [1, 3000])
async def test_a_client_that_never_saw_its_primary_refuses_what_is_too_large(scene: Scene, over: int) -> None:
    queue = scene.queue()
    scene.proxy.set(Mode.REFUSE)
    async with scene.client(failover_interval=0, attempts=1) as client:
        sender = client.get_queue_sender(queue)
        await sender.send_messages(of_size(LIMIT))
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(of_size(LIMIT + over))

    assert sum(scene.backlog().values()) == 1


async def test_what_an_ordered_send_refuses_it_refuses_as_a_whole(scene: Scene) -> None:
    queue = scene.queue()
    async with scene.client(ordered=True, failover_interval=0, attempts=1) as client:
        sender = client.get_queue_sender(queue)
        for is_diverted in (False, True):
            good, bad = plain(session_id="s"), plain(session_id="s", application_properties={1: 2})
            with pytest.raises(ServiceBusError) as caught:
                await sender.send_messages([good, bad] if is_diverted else [bad])
            assert caught.type is ServiceBusError
            scene.proxy.set(Mode.REFUSE)
            if not is_diverted:
                await sender.send_messages(good)
        assert client.status().diverted == 1


async def test_with_opens_the_link_of_a_sender(scene: Scene, flavour: Flavour) -> None:
    queue = scene.queue()
    async with flavour.pair(scene) as client:
        sender = client.get_queue_sender(queue)
        await flavour.do(sender.__enter__ if flavour.is_sync else sender.__aenter__)
        attached = scene.proxy.seen[Toward.BROKER, Says.ATTACH]
        await flavour.do(lambda: sender.send_messages(plain()))
        assert sender._running
        assert scene.proxy.seen[Toward.BROKER, Says.ATTACH] == attached
        await flavour.do(sender.close)
        with pytest.raises(ValueError, match="shutdown"):
            await flavour.do(sender.__enter__ if flavour.is_sync else sender.__aenter__)
        missing = client.get_queue_sender("nobody-made-this")
        with pytest.raises(ServiceBusError):
            await flavour.do(missing.__enter__ if flavour.is_sync else missing.__aenter__)
        assert client.status().ill == {}


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.SILENT])
async def test_with_goes_on_without_a_primary(scene: Scene, flavour: Flavour, mode: Mode) -> None:
    queue = scene.queue()
    scene.proxy.set(mode)
    async with flavour.pair(scene, attempt_timeout=0.5) as client:
        sender = client.get_queue_sender(queue)
        began = time.monotonic()
        await flavour.do(sender.__enter__ if flavour.is_sync else sender.__aenter__)
        assert time.monotonic() - began < 2
        await flavour.do(lambda: sender.send_messages(plain(message_id="m")))
        assert scene.diverted == {"m"}
        await flavour.do(sender.close)


async def test_one_connection_string_and_a_setting_make_a_pair(
    scene: Scene, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = scene.queue(RequiresSession=True)
    monkeypatch.delenv("TWINBUS_SECONDARY", raising=False)
    with pytest.raises(TypeError, match="TWINBUS_SECONDARY"):
        flavour.paired.from_connection_string(scene.connection_string())
    monkeypatch.setenv("TWINBUS_SECONDARY", scene.secondary.connection_string())
    options = SendAvailabilityOptions(**{**QUICK, "attempts": 1, "failover_interval": 0})
    client = flavour.paired.from_connection_string(
        scene.connection_string(), options=options, primary_name=scene.name, on_diverted=scene._was_diverted
    )
    sender = client.get_queue_sender(queue)
    await flavour.do(lambda: sender.send_messages(plain(session_id="s")))
    if hasattr(flavour.sdk, "list_queue_sessions"):  # Since 7.15.
        found = client.list_queue_sessions(queue)
        assert ([each async for each in found] if not flavour.is_sync else await asyncio.to_thread(list, found)) == [
            "s"
        ]
    scene.proxy.set(Mode.REFUSE)
    await flavour.do(lambda: sender.send_messages(plain(session_id="s", message_id="m")))
    await flavour.do(client.close)
    assert scene.diverted == {"m"}
