"""Every page as axe-core sees it, light and dark, and on a telephone; and with the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.conftest import DRILL, Scene
from support import optional

pytestmark = pytest.mark.asyncio(loop_scope="module")
AXE = Path(__file__).parents[1] / "compat" / "js" / "node_modules" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical")
PAGES = (
    "pair", "entities", "entities?side=both", "entity?name=seen", "entity?name=not-there", "new", "messages",
    "messages?entity=seen", "messages?entity=seen&sub_queue=dead-letter", "message?entity=seen&number=3",
    "message?entity=seen&sub_queue=dead-letter&number=1", "incidents", "incident?id=aa11", f"drill?id={DRILL}",
    "policies", "policy?name=RootManageSharedAccessKey", "policy?name=listener", "policy?name=not-there",
    "system", "no-such-page",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(scene: Scene) -> Scene:
    """Something is on every page."""
    name = scene.primary.create_queue("seen", DeadLetteringOnMessageExpiration="true")
    scene.expire(name, ["dead", "dead"])
    scene.send(name, ['{"order": 7}'])
    return scene


async def violations(page: Any, options: str) -> list[str]:
    """What is wrong with a page, in words, if it is grave."""
    found = await page.evaluate(f"axe.run(document, {options}).then((found) => found.violations)")
    return [
        f"{page.url}: {each['id']} ({each['impact']}) {node['html'][:160]}"
        for each in found
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]


async def looked_at(page: Any) -> list[str]:
    """What is wrong with a page: light, dark, where only the colours differ, and on a telephone."""
    await page.evaluate(AXE.read_text())
    found = await violations(page, "{}")
    await page.emulate_media(color_scheme="dark")
    found += await violations(page, "{runOnly: ['color-contrast', 'link-in-text-block']}")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": 390, "height": 800})
    width = await page.evaluate("document.documentElement.scrollWidth")
    await page.set_viewport_size({"width": 1280, "height": 800})
    return found if width <= 390 else [*found, f"{page.url} is {width} pixels wide on a telephone"]


async def test_nothing_grave_is_wrong_with_any_page(filled: Scene) -> None:
    optional.needs("node")  # axe-core is one of its packages.
    job = filled.api("POST", "jobs", {"work": "count", "entity": "seen"})
    found: list[str] = []
    async with filled.visitor() as opened:
        page = opened.page
        for address in (*PAGES, f"job?number={job['number']}&then=purge"):
            await page.goto(filled.url(address))
            found += await looked_at(page)
            assert (await page.title()).endswith("Twinbus")
            assert await page.locator("h1").count() == 1, address
        await page.context.clear_cookies()
        await page.goto(filled.url("sign-in"))
        found += await looked_at(page)
        opened.problems.clear()  # The browser says that some answers were 404.
    assert found == []


async def test_everything_can_be_reached_with_the_keyboard_and_is_seen_to_have_the_focus(filled: Scene) -> None:
    async with filled.visitor("incidents") as opened:
        page = opened.page
        reached = []
        for _ in range(30):
            await page.keyboard.press("Tab")
            at = await page.evaluate(
                """() => { const at = document.activeElement, style = getComputedStyle(at);
                           return [at.name || at.textContent.trim(), style.outlineStyle, style.outlineWidth]; }"""
            )
            if at[0] == "Start":
                break
            reached.append(at[0])
            assert at[1:] == ["solid", "2px"], at
        assert reached[0] == "Skip to the content"
        assert {"Pair", "System", "Sign out", "scenario", "for", "rate", "confirm", "dry_run"} <= set(reached)
