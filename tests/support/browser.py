"""A real browser for tests: the system's Chromium without a window, and pages whose own complaints are kept.

What a page must show is judged by the tests. Where there is no Chromium, they are skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support import optional

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

# The last such list counts, so it repeats those of Playwright's that matter here. The first two are about pages of the
# browser's own, which it would prepare for the address bar of each window that nobody sees.
WITHOUT = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "AimEnabled",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
FLAGS = (
    "--no-sandbox",  # Tests may be run by root, whom its sandbox refuses.
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    # It speaks to nobody but the pages under test.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(WITHOUT)}",
)


@dataclass(slots=True)
class Tab:
    """A page, with what it threw and what it wrote to its console as an error."""

    page: Page
    problems: list[str] = field(default_factory=list)


async def click(page: Page, selector: str) -> None:
    """Click, and wait for the page that this leads to, if it leads to one."""
    await page.click(selector)
    await page.wait_for_load_state()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser with a profile of its own, which is gone afterwards."""
    optional.needs("browser")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=optional.chromium(), args=FLAGS)
        try:
            yield started
        finally:
            await started.close()


@asynccontextmanager
async def tab(browser: Browser, url: str, **options: object) -> AsyncIterator[Tab]:
    """A page in a context of its own: no cookie or storage of another test. `options` are those of the context."""
    async with await browser.new_context(**options) as context:  # type: ignore[arg-type]
        opened = Tab(await context.new_page())
        opened.page.on("pageerror", lambda error: opened.problems.append(str(error)))
        opened.page.on(
            "console", lambda message: opened.problems.append(message.text) if message.type == "error" else None
        )
        await opened.page.goto(url)
        yield opened
