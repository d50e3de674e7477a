"""A client that starts in an outage, for the first time, at an address that nobody else uses for the primary.

Its backlog queues are called after the address. A syphon that reaches the primary elsewhere finds them all the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.pair_scene import QUICK, Scene, until
from support.ports import free_ports
from twinbus.client.diverting import MeantFor, divert
from twinbus.client.messages import build
from twinbus.faults.proxy import Mode
from twinbus.pair import SendAvailabilityOptions
from twinbus.pair.aio import PairedServiceBusClient
from twinbus.pair.backlog import making
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.errors import PairingError
from twinbus.pair.namespace.port import Identity
from twinbus.pair.survey import survey, syphons
from twinbus.pair.syphon.standalone import StandaloneSyphon

OPTIONS = SendAvailabilityOptions(**{**QUICK, "failover_interval": 0, "announce": False})


@pytest.mark.parametrize("is_asked", [True, False], ids=["the primary answers", "the primary is away"])
async def test_what_waits_under_an_address_is_shown_and_comes_home(scene: Scene, is_asked: bool) -> None:
    queue = scene.queue()
    strings = scene.primary.connection_string(), scene.secondary.connection_string()
    elsewhere = PairDescription(*map(NamespaceDescription, strings), OPTIONS)
    scene.proxy.set(Mode.REFUSE)
    async with PairedServiceBusClient.from_connection_strings(
        scene.connection_string(), scene.secondary.connection_string(), OPTIONS
    ) as client:
        sender = client.get_queue_sender(queue)
        assert await scene.send(sender, "diverted")
        provisional = client.status().primary
        assert provisional != "contoso"
        if not is_asked:
            scene.primary.kill()
        found = await survey(elsewhere)
        shown = {each.name: each for each in found.queues or [] if each.messages}
        assert [each.partition("/")[0] for each in shown] == [provisional]
        assert len(found.stranded) == 1
        if not is_asked:
            scene.primary.start()
        scene.proxy.set(Mode.PASS)
        pairing = client._core.background.pairing
        await until(lambda: client.status().primary == "contoso" and pairing.is_complete, "the primary's name")

    async with StandaloneSyphon(elsewhere) as syphon:
        await syphon.pair()
        progress = await syphon.drain()
    assert progress.moved == {queue: 1}


async def test_a_syphon_that_waits_for_the_primary_is_shown(scene: Scene) -> None:
    """It was not able to ask whose queues it is to drain."""
    nobody = scene.primary.connection_string().replace(f":{scene.primary.amqp_port};", f":{free_ports(1)[0]};")
    strings = nobody, scene.secondary.connection_string()
    description = PairDescription(*map(NamespaceDescription, strings), replace(OPTIONS, announce=True))
    async with StandaloneSyphon(description) as syphon:
        with pytest.raises(PairingError):
            await syphon.pair()
        async with asyncio.timeout(30):
            while not (shown := syphons((await survey(description)).clients or [])):
                await asyncio.sleep(0.02)
    assert shown[0]["state"]["syphon"]["waits_for"] == "primary"


async def test_what_waits_for_one_of_another_name_in_the_same_place_comes_home(scene: Scene) -> None:
    """The primary was made anew, and its address is what its senders know."""
    queue, former = scene.queue(), f"former-{scene.name}"
    strings = scene.primary.connection_string(), scene.secondary.connection_string()
    elsewhere = PairDescription(*map(NamespaceDescription, strings), OPTIONS)
    primary, secondary = elsewhere.namespaces()
    try:
        (backlog,) = (await making.have(secondary, Identity(former, "its-id"), primary, 1)).queues
        meant_for = MeantFor("its-id", primary.reached_at)
        await secondary.send(backlog, [divert(build(b"x", message_id="diverted"), queue, meant_for=meant_for)])
    finally:
        await primary.close()
        await secondary.close()
    found = await survey(elsewhere)
    assert [(each.name, each.state) for each in found.queues or [] if each.messages] == [(backlog, "former")]
    async with StandaloneSyphon(elsewhere) as syphon:
        await syphon.pair()
        progress = await syphon.drain()
    assert progress.moved == {queue: 1}
