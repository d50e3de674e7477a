"""The door on a loopback port, in front of a namespace whose stores and catalog are in memory."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import ClientSession
from yarl import URL

from twinbus.admin.app import make_app
from twinbus.admin.probes import Finding
from twinbus.admin.server import bound_port, start_http
from twinbus.entities.hosting import Hosting, nobodys
from twinbus.entities.namespace import Namespace
from twinbus.model.errors import BusError
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.store.commands import Command, Count, Introduce, Record
from twinbus.store.quarantine import Witness
from twinbus.wire import sas, view
from twinbus.wire.markup import ATOM, INSTANCE, SERVICE_BUS

NOW_MS = 1_700_000_000_000
ROOT = AuthorizationRule("RootManageSharedAccessKey", "root-primary", "root-secondary", Rights.ALL)
LISTENER = AuthorizationRule("listener", "listen-primary", "listen-secondary", Rights.LISTEN)
SENDER = AuthorizationRule("sender", "send-primary", "send-secondary", Rights.SEND)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_ms = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms


class MemoryStore:
    """Remembers what it was asked, and counts what it is told to count."""

    pending_bytes = 0
    is_available = True

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.counts: dict[int, Counts] = {}
        self.error: BusError | None = None

    def submit(self, command: Command) -> None:
        if not isinstance(command, Introduce | Witness):  # What it is to remember, which nobody waits for.
            self.commands.append(command)
        if isinstance(command, Count):
            command.result = self.counts.get(command.queue, Counts())

    async def call(self, command: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.submit(command)
        return command


class MemoryCatalog:
    """Rows and values by key."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.meta: dict[str, str] = {}
        self.ids = 1

    async def take_ids(self, count: int) -> int:
        first, self.ids = self.ids, self.ids + count
        return first

    async def put(self, row: Any) -> None:
        self.rows[row.id] = row

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        del self.rows[entity]

    async def dropped(self, parts: Iterable[int]) -> None:
        """Nobody asks for it here."""

    async def take_up(self, row: Any) -> None:
        await self.put(row)

    generation = 0

    async def set_meta(self, key: str, value: str) -> None:
        self.meta[key] = value


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Door:
    """A client of the door under test, and everything behind the door."""

    namespace: Namespace
    clock: Clock
    store: MemoryStore
    catalog: MemoryCatalog
    ready: bool = True
    serves: bool = True
    counters: dict[str, Any] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    session: ClientSession = field(init=False)
    host: str = ""

    async def numbers(self) -> dict[str, Any]:
        return self.counters

    async def check_disk(self) -> Finding:
        return self.findings.get("disk", Finding(True, "ok"))

    async def check_store(self) -> Finding:
        return self.findings.get("store", Finding(True, "ok"))

    def token(self, rule: AuthorizationRule = ROOT, resource: str | None = None, valid_s: int = 60) -> str:
        expires_at_s = self.clock.at_ms // 1000 + valid_s
        return sas.make_token(resource or f"https://{self.host}", rule.name, rule.primary_key, expires_at_s)

    async def ask(
        self, method: str, path: str, body: str | bytes | None = None, token: str | None = "", **headers: str
    ) -> Answer:
        """Send a request, signed by the root policy unless told otherwise."""
        signed = {"Authorization": self.token() if token == "" else token} if token is not None else {}
        sent = signed | {name.replace("_", "-"): value for name, value in headers.items()}
        url = URL(f"http://{self.host}{path}", encoded=True)
        async with self.session.request(method, url, data=body, headers=sent) as response:
            return Answer(response.status, response.headers, await response.text())

    async def put(self, name: str, inside: str = "", kind: str = "QueueDescription", **options: Any) -> Answer:
        """Create an entity from the inside of its description, as the JavaScript client words it."""
        body = (
            f'<entry xmlns="{ATOM}"><updated>2024-01-01T00:00:00Z</updated><content type="application/xml">'
            f'<{kind} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</{kind}></content></entry>'
        )
        return await self.ask("PUT", f"/{name}?api-version=2021-05", body, **options)

    async def put_topic(self, name: str, inside: str = "", **options: Any) -> Answer:
        return await self.put(name, inside, "TopicDescription", **options)

    async def put_subscription(self, path: str, inside: str = "", **options: Any) -> Answer:
        return await self.put(path, inside, "SubscriptionDescription", **options)

    async def put_rule(self, path: str, inside: str = "", **options: Any) -> Answer:
        return await self.put(path, inside, "RuleDescription", **options)

    async def update(self, name: str, inside: str = "", kind: str = "QueueDescription", **options: Any) -> Answer:
        """Replace the description of an entity."""
        return await self.put(name, inside, kind, If_Match="*", **options)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", f"{path}{'&' if '?' in path else '?'}api-version=2021-05", **options)

    def commands(self, kind: type) -> list[Any]:
        return [command for command in self.store.commands if isinstance(command, kind)]

    def notes(self) -> list[tuple[str, str]]:
        """Operation and outcome of everything noted for the journal."""
        self.namespace.flush_notes()
        return [(note.operation, note.outcome) for record in self.commands(Record) for note in record.notes]


def sequence() -> Callable[[int], bytes]:
    """Randomness that tests can foresee: each call gives the next number."""
    numbers = itertools.count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    clock, store, catalog = Clock(), MemoryStore(), MemoryCatalog()
    namespace = Namespace("testbus", clock, [store], catalog, view)
    namespace.rules = (ROOT, LISTENER)
    made = Door(namespace, clock, store, catalog)
    app = make_app(
        Hosting([namespace], nobodys(clock, view)),
        clock=clock,
        metrics=made.numbers,
        ready=lambda: made.ready,
        serves=lambda: made.serves,
        checks={"disk": made.check_disk, "store": made.check_store},
        random_bytes=sequence(),
    )
    runner = await start_http(app, "127.0.0.1", 0)
    made.host = f"127.0.0.1:{bound_port(runner)}"
    async with ClientSession() as made.session:
        yield made
    await runner.cleanup()
