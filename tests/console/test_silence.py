"""No page waits for a dead namespace longer than 300 ms, whichever it is and however soon it is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.inside import inside, measured, silent

PAGES = ("entities?side=both", "pair", "entities", "messages", "incidents", "system", "new")
PATIENCE_S = 0.3


@pytest.mark.asyncio
async def test_no_page_waits_longer_than_300_ms_for_a_partner_that_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with silent() as address, measured(monkeypatch, address) as waits, inside(tmp_path, address) as broker:
        await broker.sign_in()
        for page in PAGES:  # The first of them while nothing at all is known of the partner yet.
            await broker.page(page)
        assert len(waits.by_page) > len(PAGES)
        assert waits.too_long(PATIENCE_S) == {}
        assert max(waits.by_page.values()) >= PATIENCE_S - 0.02  # Somebody did wait, so that something was measured.
        assert "tells nothing: no answer within 300 ms" in await broker.page("entities?side=both")


@pytest.mark.asyncio
async def test_a_namespace_of_its_own_that_says_nothing_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.console.site.OWN_PATIENCE_S", 0.8)
    async with silent() as address, inside(tmp_path, address) as broker:
        await broker.sign_in()
        broker.broker.hosted[0].namespace.suffering.is_blackholed = True
        try:
            await broker.page("messages")  # It may be busy: so it is given more time, this once.
            async with measured(monkeypatch, broker.address) as waits:
                for page in PAGES:
                    await broker.page(page)
            assert waits.too_long(PATIENCE_S) == {}
        finally:
            broker.broker.hosted[0].namespace.suffering.is_blackholed = False
