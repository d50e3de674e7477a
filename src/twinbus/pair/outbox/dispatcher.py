"""The dispatcher: takes messages from an outbox, has the mover send them, and forgets those that were acknowledged.

One dispatcher at a time works on an outbox: it holds a lease. In which order messages leave is decided by `plan`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from twinbus.client.errors import NOT_TAKEN, ClientError
from twinbus.client.mover import Moved, Ready, move
from twinbus.model.logged import EventLog
from twinbus.pair import listeners
from twinbus.pair.errors import OutboxError
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.plan import DispatchPlan, Lot
from twinbus.pair.outbox.rows import Entry, Lease, Tables

_log = EventLog(__name__)

# Has an entity take encoded messages that are kept in order by a key, or by none; raises a ClientError.
Deliver = Callable[[str, Sequence[bytes], str | None], Awaitable[None]]

MAX_IN_FLIGHT = 32
TIMEOUT_S = 20.0
LEASE_S = 10.0
RENEW_S = 3.0
POLL_S = 1.0  # Another process may put messages, which nobody here hears of.
NOTE_AGAIN_S = 1.0


@dataclass(slots=True)
class Progress:
    """What a dispatcher has done."""

    sent: int = 0
    refused: int = 0
    problem: str | None = None  # Why it does not send at present.


class Dispatcher:
    """Empties one outbox by one way. `run` is a task; `drain` ends when nothing waits that can be sent."""

    def __init__(
        self,
        outbox: Outbox,
        deliver: Deliver,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        on_refused: Callable[[Entry, str], None] | None = None,
    ) -> None:
        self._outbox = outbox
        self._deliver = deliver
        self._plan = DispatchPlan(max_in_flight)
        self._on_refused = on_refused
        self._holder = f"{_place()} {os.getpid()} {uuid4().hex[:8]}"
        self._leased_until = float("-inf")  # On the loop's clock.
        self._renew_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._more = True  # Whether the outbox may hold what is not known here.
        self._blocked: dict[str, str] = {}  # Why an entity takes nothing at present, by path.
        self.progress = Progress()

    def wake(self) -> None:
        """Something may have been put; safe in any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(self._wake)

    def resume(self) -> None:
        """A namespace takes messages again; safe in any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._resume)

    def start(self) -> bool:
        """Begin to dispatch on this loop, until `stop`; whether it has not begun before."""
        is_new = self._running is None
        if is_new:
            self._running = asyncio.create_task(self.run(), name="outbox")
        return is_new

    async def stop(self) -> None:
        """End; what is in the outbox stays there."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def run(self) -> None:
        """Dispatch until cancelled; what is under way is waited for, so that nothing is sent twice without need."""
        self._loop = asyncio.get_running_loop()
        self._outbox.listen(self.wake)
        try:
            while True:
                try:
                    await self._turn(POLL_S)
                except OutboxError as problem:
                    self.progress.problem = str(problem)
                    _log.warning(
                        "outbox.waiting", "the outbox {outbox}: {error}", outbox=self._outbox.where, error=problem
                    )
                    await asyncio.sleep(POLL_S)
        finally:
            await self._end()

    async def drain(self, patience_s: float = 5.0) -> int:
        """Dispatch until nothing waits, or nothing is taken for so long; how many messages still wait."""
        self._loop = asyncio.get_running_loop()
        quiet_since = self._loop.time()
        done = -1
        try:
            while True:
                await self._turn(0.1)
                counts = await asyncio.wrap_future(self._outbox.use(lambda tables, _: tables.counts(), reads=True))
                left = counts.messages - counts.aside
                if self.progress.sent + self.progress.refused != done:
                    done, quiet_since = self.progress.sent + self.progress.refused, self._loop.time()
                if not left or (not self._plan.under_way and self._loop.time() - quiet_since > patience_s):
                    return left
        finally:
            await self._end()

    async def _turn(self, poll_s: float) -> None:
        """Take, send, and wait until something happens."""
        assert self._loop is not None
        self._woken.clear()
        if await self._has_lease():
            await self._fill()
            for lot in self._plan.next(self._loop.time()):
                task = self._loop.create_task(self._send(lot))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        now = self._loop.time()
        wait_s = min([poll_s, *([due - now] if (due := self._plan.next_try(now)) is not None else [])])
        try:
            async with asyncio.timeout(max(wait_s, 0.01)):
                await self._woken.wait()
        except TimeoutError:
            self._more = True

    async def _fill(self) -> None:
        assert self._loop is not None
        wanted = self._plan.wanted(self._loop.time())
        if wanted is None or not self._more:
            return
        self._more = False
        entries = await self._outbox.take(wanted)
        if entries:
            self._more = True
            self._plan.add(entries, self._loop.time())

    async def _send(self, lot: Lot) -> None:
        assert self._loop is not None
        moved: Moved[Entry] = Moved()
        try:
            moved = await move(_Kept(self), _Way(self, lot.key), lot.entries)
        finally:
            gone = [*(entry.number for entry in moved.done), *(entry.number for entry, _ in moved.set_aside)]
            blocked = next((error.text for error in moved.blocked.values()), None)
            self._plan.ended(lot, gone, took=bool(moved.done), is_blocked=blocked is not None, now=self._loop.time())
        # Lots of other entities end meanwhile: what one of them takes says nothing of this one.
        if blocked is None:
            self._blocked.pop(lot.path, None)
        elif blocked != self._blocked.get(lot.path):
            self._blocked[lot.path] = blocked
            text = "'{entity}' takes nothing from the outbox at present: {error}"
            _log.warning("outbox.entity.waiting", text, entity=lot.path, error=blocked)
        self.progress.problem = next(iter(self._blocked.values()), None)
        self.progress.sent += len(moved.done)
        self.progress.refused += len(moved.set_aside)
        for entry, reason in moved.set_aside:
            self._was_refused(entry, reason)
        self._wake()

    async def send(self, path: str, payloads: Sequence[bytes], key: str | None) -> None:
        """One attempt; nothing leaves without the lease, and whatever goes wrong is a ClientError."""
        assert self._loop is not None
        if self._loop.time() > self._leased_until:
            raise ClientError(NOT_TAKEN, "another dispatcher is at work")
        try:
            await self._deliver(path, payloads, key)
        except ClientError:
            raise
        except Exception as error:
            _log.exception("outbox.failed", "sending to '{entity}' failed", entity=path)
            raise ClientError(NOT_TAKEN, repr(error), definite=False) from error

    async def note(self, sent: list[int], refused: list[tuple[int, str]]) -> None:
        """Write down what became of messages, for as long as it takes: a full disk must not make a second message."""
        while True:
            try:
                await self._outbox.settle(sent, refused)
                return
            except OutboxError as problem:
                self.progress.problem = str(problem)
                _log.warning(
                    "outbox.note.failed",
                    "what was sent cannot be written down, again in {again_s:g} s: {error}",
                    again_s=NOTE_AGAIN_S,
                    error=problem,
                )
            await asyncio.sleep(NOTE_AGAIN_S)

    def _was_refused(self, entry: Entry, reason: str) -> None:
        text = "message '{message_id}' for '{entity}' is set aside: {reason}"
        _log.error("outbox.set_aside", text, message_id=entry.message_id, entity=entry.path, reason=reason)
        listeners.call(self._on_refused, entry, reason)

    # The lease

    async def _has_lease(self) -> bool:
        """Whether this dispatcher is the one; its lease is renewed long before it ends."""
        assert self._loop is not None
        began = self._loop.time()
        if began < self._renew_at:
            return True
        if await asyncio.wrap_future(self._outbox.use(self._claim)):
            self._leased_until = began + LEASE_S
            self._renew_at = began + RENEW_S
            return True
        return False

    def _claim(self, tables: Tables, now_ms: int) -> bool:
        lease = tables.lease()
        if lease is not None and lease.holder != self._holder and lease.until_ms > now_ms and not _is_dead(lease):
            return False
        tables.set_lease(Lease(self._holder, now_ms + int(LEASE_S * 1000)))
        return True

    def _release(self, tables: Tables, now_ms: int) -> None:
        lease = tables.lease()
        if lease is not None and lease.holder == self._holder:
            tables.set_lease(None)

    async def _end(self) -> None:
        """Wait for what is under way, within reason, and let another one have the lease."""
        tasks = set(self._tasks)
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=LEASE_S / 2)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        with suppress(OutboxError):
            await asyncio.wrap_future(self._outbox.use(self._release))
        self._loop = None

    def _wake(self) -> None:
        self._more = True
        self._woken.set()

    def _resume(self) -> None:
        self._plan.resume()
        self._wake()


