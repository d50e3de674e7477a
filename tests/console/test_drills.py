"""Drills through the JSON API and in the browser, with a program that stands in for `twinbus drill`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from console.conftest import appears
from console.inside import KEY, POLICY, Inside, inside, silent
from support.browser import browser, click, tab

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMAND = (sys.executable, str(Path(__file__).with_name("stand_in_drill.py")))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with silent() as address, inside(tmp_path_factory.mktemp("drills"), address, COMMAND) as started:
        yield started


async def until(broker: Inside, drill: str, *states: str) -> Any:
    for _ in range(1000):
        _, record = await broker.api("GET", f"drills/{drill}")
        if record["state"] in states and (record["state"] == "ended" or "points" in record):
            return record
        await asyncio.sleep(0.05)
    raise AssertionError(record)


async def test_a_drill_is_begun_watched_and_aborted(broker: Inside) -> None:
    status, begun = await broker.api("POST", "drills", {"scenario": "outage", "for": 5, "rate": 50})
    assert status == 202
    drill = begun["id"]
    record = await until(broker, drill, "running")
    assert (record["scenario"], record["report"]) == ("outage", False)
    assert (await broker.api("POST", "drills", {"scenario": "quick"}))[0] == 409
    assert (await broker.api("GET", f"drills/{drill}/report"))[0] == 404
    assert (await broker.api("DELETE", f"drills/{drill}"))[0] == 200
    record = await until(broker, drill, "aborted")
    assert record["why"] == "Somebody aborted it."
    assert len(record["points"]) > 2
    status, report = await broker.api("GET", f"drills/{drill}/report")
    assert (status, "The report of outage" in report) == (200, True)
    assert (await broker.api("DELETE", f"drills/{drill}"))[0] == 409


async def test_one_that_is_gone_without_a_word_has_ended_without_a_verdict(broker: Inside) -> None:
    _, begun = await broker.api("POST", "drills", {"scenario": "vanish"})
    record = await until(broker, begun["id"], "ended")
    assert (record["verdict"], record["why"]) == (None, "it could not be: no such scenario")
    status, listed = await broker.api("GET", "drills")
    assert (status, listed["allowed"]) == (200, True)
    assert listed["drills"][0]["id"] == begun["id"]
    assert "points" not in listed["drills"][0]


@pytest.mark.parametrize(
    "wanted",
    [{}, {"scenario": "--help"}, {"scenario": "outage", "for": 0}, {"scenario": "outage", "rate": "fast"},
     {"scenario": "outage", "dry_run": 1}, {"scenario": "outage", "colour": "red"}],
)  # fmt: skip
async def test_what_cannot_be_is_refused(broker: Inside, wanted: dict[str, Any]) -> None:
    assert (await broker.api("POST", "drills", wanted))[0] == 400


@pytest.mark.parametrize("drill", ["nothing", "..", "20261116t060000000-abcdef"])
async def test_one_that_there_is_not_is_not_found(broker: Inside, drill: str) -> None:
    assert (await broker.api("GET", f"drills/{drill}"))[0] == 404
    assert (await broker.api("GET", f"drills/{drill}/report"))[0] == 404


async def test_a_drill_in_the_browser(broker: Inside) -> None:
    async with browser() as opened, tab(opened, broker.url("sign-in?next=/$console/incidents")) as shown:
        page = shown.page
        await page.fill("[name=policy]", POLICY)
        await page.fill("[name=key]", KEY)
        await click(page, "button.main")
        await click(page, "text=Start >> nth=-1")
        assert "type the name 'contoso'" in await page.inner_text("main")
        shown.problems.clear()  # The browser says that one answer was 400.
        await page.goto(broker.url("incidents"))
        await page.check("[name=dry_run]")
        await click(page, "text=Start >> nth=-1")
        await appears(page, "#drill", "ready")
        assert "the primary is gone <script>" in await page.inner_text("#drill")
        assert "(dry run)" in await page.inner_text("h1")
        await click(page, "text=Incidents and drills >> nth=0")
        await page.fill("[name=confirm]", "contoso")
        await click(page, "text=Start >> nth=-1")
        await appears(page, "#drill", "the primary is gone <script>")
        before = await page.inner_text(".tile strong")
        await page.wait_for_selector(f".tile strong:not(:text-is('{before}'))")
        await click(page, "text=Abort")
        await appears(page, "#drill", "Somebody aborted it.")
        await click(page, "text=Open the report")
        assert "The report of outage" in await page.inner_text("h1")
        assert await page.evaluate("window.hit") is None
        shown.problems.clear()  # The report's script was refused, and the browser says so.
        await page.goto(broker.url("incidents"))
        assert "aborted" in await page.inner_text("#drills")
        assert await page.evaluate("window.hit") is None
        assert shown.problems == []
