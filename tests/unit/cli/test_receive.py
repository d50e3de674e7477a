"""Receiving: shown first and settled then, and nothing lost when it is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from twinbus.cli.output import Output
from twinbus.cli.receive import RECONNECT_S_MIN, Fate, _connected, _Taking
from twinbus.cli.showing import MessageView
from twinbus.client import ClientError, ReceivedMessage
from twinbus.client.errors import CONNECTION_LOST, UNREACHABLE
from twinbus.client.messages import build
from twinbus.model.message import Outcome, ReceiveMode


class Receiver:
    """Hands out messages and remembers what became of them. When there are none it waits for ever, if it is told to."""

    def __init__(self, *texts: bytes, waits: bool = False) -> None:
        self.waiting = [ReceivedMessage(number, b"", build(text)) for number, text in enumerate(texts)]
        self.waits = waits
        self.asked = asyncio.Event()
        self.log: list[str] = []

    async def receive(self, max_count: int, timeout_s: float | None = None) -> list[ReceivedMessage]:
        self.asked.set()
        if self.waits and timeout_s:
            await asyncio.Event().wait()
        lot, self.waiting = self.waiting[:max_count], self.waiting[max_count:]
        return lot

    async def settle(self, messages: Sequence[ReceivedMessage], outcome: Outcome, **_: Any) -> None:
        self.log.append(f"{outcome.value} {[message.delivery_id for message in messages]}")


class Connection:
    def __init__(self, receiver: Receiver) -> None:
        self.handed_out = receiver

    async def receiver(self, *_: Any, **__: Any) -> Receiver:
        return self.handed_out


def taking(mode: ReceiveMode = ReceiveMode.PEEK_LOCK, limit: int | None = None) -> _Taking:
    output = Output()
    fate = Fate(Outcome.COMPLETE if mode is ReceiveMode.PEEK_LOCK else None)
    return _Taking(output, MessageView(output, raw=True), mode, fate, limit, 1.0)


async def take(work: _Taking, receiver: Receiver) -> None:
    await work.from_queue(Connection(receiver), "orders", follow=False)  # type: ignore[arg-type]


async def test_messages_are_shown_and_then_settled(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    receiver = Receiver(b"one", b"two")
    await take(taking(), receiver)
    assert capfdbinary.readouterr().out == b"one\ntwo\n"
    assert receiver.log == ["complete [0, 1]"]


async def test_no_more_than_the_limit_is_taken() -> None:
    receiver = Receiver(b"one", b"two", b"three")
    await take(taking(limit=2), receiver)
    assert receiver.log == ["complete [0, 1]"]
    assert len(receiver.waiting) == 1


async def test_what_cannot_be_shown_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver(b"one")

    def broken(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(MessageView, "show", lambda *_: broken(_))
    with pytest.raises(BrokenPipeError):
        await take(taking(), receiver)
    assert receiver.log == ["release [0]"]


async def test_what_was_deleted_for_us_is_shown_even_when_we_are_told_to_stop(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    receiver = Receiver(b"one", waits=True)
    task = asyncio.create_task(take(taking(ReceiveMode.RECEIVE_AND_DELETE), receiver))
    await receiver.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert capfdbinary.readouterr().out == b"one\n"
    assert receiver.log == []


class Place:
    """A namespace whose connections fail as a test says: None is one that is made."""

    def __init__(self, *failures: ClientError | None) -> None:
        self.failures = list(failures)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[str]:
        failure = self.failures.pop(0)
        if failure is not None:
            raise failure
        yield "a connection"


class Pauses:
    """What was waited, instead of waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[float] = []
        monkeypatch.setattr("twinbus.cli.receive.asyncio.sleep", self._pause)

    async def _pause(self, seconds: float) -> None:
        self.taken.append(seconds)


LOST, GONE = ClientError(CONNECTION_LOST, "the peer hung up"), ClientError(UNREACHABLE, "nobody there")


async def connected(place: Place, *outcomes: ClientError | None, follow: bool = True) -> int:
    """Works over the place's connections, each of which ends as a test says; how many it took."""
    left = list(outcomes)

    async def work(_: Any) -> None:
        failure = left.pop(0)
        if failure is not None:
            raise failure

    await _connected(place, Output(), follow, work)  # type: ignore[arg-type]
    return len(outcomes) - len(left)


async def test_a_connection_that_is_lost_while_following_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pauses = Pauses(monkeypatch)
    assert await connected(Place(None, GONE, GONE, None, None), LOST, LOST, None) == 3
    assert pauses.taken == [RECONNECT_S_MIN, 2 * RECONNECT_S_MIN, 4 * RECONNECT_S_MIN, RECONNECT_S_MIN]
    told = capfd.readouterr().err
    assert told.count("The peer hung up") == 2
    assert told.count("connected again") == 2
    assert "nobody there" not in told.lower()


@pytest.mark.parametrize(
    ("failure", "follow"),
    [(LOST, False), (ClientError("amqp:not-found", "no such entity"), True)],
    ids=["not following", "not to be cured"],
)
async def test_what_trying_again_does_not_cure_ends_it(failure: ClientError, follow: bool) -> None:
    with pytest.raises(ClientError) as problem:
        await connected(Place(None), failure, follow=follow)
    assert problem.value is failure


async def test_who_never_got_in_does_not_try_again() -> None:
    with pytest.raises(ClientError) as problem:
        await connected(Place(GONE))
    assert problem.value is GONE
