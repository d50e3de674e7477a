"""What is set aside, in a browser: taken up again, moved, kept as a file, given up after its name was typed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import pytest_asyncio

from console.conftest import Scene, appears
from support.broker import BrokerProcess
from support.browser import browser, click

pytestmark = pytest.mark.asyncio(loop_scope="module")
FORGOTTEN = ("adopted", "moved", "given-up")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A namespace whose catalog has lost three of its queues."""
    broker = BrokerProcess(tmp_path_factory.mktemp("orphans"))
    async with browser() as opened:
        scene = Scene(broker, broker, opened)
        with broker:
            for queue in (*FORGOTTEN, "target"):
                broker.create_queue(queue)
                scene.send(queue, ["one", "two"])
            assert broker.stop() == 0
        catalog = apsw.Connection(str(broker.data / "catalog.db"))
        catalog.executemany("DELETE FROM entity WHERE name = ?", [(name,) for name in FORGOTTEN])
        catalog.close()
        with broker:
            yield scene


async def test_it_is_adopted_moved_kept_and_dropped(scene: Scene, tmp_path: Path) -> None:
    async with scene.visitor("system") as opened:
        page = opened.page
        for name in FORGOTTEN:
            await appears(page, "#inside", name)
        await click(page, "text=adopted")
        async with page.expect_download() as kept:
            await page.click("a:text('Export')")
        await (await kept.value).save_as(tmp_path / "kept.jsonl")
        lines = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
        assert [(line["message_id"], line["sub_queue"]) for line in lines] == [
            ("adopted-0", "main"),
            ("adopted-1", "main"),
        ]
        await click(page, "button:text('Adopt')")
        assert await page.inner_text("h1") == "adopted"
        assert scene.primary.count("adopted") == 2

        await page.goto(scene.url("system"))
        await click(page, "text=moved")
        await page.fill("[name=to]", "nowhere")
        await click(page, "button:text('Move')")
        assert "nowhere" in await page.inner_text(".notice")
        await page.fill("[name=to]", "target")
        await click(page, "button:text('Move')")
        assert (await page.inner_text("h1")).startswith("set-aside/moved-")
        assert scene.primary.count("target") in range(2, 5)

        await page.goto(scene.url("system"))
        await click(page, "text=given-up")
        await page.fill("[name=confirm]", "given up")
        await click(page, "button:text('Drop')")
        assert "Nothing was done" in await page.inner_text(".notice")
        await page.fill("[name=confirm]", "given-up")
        await click(page, "button:text('Drop')")
        await page.wait_for_selector("#inside")
        assert scene.api("GET", "orphans")["orphans"] == []
        assert "Set aside" not in await page.inner_text("main")
        opened.problems.clear()  # The browser says that two answers were 400.
