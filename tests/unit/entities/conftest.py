"""Fakes of what entities lean on: stores that are answered by hand, a catalog in memory, a clock that is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import pytest

from twinbus.entities.feed import UNBOUNDED
from twinbus.model.errors import BusError
from twinbus.model.message import Delivered, Origin, ReceiveMode
from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Command, Introduce
from twinbus.store.quarantine import Witness

C = TypeVar("C", bound=Command)


class FakeStore:
    """Takes commands and does nothing with them: the test finishes what was submitted, `answers` what is called."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.told: list[Command] = []  # What it is to remember of entities and catalog, which nobody waits for.
        self.pending_bytes = 0
        self.is_available = True
        self.answers: dict[type[Command], Any] = {}  # A result, or the BusError to raise.
        self.open = asyncio.Event()  # Calls wait while this is not set.
        self.open.set()

    def submit(self, command: Command) -> None:
        documented = isinstance(command, Introduce) and any(name.document for name in command.names.values())
        (self.told if documented or isinstance(command, Witness) else self.commands).append(command)

    async def call(self, command: C) -> C:
        self.commands.append(command)
        await asyncio.sleep(0)
        await self.open.wait()
        answer = self.answers.get(type(command))
        if isinstance(answer, BusError):
            raise answer
        if answer is not None:
            command.result = answer  # type: ignore[attr-defined]
        return command

    def all(self, kind: type[C]) -> list[C]:
        """The commands of one kind that nobody has taken yet."""
        return [command for command in self.commands if isinstance(command, kind)]

    def take(self, kind: type[C]) -> C:
        """The only command of its kind, which is then forgotten."""
        (command,) = self.all(kind)
        self.commands.remove(command)
        return command

    def finish(self, command: Command, result: Any = None, error: BusError | None = None) -> None:
        """Tell whoever submitted the command that it is durable, or that it failed."""
        if command in self.commands:
            self.commands.remove(command)
        if result is not None:
            command.result = result  # type: ignore[attr-defined]
        command.error = error
        assert command.done is not None
        command.done(command)


class FakeCatalog:
    """A catalog whose every write is in `log`, in order."""

    def __init__(self) -> None:
        self.rows: dict[int, EntityRow] = {}
        self.meta: dict[str, str] = {}
        self.log: list[str] = []
        self.dropping: dict[int, int] = {}
        self.next_id = 1
        self.fails = False
        self.open = asyncio.Event()
        self.open.set()

    async def take_ids(self, count: int) -> int:
        await self._written(f"take {count}")
        first, self.next_id = self.next_id, self.next_id + count
        return first

    async def put(self, row: EntityRow) -> None:
        await self._written(f"put {row.id}")
        self.rows[row.id] = row

    async def remove(self, entity: int, parts: Mapping[int, int] | None = None) -> None:
        await self._written(f"remove {entity}")
        del self.rows[entity]
        self.dropping.update(parts or {})

    async def dropped(self, parts: Iterable[int]) -> None:
        for part in parts:
            self.dropping.pop(part, None)

    async def take_up(self, row: EntityRow) -> None:
        await self.put(row)

    @property
    def generation(self) -> int:
        return len(self.log)

    async def set_meta(self, key: str, value: str) -> None:
        await self._written(f"meta {key}")
        self.meta[key] = value

    async def _written(self, what: str) -> None:
        await asyncio.sleep(0)
        await self.open.wait()
        if self.fails:
            raise OSError("no space left on device")
        self.log.append(what)


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        return self.now


class FakeReceiver:
    """A receiver with as many credits as the test gives it; keeps what it got."""

    def __init__(
        self,
        credit: int = 0,
        *,
        session: str | None = None,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        owner: int = 1,
        holder: int = 0,
    ) -> None:
        self.credit = credit
        self.session = session
        self.mode = mode
        self.owner = owner
        self.holder = holder
        self.origin = Origin(f"connection-{owner}")
        self.bounds = UNBOUNDED
        self.got: list[Delivered] = []
        self.deliveries: list[int] = []
        self.errors: list[BusError] = []
        self.on_deliver: Callable[[], None] | None = None

    def demand(self) -> int:
        return self.credit

    def deliver(self, messages: list[Delivered]) -> None:
        self.got.extend(messages)
        self.deliveries.append(len(messages))
        self.credit -= len(messages)
        if self.on_deliver is not None:
            self.on_deliver()

    def failed(self, error: BusError) -> None:
        self.errors.append(error)


def messages(count: int, *, locked: bool = True) -> list[Delivered]:
    """Messages as a store hands them out, each with its own token if locked."""
    return [
        Delivered(
            sequence_number=n,
            record=b"record",
            message_id=f"m{n}",
            delivery_count=0,
            enqueued_at_ms=0,
            token=n.to_bytes(16, "big") if locked else b"",
        )
        for n in range(1, count + 1)
    ]


@pytest.fixture(name="messages")
def _messages() -> Callable[..., list[Delivered]]:
    return messages


@pytest.fixture
def receiver() -> type[FakeReceiver]:
    return FakeReceiver


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def stores() -> list[FakeStore]:
    return [FakeStore() for _ in range(4)]


@pytest.fixture
def sixteen_stores() -> list[FakeStore]:
    return [FakeStore() for _ in range(16)]


@pytest.fixture
def catalog() -> FakeCatalog:
    return FakeCatalog()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