class _Kept:
    """What an outbox hands out: the mover's source."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def restore(self, held: Entry) -> Ready:
        """It is kept as it is sent."""
        return Ready(held.path, held.payload)

    async def complete(self, held: Sequence[Entry]) -> None:
        """Forget what was acknowledged."""
        await self._dispatcher.note([entry.number for entry in held], [])

    async def set_aside(self, held: Entry, reason: str, description: str) -> None:
        """What will never be taken is not tried any more."""
        await self._dispatcher.note([], [(held.number, description)])


class _Way(NamedTuple):
    """Where messages of a key, or of none, go: the mover's destination."""

    dispatcher: Dispatcher
    key: str | None

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """One attempt."""
        await self.dispatcher.send(path, payloads, self.key)


def alone(namespace: RemoteNamespace) -> Deliver:
    """The way to one namespace without a pair."""

    async def deliver(path: str, payloads: Sequence[bytes], key: str | None) -> None:
        await namespace.send(path, payloads, timeout_s=TIMEOUT_S)

    return deliver


def _place() -> str:
    """Where a process id means something: the machine, and the container in it."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{socket.gethostname()}/{space}"


def _is_dead(lease: Lease) -> bool:
    """Whether the holder is known to be gone, so that nobody need wait for its lease to end."""
    place, _, rest = lease.holder.partition(" ")
    process = rest.partition(" ")[0]
    if place != _place() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
