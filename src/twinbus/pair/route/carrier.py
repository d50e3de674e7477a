"""The carrier: does with every send what the router says, whatever kind of send it is, and remembers what came of it.

It is the one module that asks for an entity's health and that reports to it. Bytes are carried by the destinations
that it is given: the primary, the backlog, its ordered queues, an outbox. What the SDK's own sender does first over a
healthy link is reported to it afterwards (`failed`, `sent`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from twinbus.client import messages
from twinbus.client.errors import ClientError
from twinbus.model.partition import fragment_of
from twinbus.pair.errors import BacklogError, OutboxError, RefusedError
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.route.entities import Entities
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.route.health import Event, Route
from twinbus.pair.route.health_board import HealthBoard, Scope
from twinbus.pair.route.router import Answer, Situation, Step, next_step

BUSY_PAUSE_S, BUSY_PAUSE_MAX_S = 0.5, 8.0
LEAST_S = 0.001


class Backlog(Protocol):
    """The backlog queues of the secondary."""

    def pick(self) -> str | None: ...

    async def send(
        self,
        payloads: Sequence[bytes],
        path: str,
        preferred: str | None,
        timeout_s: float | None,
        bytes_max: int | None = None,
    ) -> str: ...


class OrderedSession(Protocol):
    """One session or key of an entity, of which one message at a time is under way."""

    @property
    def turn(self) -> AbstractAsyncContextManager[None]: ...

    @property
    def must_look(self) -> bool: ...

    async def look(self) -> bool: ...

    async def divert(self, payload: bytes, bytes_max: int | None = None) -> str: ...


class Ordered(Protocol):
    """The ordered backlog queues of the secondary."""

    def session(self, path: str, key: str) -> OrderedSession: ...


class Queued(NamedTuple):
    """Messages that are safe in an outbox and on their way from there: what an application gets."""

    path: str
    message_ids: list[str]
    numbers: list[int]


class Outbox(Protocol):
    """What keeps messages that nobody takes."""

    @property
    def may_hold(self) -> bool: ...

    async def put(self, payloads: Sequence[bytes], path: str) -> Queued: ...

    async def must_wait(self, payloads: Sequence[bytes], path: str) -> bool: ...


class Patience(NamedTuple):
    """How long a send may take."""

    primary_s: float  # At the primary, over all attempts.
    primary_share: float  # The part of the caller's own time that the primary may use: the backlog needs time, too.
    busy_s: float  # With a primary that is busy, if the caller sets no limit.

    def at_primary(self, timeout_s: float | None) -> float:
        """How long the primary may take for a send that may take so long."""
        return self.primary_s if timeout_s is None else min(self.primary_s, timeout_s * self.primary_share)


@dataclass(slots=True)
class Sending:
    """How one sender sends to one entity."""

    path: str
    outbox: Outbox | None = None
    outbox_first: bool = False
    ordered: bool = False
    backlog_queue: str | None = None  # Chosen at random when it is first needed; it stays while it works.


class Failed(NamedTuple):
    """A send that the SDK's sender has tried: its kind, and its words."""

    kind: Failure
    text: str


@dataclass(slots=True)
class Carried:
    """What became of the messages of one send."""

    failed: dict[int, ClientError] = field(default_factory=dict)  # What the primary did not take, by position.
    error: Exception | None = None  # Why the send was given up; None if it was not.
    backlog_queue: str | None = None  # Which one has messages now.
    queued: Queued | None = None  # What the outbox has now.
    is_done: bool = False  # Somebody has taken it.


