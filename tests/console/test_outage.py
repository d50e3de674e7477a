"""The console of the secondary while the primary is gone: it waits for nobody, and says where things stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from console.conftest import Scene, appears, make_pair, shows
from support.broker import BrokerProcess
from support.browser import click
from support.pair_scene import QUICK
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A pair that may be broken."""
    primary, secondary = make_pair(tmp_path_factory.mktemp("outage"))
    with primary, secondary:
        primary.create_queue("known-before")
        secondary.create_queue("contoso/x-servicebus-transfer/0")
        yield primary, secondary


async def test_every_page_is_there_while_the_primary_is_gone(scene: Scene) -> None:
    async with scene.visitor("pair", broker=scene.secondary) as opened:
        page = opened.page
        await appears(page, ".standing", "primary, and the backlog")
        scene.primary.kill()
        await appears(page, ".standing", "does not answer")
        for address in ("pair", "entities", "entities?side=both", "messages", "system"):
            answer = await page.request.get(scene.url(address, scene.secondary))
            assert answer.status == 200, address
        await page.goto(scene.url("entities?side=both", scene.secondary))
        assert "'contoso' does not answer" in await page.inner_text(".notice")
        assert "known-before" in await page.inner_text("tbody")
        assert await page.inner_text("#pair-mark") == "failing"
    scene.primary.start()


async def test_a_whole_outage_is_watched(scene: Scene) -> None:
    """With a real paired client that sends, diverts, and brings its own messages home."""
    queue, sent = scene.primary.create_queue("orders"), 0
    client = PairedServiceBusClient.from_connection_strings(
        scene.primary.connection_string(),
        scene.secondary.connection_string(),
        SendAvailabilityOptions(**QUICK, enable_syphon=True),
        primary_name="contoso",
    )

    async def send(sender: Any) -> bool:
        nonlocal sent
        try:
            await sender.send_messages(ServiceBusMessage(f"order {sent}", message_id=f"order-{sent}"))
        except ServiceBusError:
            return False
        sent += 1
        return True

    async with (
        client,
        client.get_queue_sender(queue) as sender,
        scene.visitor("pair", broker=scene.secondary) as opened,
    ):
        page = opened.page
        assert await send(sender)
        await appears(page, ".standing", "Normal")
        await appears(page, "svg.picture", "1 paired alive")
        scene.primary.kill()
        while client.status().diverted < 3:
            await send(sender)
        await appears(page, ".standing", "Diverted")
        await appears(page, "svg.picture", "1 divert now")
        await appears(page, "svg.picture", "backlog 3")
        await appears(page, "#where", "next ping")
        await appears(page, "#incidents", "goes on")
        assert "does not answer" in (await page.text_content("svg.picture") or "")
        scene.primary.start()
        await appears(page, ".standing", "Normal")
        await appears(page, "svg.picture", "3 brought home")
        await shows(page, "#balance", lambda lines: lines.count("Δ 0") == 2 and "accepted 3" in lines)
        await shows(page, "#incidents", lambda lines: "goes on" not in lines)
        await click(page, "#incidents tbody a >> nth=0")
        await appears(page, "#incident", "Diverted")
        states = await page.inner_text("#incident table")
        assert "diverted" in states
        assert states.rindex("normal") > states.rindex("diverted")
        assert "goes on" not in await page.inner_text("#incident")
        number = page.url.partition("id=")[2]
        exported = await (await page.request.get(scene.url(f"incident.json?id={number}", scene.secondary))).json()
        assert exported["counts"]["diverted"] == 3
        assert exported["ended_at"] is not None
        saved = await page.request.get(scene.url(f"incident.html?id={number}", scene.secondary))
        assert saved.headers["content-disposition"].startswith("attachment")
        assert "<script" not in await saved.text()
    assert scene.primary.count(queue) == sent
    scene.secondary.stop()
    scene.secondary.start()
    async with scene.visitor(f"incident?id={number}", broker=scene.secondary) as opened:
        await appears(opened.page, "#incident", "diverted")  # A restart does not forget it.


async def test_a_namespace_that_is_down_on_purpose_still_has_a_console_that_can_lift_it(scene: Scene) -> None:
    async with scene.visitor("system") as opened:
        page = opened.page
        await page.select_option("[name=fault]", "namespace-down")
        await page.fill("[name=confirm]", "contoso")
        await click(page, "text=Begin")
        assert "namespace-down" in await page.inner_text("main")
        await click(page, "text=Lift")
        await page.wait_for_selector("text=Messaging stores")
