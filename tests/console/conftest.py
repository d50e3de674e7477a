"""A pair of brokers for all tests here, and a browser for each module; whoever takes a broker away has its own pair."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from support.broker import BrokerProcess
from support.browser import Tab, browser, click, tab

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

BATCH = "application/vnd.microsoft.servicebus.json"
LISTENER_KEY = "a-key-that-may-only-listen"
DRILL = "20261116t060000000-abcdef"
SENDER_KEY = "a-key-that-may-only-send"
CONFIG = f"""
[[policies]]
Name = "listener"
Rights = ["Listen"]
PrimaryKey = "{LISTENER_KEY}"

[[policies]]
Name = "sender"
Rights = ["Send"]
PrimaryKey = "{SENDER_KEY}"
"""


@dataclass
class Scene:
    """Two brokers whose consoles know the pair, and a browser."""

    primary: BrokerProcess
    secondary: BrokerProcess
    browser: Browser
    hosts: set[str] = field(default_factory=set)  # Whom pages have asked for anything.

    def url(self, page: str = "", broker: BrokerProcess | None = None) -> str:
        return f"http://127.0.0.1:{(broker or self.primary).http_port}/$console/{page}"

    @asynccontextmanager
    async def visitor(
        self,
        page: str = "",
        *,
        policy: str | None = None,
        key: str | None = None,
        broker: BrokerProcess | None = None,
        **options: Any,
    ) -> AsyncIterator[Tab]:
        """A page in a browser of somebody who has signed in; it must end without a complaint in its console."""
        at = broker or self.primary
        async with tab(self.browser, self.url("sign-in", at), **options) as opened:
            opened.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
            if policy is not None:
                await opened.page.fill("[name=policy]", policy)
            await opened.page.fill("[name=key]", key or at.connection_string())
            await click(opened.page, "button.main")
            await opened.page.wait_for_selector("header nav")
            if page:
                await opened.page.goto(self.url(page, at))
            yield opened
            assert opened.problems == []

    def send(self, entity: str, bodies: list[str], **settings: Any) -> None:
        """Messages over REST."""
        messages = [
            {"Body": body, "BrokerProperties": {"MessageId": f"{entity}-{at}", **settings.get("system", {})},
             "UserProperties": {"number": at, **settings.get("user", {})}}
            for at, body in enumerate(bodies)
        ]  # fmt: skip
        status, text = self.primary.request(
            "POST", f"/{entity}/messages", json.dumps(messages), {"Content-Type": BATCH}
        )
        assert status == 201, text

    def expire(self, entity: str, bodies: list[str], **settings: Any) -> None:
        """Dead letters: messages that live for ten minutes, and ten minutes that pass."""
        self.send(entity, bodies, system={"TimeToLive": 600}, **settings)
        status, text = self.primary.request("POST", "/$api/clock", '{"advance": "PT601S"}')
        assert status == 200, text

    def api(self, method: str, path: str, document: Any = None, broker: BrokerProcess | None = None) -> Any:
        """A request to the JSON API."""
        body = None if document is None else json.dumps(document)
        status, text = (broker or self.primary).request(method, f"/$api/{path}", body)
        assert status == 200, text
        return json.loads(text)


async def appears(page: Page, selector: str, words: str, timeout_s: float = 60.0) -> None:
    """Wait until an element has words in it; the page's policy allows no function that could be asked."""
    await page.locator(selector).filter(has_text=words).first.wait_for(timeout=timeout_s * 1000)


async def shows(page: Page, selector: str, is_so: Callable[[str], bool]) -> None:
    """Wait until the text of an element that is kept up to date is as it shall be."""
    for _ in range(600):
        text = await page.inner_text(selector)
        if is_so(text):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(text)


def make_pair(directory: Path) -> tuple[BrokerProcess, BrokerProcess]:
    """Two brokers that are told of each other."""
    primary = BrokerProcess(
        directory / "primary", namespace="contoso", config=CONFIG, options=("--faults", "--test-clock")
    )
    secondary = BrokerProcess(directory / "secondary", namespace="fabrikam")
    described = directory / "pair.toml"
    described.write_text(
        f'[primary]\nname = "contoso"\nconnection_string = "{primary.connection_string()}"\n'
        f'[secondary]\nconnection_string = "{secondary.connection_string()}"\n'
    )
    for broker in (primary, secondary):
        broker.options += ("--console-pair", str(described))
    return primary, secondary


def add_history(data: Path) -> None:
    """An incident and a drill that were there before the broker started; both with a script in their words."""
    evil = "<script>window.hit=5</script>"
    at = "2026-11-16T06:00:{:02}Z".format
    states = (("failing", 0), ("diverted", 4), ("draining", 30), ("normal", 40))
    points = [
        {"at": at(second), "state": [name for name, since in states if since <= max(0, second)][-1],
         "arriving": 0 if 2 <= second < 30 else 20,
         "backlog": max(0, min(second - 4, 26) * 12 - max(0, second - 30) * 31)}
        for second in range(0, 42, 2)
    ]  # fmt: skip
    incident = {
        "id": "aa11", "began_at": at(0), "ended_at": at(40), "why": f"The primary does not answer: {evil}.",
        "states": [{"at": at(second), "state": name, "why": f"So it was. {evil}"} for name, second in states],
        "counts": {"greatest_backlog": 312, "oldest_age_s": 26.0}, "points": points, "clients": {"c": [0, 312, 0, 312]},
    }  # fmt: skip
    drill = {
        "id": DRILL, "scenario": "outage", "state": "held", "dry_run": False, "began_at": at(0), "ended_at": at(44),
        "moments": [{"at_s": 3.1, "what": "The primary is taken away."}, {"at_s": 13.4, "what": f"It is back. {evil}"}],
        "counts": {"attempted": 880, "acknowledged": 880, "received": 880, "diverted": 312, "recovered": 312,
                   "lost": 0, "duplicated": 0},
        "times": {"divert": 2.2, "heal": 0.6, "drain": 1.9}, "why": None,
        "points": [{"at_s": second, "acknowledged": second * 20, "received": second * 20 - (0 if second < 5 else 60),
                    "diverted": min(312, max(0, second - 5) * 20)} for second in range(44)],
        "verdict": "It holds: all 880 acknowledged messages are accounted for, and the line balances.",
    }  # fmt: skip
    (data / "drills" / DRILL).mkdir(parents=True)
    (data / "incidents.jsonl").write_text(json.dumps(incident) + "\n")
    (data / "drills" / DRILL / "record.json").write_text(json.dumps(drill))
    (data / "drills" / DRILL / "report.html").write_text(f"<!doctype html><title>Report</title>{evil}")


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """The pair of all tests that leave it as it is."""
    primary, secondary = make_pair(tmp_path_factory.mktemp("console"))
    add_history(primary.data)
    with primary, secondary:
        yield primary, secondary


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(brokers: tuple[BrokerProcess, BrokerProcess]) -> AsyncIterator[Scene]:
    async with browser() as opened:
        yield Scene(*brokers, opened)
