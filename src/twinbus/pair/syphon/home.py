"""The way home: diverted messages are restored and sent to the primary, by the mover. What every syphon shares.

`drain` runs it on a backlog queue, `ordered` on the sessions of an ordered one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from twinbus.client.diverting import MeantFor, restore
from twinbus.client.endpoint import within
from twinbus.client.errors import ClientError, is_local
from twinbus.client.mover import Moved, Ready
from twinbus.model.message import Outcome
from twinbus.pair import tracing
from twinbus.pair.namespace.port import Received, Receiver, RemoteNamespace
from twinbus.pair.namespace.reachability import Reachability
from twinbus.pair.replaced import Replaced
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.syphon import missing

SETTLE_TIMEOUT_S = 20.0
ELSEWHERE = " of the namespace "  # Between an entity and a namespace that is not the primary of this pair.
PAUSE_MAX_S = 5.0  # The longest pause before something that failed is tried again.
DEAD_MAX = 100  # Kinds of dead letters that are told apart.


@dataclass(slots=True)
class Progress:
    """What has been brought home so far, and what stands in the way."""

    moved: Counter[str] = field(default_factory=Counter)  # By destination.
    dead: int = 0  # Went to the backlog queue's own dead-letter queue.
    doubled: int = 0  # Sent, but not completed: they will be sent again under the same id.
    left: int = 0  # Given back by a run that ends: their destinations take nothing at present.
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)  # By backlog queue, and what was said.
    problems: dict[str, str] = field(default_factory=dict)  # What takes or gives nothing at present, and why.

    @property
    def ended(self) -> int:
        """How many messages are no longer in the backlog."""
        return self.moved.total() + self.dead

    @property
    def problem(self) -> str | None:
        """One of them, for people."""
        return next((f"{where}: {why}" for where, why in self.problems.items()), None)

    def join(self, other: Progress) -> None:
        """What another syphon has done, too."""
        self.moved += other.moved
        self.dead += other.dead
        self.doubled += other.doubled
        self.dead_letters += other.dead_letters
        self.problems |= other.problems

    def add(self, moved: Moved[Received], queue: str) -> None:
        """Count one lot of a backlog queue."""
        self.moved += moved.moved
        self.dead += len(moved.set_aside)
        self.doubled += len(moved.doubled)
        for path in moved.moved:
            self.problems.pop(path, None)
        self.problems |= {path: error.text for path, error in moved.blocked.items()}
        for _, said in moved.set_aside:
            if (queue, said) in self.dead_letters or len(self.dead_letters) < DEAD_MAX:
                self.dead_letters[queue, said] += 1


class Backlog:
    """What one receiver of a backlog queue hands out: the mover's source."""

    def __init__(self, receiver: Receiver, home: Home) -> None:
        self._receiver = receiver
        self._home = home

    def restore(self, held: Received) -> Ready:
        """As its sender sent it. What is meant for another namespace has a destination that takes nothing here."""
        restored = restore(held.payload, time.time_ns() // 1_000_000)
        return Ready(self._home.way_to(restored.path, restored.meant_for), restored.payload)

    async def complete(self, held: Sequence[Received]) -> None:
        """It is home."""
        await within(SETTLE_TIMEOUT_S, self._receiver.settle(held), f"completing messages of '{self._receiver.path}'")

    async def set_aside(self, held: Received, reason: str, description: str) -> None:
        """An undeliverable message does not block the queue."""
        settling = self._receiver.settle([held], Outcome.DEAD_LETTER, reason=reason, description=description)
        await within(SETTLE_TIMEOUT_S, settling, f"dead-lettering a message of '{self._receiver.path}'")


class Home:
    """The primary: the mover's destination. While it is gone, it is looked for before anything is fetched in vain."""

    def __init__(
        self,
        primary: RemoteNamespace,
        missing_wait_s: float,
        on_change: Callable[[], None] | None = None,
        missing_seen: missing.Seen | None = None,
        replaced: Sequence[Replaced] = (),
    ) -> None:
        """An entity that is not there is waited for so long before its messages count as undeliverable.

        What was meant for one that is `replaced` is taken, too.
        """
        self._primary = primary
        self.replaced = replaced
        self._id: str | None = None  # None until it was asked who it is, empty if it does not say.
        self._on_change = on_change
        self.reachability = Reachability(primary, on_change)
        self._missing = missing.MissingEntities(missing_wait_s, time.time, missing_seen)
        self._may_be_back = asyncio.Event()

    def way_to(self, path: str, meant_for: MeantFor | None) -> str:
        """Where a message goes: to the entity, or, if it is meant for another namespace, nowhere from here."""
        if meant_for is None or meant_for.reached_at == self._primary.reached_at:
            return path  # Whoever is there has the place of the one that it was meant for.
        if not meant_for.id or not self._id or meant_for.id == self._id:
            return path
        if any(lost.was_meant(meant_for) for lost in self.replaced):
            return path
        return f"{path}{ELSEWHERE}{meant_for.id}"

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Have the primary take messages."""
        if ELSEWHERE in path:
            reason = f"the messages are meant for another namespace, {path.partition(ELSEWHERE)[2]}"
            raise ClientError("twinbus:meant-for-another", reason, transient=True, definite=True)
        at, count = self._primary.address, len(payloads)
        with tracing.span("send", path, kind="CLIENT", at=at, count=count, payloads=payloads) as span:
            span.say(syphon=True)
            try:
                await self._primary.be_there()
                # Who does not wait for a slow answer sends again, and makes copies without end.
                await self._primary.send(path, payloads, timeout_s=self._primary.slow_s)
            except ClientError as error:
                span.fail(error)
                if is_local(error):
                    self.reachability.lost(error)
                    self._id = None  # Another one may have its place when it is back.
                    self._missing.begin_anew()
                    raise
                self.reachability.found()
                raise self._waiting(path, error) from error
        self.reachability.found()
        self._missing.found(path)

    def _waiting(self, path: str, error: ClientError) -> ClientError:
        """An entity that is missing is waited for, as for one that takes nothing at present; up to the limit."""
        if error.condition not in missing.CONDITIONS or not self._missing.wait_s:
            return error
        until = self._missing.waits_until(path)
        if until is not None:
            at = datetime.fromtimestamp(until, UTC).strftime("%H:%M:%S")
            text = f"waits until {at} UTC for '{path}' to be made"
            return ClientError(error.condition, text, transient=True, definite=error.definite)
        text = f"'{path}' was not made within {self._missing.wait_s:g} s: {error.text}"
        return ClientError(error.condition, text, transient=False, definite=error.definite)

    @property
    def id(self) -> str:
        """The primary's own; empty while it is not known."""
        return self._id or ""

    @property
    def missing(self) -> missing.Seen:
        """The entities that are waited for."""
        return self._missing.seen

    def changed(self) -> None:
        """There is news for those who watch: something is blocked, or no longer, or everything has been moved."""
        if self._on_change is not None:
            self._on_change()

    async def back(self) -> None:
        """Wait until somebody is at home."""
        await self.reachability.back()

    async def identify(self) -> None:
        """Ask who is at home, unless it is known; raises a ClientError while nobody is."""
        if self._id is None:
            try:
                self._id = await self._ask_id()
            except ClientError as error:
                self.reachability.lost(error)
                raise

    async def _ask_id(self) -> str:
        try:
            return (await self._primary.identity(anew=True)).id
        except ClientError as error:
            if kind_of(error) is not Failure.UNAUTHORIZED:
                raise
            return ""  # It is there, and says nothing of itself to this key.

    def wake(self) -> None:
        """The primary may take messages again: those who pause do not wait any longer."""
        self._may_be_back.set()
        self.reachability.wake()

    async def pause(self, pause_s: float) -> None:
        """Wait, at most until somebody says that the primary is back."""
        self._may_be_back.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._may_be_back.wait()


async def give_back(receiver: Receiver, messages: Sequence[Received]) -> None:
    """Return what is locked; a lock that is lost meanwhile has given it back already."""
    if messages:
        with suppress(ClientError):
            settling = receiver.settle(messages, Outcome.RELEASE)
            await within(SETTLE_TIMEOUT_S, settling, f"giving back messages of '{receiver.path}'")