class Carrier:
    """Made once for a paired client; `backlog` and `ordered` are there when the pair is made."""

    def __init__(
        self,
        health_board: HealthBoard,
        primary: RemoteNamespace,
        entities: Entities,
        counting: frozenset[Failure],
        patience: Patience,
    ) -> None:
        self._health_board = health_board
        self._primary = primary
        self._counting = counting
        self.patience = patience
        self.entities = entities
        self._absent: tuple[Failed, float] | None = None  # The primary did not answer at the start, and until when.
        self._begun: set[Scope] = set()  # What was failed over for that.
        self.backlog: Backlog | None = None
        self.ordered: Ordered | None = None

    # Health

    @property
    def is_clear(self) -> bool:
        """Nothing is ill: all that most sends need to know."""
        return self._absent is None and self._health_board.is_clear

    def begin_without(self, failed: Failed, lasts_s: float) -> None:
        """The primary did not answer when the pair was made: the first sends need not find that out once more each."""
        if failed.kind in self._counting:
            self._absent = failed, time.monotonic() + lasts_s

    @property
    def failovers(self) -> Mapping[str, int]:
        """How often entities failed over, by path in lower case; one that is not there never did."""
        return self._health_board.failovers

    def is_partitioned(self, path: str) -> bool:
        """Whether sends with a key have a health of their own."""
        return bool(self.entities.of(path).partitioned)

    def fragment_key(self, path: str, key: str | None, message_id: str | None) -> str | None:
        """What leads a message to a fragment; None where it goes to any, or nothing is known of fragments."""
        facts = self.entities.of(path)
        if not facts.partitioned:
            return None
        return message_id if key is None and facts.by_id else key

    def goes_to_primary(self, path: str, key: str | None = None) -> bool:
        """Whether the entity is healthy, or not yet ill for long enough."""
        return self._route(self._scope(path, key), key) is Route.PRIMARY

    def _route(self, scope: Scope, key: str | None) -> Route:
        if self._absent is not None:
            failed, until = self._absent
            if time.monotonic() >= until:
                self._absent = None
            elif scope not in self._begun:
                self._begun.add(scope)
                self._health_board.record(scope, Event.FAILED, failed.text, key)
        return self._health_board.route(scope)

    def sent(self, path: str, key: str | None = None) -> None:
        """The primary took something; that heals an entity that fell ill meanwhile."""
        self._health_board.sent(self._scope(path, key))

    def counts(self, path: str, key: str | None, failed: Failed) -> bool:
        """The primary did not take something; whether that counts against the entity's health."""
        if failed.kind not in self._counting:
            return False
        self._health_board.record(self._scope(path, key), Event.FAILED, failed.text, key)
        return True

    def _scope(self, path: str, key: str | None) -> Scope:
        if key is None or not self.is_partitioned(path):
            return Scope(path.lower())
        return Scope(path.lower(), fragment_of(key))

    # Sending

    async def carry(
        self,
        sending: Sending,
        payloads: Sequence[bytes],
        *,
        key: str | None = None,
        order_key: str | None = None,
        together: bool = False,
        timeout_s: float | None = None,
        failed: Failed | None = None,
    ) -> Carried:
        """Do what the router says until it is done or given up; nothing is raised for what a broker says.

        `key` leads to a fragment. Messages with an `order_key` are sent one by one, each when its turn has come.
        `failed` is what the SDK's sender met, if it has tried.
        """
        if order_key is None or self.ordered is None:
            return await self._carry(_Journey(self, sending, payloads, key, together, timeout_s), failed)
        session = self.ordered.session(sending.path, order_key)
        async with session.turn:
            return await self._carry(_Journey(self, sending, payloads, key, together, timeout_s, session), failed)

    async def _carry(self, journey: _Journey, failed: Failed | None) -> Carried:
        step, answer = Step.BEGIN, Answer.READY
        if failed is not None:
            journey.is_tried = True
            counted = self.counts(journey.sending.path, journey.key, failed)
            step, answer = Step.PRIMARY, Answer.FAILED if counted else _uncounted(failed.kind)
        else:
            await journey.ask_outbox()
        while True:
            step = next_step(step, answer, self._situation(journey))
            if step is Step.DONE:
                journey.carried.is_done = True
                return journey.carried
            if step is Step.GIVE_UP:
                journey.give_up(self._health_board.health(self._scope(journey.sending.path, journey.key)).reason)
                return journey.carried
            answer = await journey.STEPS[step](journey)

    def _situation(self, journey: _Journey) -> Situation:
        sending, session = journey.sending, journey.session
        return Situation(
            self._route(self._scope(sending.path, journey.key), journey.key),
            must_look=session is not None and session.must_look,
            has_outbox=sending.outbox is not None,
            outbox_first=sending.outbox_first or journey.waits_behind,
            has_time=journey.left_s > journey.pause_s,
        )


