"""Senders and receivers that go on over the death of their broker, and tell a history what they saw.

They use the project's own client, because it is fast; what is left at the end the official client looks at.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from faults.history import History, SessionHistory, session_message_id
from twinbus.amqp import codec
from twinbus.client import ClientError, Connection, ReceivedMessage, Receiver, Sender, connect
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.wire import outgoing
from twinbus.wire.sections import DATA, HEADER, PROPERTIES
from twinbus.wire.sessions import WantedSession

LOT = 20
BATCH = 5
BATCH_FORMAT = 0x80013700
WAITING_MAX = 400  # A sender rests while so many of its messages wait.
DELETING_CREDIT = 10
PAUSE_S = 0.02
_MESSAGE_ID, _GROUP_ID, _DELIVERY_COUNT = 0, 10, 4


class Seen(NamedTuple):
    """What a receiver looks at in a message."""

    message_id: str
    delivery_count: int
    body: bytes


def body_of(message_id: str) -> bytes:
    """A body that can be checked by whoever knows the id: mostly small, now and then of several frames."""
    noise = zlib.crc32(message_id.encode())
    size = 80_000 if noise % 97 == 0 else noise % 1500
    return (message_id.encode() + b" ") * (size // (len(message_id) + 1) + 1)


def message(message_id: str, session: str | None = None) -> bytes:
    return outgoing.build(body_of(message_id), message_id=message_id, session_id=session)


def read(payload: bytes) -> Seen:
    """Decode a received message whole."""
    found: dict[int, Any] = {}
    position = 0
    while position < len(payload):
        section, position = codec.decode(payload, position)
        found[int(section.descriptor)] = section.value
    header, properties = found.get(HEADER) or [], found[PROPERTIES]
    count = header[_DELIVERY_COUNT] if len(header) > _DELIVERY_COUNT else 0
    return Seen(properties[_MESSAGE_ID], count or 0, bytes(found[DATA]))


class Load:
    """All workers of one run; `stop` lets them finish what they are doing."""

    def __init__(self, connection_string: str, random: Random) -> None:
        self.histories: dict[str, History] = {}
        self._connection_string = connection_string
        self._random = random
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def progress(self) -> int:
        """Grows with every answer of the broker."""
        return sum(
            h.counts["acknowledged"] + h.counts["received"] + h.counts["deleted"] for h in self.histories.values()
        )

    def problems(self) -> list[str]:
        """Contradictions so far, and workers that ended with an error."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        failures = [repr(task.exception()) for task in ended if task.exception() is not None]
        return [*failures, *(problem for history in self.histories.values() for problem in history.problems)]

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._keep_going(work)))

    async def _keep_going(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                async with connect(self._connection_string, timeout_s=30) as connection:
                    await work(connection)
            except ClientError as error:
                if not error.transient:
                    raise
                await asyncio.sleep(PAUSE_S)

    # What a queue's workers do

    def plain(self, queue: str) -> None:
        """Each message is sent once and settled in one of many ways, or held until its lock falls."""
        history = self.histories[queue] = History(queue)
        self._start(lambda connection: self._send(connection, history))
        for _ in range(2):
            self._start(lambda connection: self._receive(connection, history, self._outcome))

    def batched(self, queue: str) -> None:
        """Messages are sent in batches, which are stored whole or not at all."""
        history = self.histories[queue] = History(queue)
        self._start(lambda connection: self._send_batches(connection, history))
        self._start(lambda connection: self._receive(connection, history, self._outcome))

    def deduplicated(self, queue: str) -> None:
        """A message whose acknowledgement was not seen is sent again, under the same id."""
        history = self.histories[queue] = History(queue)
        again: list[str] = []
        self._start(lambda connection: self._send(connection, history, again))
        self._start(lambda connection: self._receive(connection, history, self._outcome))

    def deleting(self, queue: str) -> None:
        """Messages are removed before they leave, so the death of the broker may cost what was on its way."""
        history = self.histories[queue] = History(queue)
        self._start(lambda connection: self._send(connection, history))
        self._start(lambda connection: self._delete(connection, history))

    def sessions(self, queue: str, names: Sequence[str]) -> None:
        """Each session is sent numbered messages, and has one receiver that holds it."""
        history = self.histories[queue] = SessionHistory(queue)
        numbers = dict.fromkeys(names, 0)
        self._start(lambda connection: self._send_to_sessions(connection, history, numbers))
        for name in names:
            self._start(lambda connection, name=name: self._receive_session(connection, history, name))

    def _outcome(self, message_id: str) -> Outcome | None:
        """What to do with a message; None: hold it, unsettled, for as long as the broker lives."""
        chance = self._random.random()
        for outcome, share in (
            (Outcome.ABANDON, 0.1),
            (Outcome.DEFER, 0.03),
            (Outcome.DEAD_LETTER, 0.07),
            (None, 0.05),
        ):
            if chance < share:
                return outcome
            chance -= share
        return Outcome.COMPLETE

    # Sending

    async def _send(self, connection: Connection, history: History, again: list[str] | None = None) -> None:
        sender = await connection.sender(history.queue)
        while not self._stopping or again:
            sender.check()
            repeated = (again or [])[:LOT]
            if not repeated and rests(history):
                await asyncio.sleep(PAUSE_S)
                continue
            fresh = range(history.counts["attempted"], history.counts["attempted"] + LOT)
            lot = repeated or [f"{history.queue}:{number}" for number in fresh]
            unknown = await self._send_lot(sender, history, lot)
            if again is not None:
                again[: len(repeated)] = unknown

    async def _send_lot(self, sender: Sender, history: History, lot: list[str]) -> list[str]:
        for message_id in lot:
            history.attempted(message_id)
        failed = await failures(lambda: sender.send([message(message_id) for message_id in lot]), len(lot))
        for position, message_id in enumerate(lot):
            if position in failed:
                history.not_sent(message_id, failed[position].definite)
            else:
                history.acknowledged(message_id)
        return [lot[position] for position in failed]

    async def _send_batches(self, connection: Connection, history: History) -> None:
        sender = await connection.sender(history.queue)
        while not self._stopping:
            sender.check()
            if rests(history):
                await asyncio.sleep(PAUSE_S)
                continue
            first = history.counts["attempted"]
            ids = [f"{history.queue}:{number}" for number in range(first, first + BATCH)]
            for message_id in ids:
                history.attempted(message_id)
            batch = outgoing.batch(message(message_id) for message_id in ids)
            failed = await failures(lambda batch=batch: sender.send([batch], BATCH_FORMAT), 1)
            for message_id in ids:
                if failed:
                    history.not_sent(message_id, failed[0].definite)
                else:
                    history.acknowledged(message_id)

    async def _send_to_sessions(self, connection: Connection, history: SessionHistory, numbers: dict[str, int]) -> None:
        sender = await connection.sender(history.queue)
        while not self._stopping:
            sender.check()
            if rests(history):
                await asyncio.sleep(PAUSE_S)
                continue
            lot = []
            for session in self._random.choices(list(numbers), k=LOT):
                lot.append((session, session_message_id(session, numbers[session])))
                numbers[session] += 1
            for _, message_id in lot:
                history.attempted(message_id)
            payloads = [message(message_id, session) for session, message_id in lot]
            failed = await failures(lambda payloads=payloads: sender.send(payloads), len(lot))
            for position, (_, message_id) in enumerate(lot):
                if position in failed:
                    history.not_sent(message_id, failed[position].definite)
                else:
                    history.acknowledged(message_id)

    # Receiving

    async def _receive(self, connection: Connection, history: History, decide: Callable[[str], Outcome | None]) -> None:
        receiver = await connection.receiver(history.queue, credit=40)
        while not self._stopping:
            receiver.check()
            decided: dict[Outcome, list[tuple[str, ReceivedMessage]]] = {}
            for received in await receiver.receive(LOT, timeout_s=0.2):
                seen = checked(received, history)
                history.received(seen.message_id, seen.delivery_count)
                outcome = decide(seen.message_id)
                if outcome is not None:
                    decided.setdefault(outcome, []).append((seen.message_id, received))
            await asyncio.gather(*(settle(receiver, history, *each) for each in decided.items()))

    async def _delete(self, connection: Connection, history: History) -> None:
        receiver = await connection.receiver(history.queue, mode=ReceiveMode.RECEIVE_AND_DELETE, credit=DELETING_CREDIT)
        while not self._stopping:
            for received in await receiver.receive(LOT, timeout_s=0.2):
                history.deleted(checked(received, history).message_id)

    async def _receive_session(self, connection: Connection, history: SessionHistory, session: str) -> None:
        receiver = await connection.receiver(history.queue, credit=20, session=WantedSession(session))
        history.taken(session)
        while not self._stopping:
            receiver.check()
            done = []
            for received in await receiver.receive(LOT, timeout_s=0.2):
                seen = checked(received, history)
                history.received(seen.message_id, seen.delivery_count)
                history.in_session(session, int(seen.message_id.rpartition(":")[2]))
                if self._random.random() > 0.05:
                    done.append((seen.message_id, received))
            await settle(receiver, history, Outcome.COMPLETE, done)


def rests(history: History) -> bool:
    """Whether a sender has enough waiting; messages of which nobody knows whether they were stored do not count."""
    return history.waiting - history.counts["sends unknown"] > WAITING_MAX


def contradictions(load: Load) -> list[str]:
    """The problems of a load on a shared database that was lost and came back.

    That a message was handed out is committed, but not waited for: a database that crashes may forget the last locks,
    and a session that ends with its link gives its messages back without counting. So a message may come again with the
    same delivery count (never with a smaller one), and a lock may be lost.
    """
    same = re.compile(r".* came again with delivery count (\d+) after \1$|.* could not be settled: .*lock-lost")
    return [problem for problem in load.problems() if not same.match(problem)]


def checked(received: ReceivedMessage, history: History) -> Seen:
    seen = read(received.payload)
    if seen.body != body_of(seen.message_id):
        history.problems.append(f"{history.queue}: {seen.message_id} has another body than it was sent with")
    return seen


async def settle(
    receiver: Receiver, history: History, outcome: Outcome, messages: list[tuple[str, ReceivedMessage]]
) -> None:
    for message_id, _ in messages:
        history.settling(message_id, outcome)
    failed = await failures(lambda: receiver.settle([m for _, m in messages], outcome), len(messages))
    for position, (message_id, _) in enumerate(messages):
        error = failed.get(position)
        if error is None:
            history.settled(message_id, outcome)
        else:
            answered = error.definite and receiver.error is None
            history.not_settled(message_id, str(error) if answered else None)


async def noticed(connection: Connection) -> None:
    """Wait until a connection knows that its broker is gone, so that nobody says goodbye to it."""
    async with asyncio.timeout(30):
        while connection.error is None:
            await asyncio.sleep(0.005)


async def failures(operation: Callable[[], Awaitable[None]], count: int) -> dict[int, ClientError]:
    """Which messages of an operation failed, and how; all of them, if it could not even begin."""
    try:
        await operation()
    except ClientError as error:
        return error.failed or dict.fromkeys(range(count), error)
    return {}
