"""A syphon while the primary, or one of its entities, takes nothing: it waits, says so, and begins at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.pair_scene import QUICK, Scene, until
from twinbus.client import connect, messages
from twinbus.client.diverting import divert
from twinbus.faults.proxy import Mode
from twinbus.pair import SendAvailabilityOptions
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.syphon.standalone import StandaloneSyphon

OPTIONS: dict[str, Any] = {"backlog_queue_count": 1, "poll": 900, "syphon_pause": 60, "announce": False}


@asynccontextmanager
async def syphon(scene: Scene, primary: str | None = None, **options: Any) -> AsyncIterator[StandaloneSyphon]:
    """One with a process of its own in earnest: it has no client whose pings would wake it."""
    chosen = SendAvailabilityOptions(**{**QUICK, **OPTIONS, **options})
    description = PairDescription(
        NamespaceDescription(primary or scene.connection_string(), name=scene.name),
        NamespaceDescription(scene.secondary.connection_string()),
        chosen,
    )
    async with StandaloneSyphon(description) as run:
        await run.pair()
        yield run


async def put(scene: Scene, run: StandaloneSyphon, destination: str, ids: list[str]) -> str:
    """Messages in the backlog queue, as a paired sender would leave them."""
    assert run.paired is not None
    (backlog,) = run.paired.queues
    payloads = [divert(messages.build(b"x", message_id=message_id), destination) for message_id in ids]
    async with connect(scene.secondary.connection_string()) as connection:
        await (await connection.sender(backlog)).send(payloads)
    return backlog


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.SILENT])
async def test_draining_begins_within_a_second_of_the_primarys_return(scene: Scene, mode: Mode) -> None:
    """A `syphon_pause` of a minute does not matter, nor that attempts to connect hang for ever."""
    queue = scene.queue()
    ids = [f"m{number}" for number in range(50)]
    async with syphon(scene) as run:
        scene.proxy.set(mode)
        await put(scene, run, queue, ids)
        run.start()
        if mode is Mode.SILENT:
            run.primary.timeout_s = 0.5  # Of the first send; a look has its own patience.
        record = run._record
        await until(lambda: record()["syphon"]["waits_for"] == "primary", "the loss")
        run.primary.timeout_s = 20.0
        await asyncio.sleep(1.2)
        assert record()["syphon"]["next_try_in_s"] <= 0.5
        assert record()["syphon"]["moved"] == 0
        scene.proxy.set(Mode.PASS)
        back = time.monotonic()
        await until(lambda: bool(run.progress.moved), "the first lot", 10)
        assert time.monotonic() - back < 2.0  # A second, and what a busy machine adds.
        await scene.receive(queue, 50)
        assert record()["syphon"]["waits_for"] is None

    assert scene.received == dict.fromkeys(ids, 1)


async def test_a_queue_that_is_made_after_the_primarys_return_gets_everything(scene: Scene) -> None:
    name = f"{scene.name}-later"
    ids = [f"m{number}" for number in range(200)]
    async with syphon(scene) as run:
        backlog = await put(scene, run, name, ids)
        run.start()
        await until(lambda: "waits until" in (run.progress.problem or ""), "the wait")
        assert f"for '{name}' to be made" in run._record()["syphon"]["blocked"][name]
        await asyncio.sleep(0.6)
        scene.primary.create_queue(name)
        made = time.monotonic()
        await until(lambda: run.progress.moved.total() == 200, "all of them", 10)
        assert time.monotonic() - made < 5
        assert run.progress.problem is None
    await scene.receive(name, 200)

    assert scene.received == dict.fromkeys(ids, 1)
    assert scene.secondary.count(backlog, "DeadLetterMessageCount") == 0


async def test_a_queue_that_is_never_made_ends_the_wait_with_a_clear_word(scene: Scene) -> None:
    async with syphon(scene, missing_entity_wait=1) as run:
        backlog = await put(scene, run, "never-made", ["a", "b"])
        run.start()
        began = time.monotonic()
        await until(lambda: run.progress.dead == 2, "the end of the wait", 10)
        assert time.monotonic() - began >= 1
        assert run.progress.problem is None
    async with connect(scene.secondary.connection_string()) as connection:
        receiver = await connection.receiver(f"{backlog}/$deadletterqueue")
        (first, *_) = await receiver.receive(2, 5)
    dead = messages.read(first.payload)
    assert "'never-made' was not made within 1 s" in (dead.dead_letter_description or "")


async def test_a_topic_in_the_place_of_the_queue_takes_them(scene: Scene) -> None:
    topic = f"{scene.name}-topic"
    scene.primary.request("PUT", f"/{topic}?api-version=2021-05", _TOPIC)
    async with syphon(scene) as run:
        await put(scene, run, topic, ["a"])
        run.start()
        await until(lambda: run.progress.moved[topic] == 1, "the way home", 10)


async def test_a_key_without_the_send_right_waits_and_does_not_bury(scene: Scene) -> None:
    """The operator gives the right, and everything comes home."""
    status, text = scene.primary.request(
        "POST", "/$api/policies", body=json.dumps({"name": scene.name[:40], "rights": ["Listen"]})
    )
    assert status == 200, text
    made = json.loads(text)
    queue = scene.queue()
    listens = scene.primary.connection_string(made["name"], made["primary_key"])
    async with syphon(scene, listens) as run:
        backlog = await put(scene, run, queue, ["a", "b"])
        run.start()
        await until(lambda: bool(run.progress.problems.get(queue)), "the refusal", 10)
        assert run.progress.dead == 0
        body = json.dumps({"rights": ["Send"]})
        assert scene.primary.request("PUT", f"/$api/policies/{made['name']}", body=body)[0] == 200
        await until(lambda: run.progress.moved[queue] == 2, "the way home", 15)
    assert scene.secondary.count(backlog, "DeadLetterMessageCount") == 0


_TOPIC = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<TopicDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/>'
    "</content></entry>"
)