class _Journey:
    """One send on its way: the steps, and what came of them."""

    def __init__(
        self,
        carrier: Carrier,
        sending: Sending,
        payloads: Sequence[bytes],
        key: str | None,
        together: bool,
        timeout_s: float | None,
        session: OrderedSession | None = None,
    ) -> None:
        self.carried = Carried()
        self.sending = sending
        self.key = key
        self.session = session
        self.waits_behind = False
        self._carrier = carrier
        self._payloads = list(payloads)
        self._left = list(range(len(payloads)))  # Positions of messages that nobody has taken.
        self._together = together
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self.pause_s = BUSY_PAUSE_S
        self.is_tried = False

    @property
    def left_s(self) -> float:
        """The time that is left, or with a busy primary, if the caller has set no limit."""
        timeout_s = self._carrier.patience.busy_s if self._timeout_s is None else self._timeout_s
        return max(timeout_s - (time.monotonic() - self._began), LEAST_S)

    @property
    def _limit_s(self) -> float | None:
        """The caller's own limit, as far as it is left."""
        return None if self._timeout_s is None else self.left_s

    async def ask_outbox(self) -> None:
        """Whether an earlier message of a key waits in the outbox, so that this one must queue behind it."""
        outbox = self.sending.outbox
        if outbox is not None and outbox.may_hold and not self.sending.outbox_first:
            self.waits_behind = await outbox.must_wait(self._payloads, self.sending.path)

    async def look(self) -> Answer:
        assert self.session is not None
        try:
            return Answer.SOME_THERE if await self.session.look() else Answer.NONE_THERE
        except BacklogError as problem:
            self.carried.error = problem
            return Answer.FAILED

    async def to_primary(self) -> Answer:
        carrier, path = self._carrier, self.sending.path
        self.is_tried = True
        try:
            timeout_s = carrier.patience.at_primary(self._limit_s)
            payloads = [self._payloads[at] for at in self._left]
            await carrier._primary.send(path, payloads, timeout_s=timeout_s, together=self._together)
        except ClientError as error:
            return self._not_taken(error)
        carrier.sent(path, self.key)
        await self._learn()
        return self._taken()

    def _not_taken(self, error: ClientError) -> Answer:
        """What is to be tried elsewhere or again is left; what is refused for good stays an error."""
        carrier, carried = self._carrier, self.carried
        tried = self._left
        for at in tried:
            carried.failed.pop(at, None)
        found = {tried[at]: each for at, each in error.failed.items()} or dict.fromkeys(tried, error)
        carried.error = error
        carried.failed |= found
        counted = [each for each in found.values() if kind_of(each) in carrier._counting]
        self._left = [at for at, each in found.items() if each in counted or kind_of(each) is Failure.BUSY]
        if counted:
            carrier.counts(self.sending.path, self.key, Failed(kind_of(counted[0]), counted[0].text))
            return Answer.FAILED
        if self._left:
            return Answer.BUSY
        carrier.entities.of(self.sending.path).refused(
            error.condition, error.text, [self._payloads[at] for at in tried]
        )
        return Answer.REFUSED

    async def wait(self) -> Answer:
        """A busy server needs time, which the caller has."""
        await asyncio.sleep(self.pause_s)
        self.pause_s = min(self.pause_s * 2, BUSY_PAUSE_MAX_S)
        return Answer.READY

    async def _learn(self) -> None:
        """The link is open, and has said how large a message may be."""
        carrier, facts = self._carrier, self._carrier.entities.of(self.sending.path)
        if facts.message_bytes_max is None:
            with suppress(ClientError):
                facts.message_bytes_max = await carrier._primary.message_bytes_max(self.sending.path)

    def _sort_out(self) -> Answer | None:
        """What the primary would refuse is refused now, as nobody could bring it home; an answer if nothing is left."""
        path = self.sending.path
        facts = self._carrier.entities.of(path)
        refused = {at: error for at in self._left if (error := facts.refusal(self._payloads[at], path)) is not None}
        return self._refuse(refused) if refused else None

    def _refuse(self, refused: dict[int, ClientError]) -> Answer | None:
        first = next(iter(refused.values()))
        if self._together:
            refused = dict.fromkeys(self._left, first)  # As in one transfer to the primary: all or none.
        self.carried.failed.update(refused)
        self._left = [at for at in self._left if at not in refused]
        if self._left:
            return None
        self.carried.error = first
        return Answer.REFUSED

    async def to_backlog(self) -> Answer:
        if (refused := self._sort_out()) is not None:
            return refused
        sending = self.sending
        payloads = [self._payloads[at] for at in self._left]
        bytes_max = self._carrier.entities.of(sending.path).message_bytes_max
        try:
            if self.session is not None:
                self.carried.backlog_queue = await self.session.divert(payloads[0], bytes_max)
            else:
                backlog = self._carrier.backlog
                assert backlog is not None
                sending.backlog_queue = preferred = sending.backlog_queue or backlog.pick()
                queue = await backlog.send(payloads, sending.path, preferred, self._limit_s, bytes_max)
                if sending.backlog_queue == preferred:  # Else another send of this sender has found one meanwhile.
                    sending.backlog_queue = queue
                self.carried.backlog_queue = queue
        except BacklogError as problem:
            self.carried.error = problem
            return Answer.FAILED
        except ClientError as problem:
            return self._refuse(dict.fromkeys(self._left, problem)) or Answer.REFUSED
        return self._taken()

    async def to_outbox(self) -> Answer:
        if (refused := self._sort_out()) is not None:
            return refused
        assert self.sending.outbox is not None
        try:
            self.carried.queued = await self.sending.outbox.put(
                [self._payloads[at] for at in self._left], self.sending.path
            )
        except OutboxError as problem:
            self.carried.error = problem
            return Answer.FAILED
        return self._taken()

    def _taken(self) -> Answer:
        """What was left is safe; what the primary refused for good still is an error."""
        for at in self._left:
            self.carried.failed.pop(at, None)
        self.carried.error = next(iter(self.carried.failed.values()), None)
        return Answer.SENT

    def give_up(self, reason: str) -> None:
        """Nobody took it. Without a try at anything, the entity refuses pings."""
        if self.carried.error is None and not self.is_tried:
            self.carried.error = RefusedError(
                f"The primary refuses messages for '{self.sending.path}' in a way that will not pass: {reason}"
            )

    STEPS: ClassVar = {
        Step.LOOK: look,
        Step.PRIMARY: to_primary,
        Step.WAIT: wait,
        Step.BACKLOG: to_backlog,
        Step.OUTBOX: to_outbox,
    }


def _uncounted(kind: Failure | None) -> Answer:
    return Answer.BUSY if kind is Failure.BUSY else Answer.REFUSED


def order_key_of(payload: bytes) -> str | None:
    """What keeps an encoded message in order: its session, or else its partition key."""
    found = messages.read(payload)
    return found.session_id or found.partition_key
