"""What runs beside the senders of one pair, on one event loop: pings, diverted sends, the syphon, the watch over both.

An asynchronous application lends its own loop, a synchronous one gets a thread with one (`sync`). Decisions are made
by `board` and `health`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from twinbus.client.errors import ClientError
from twinbus.model.metrics import Spread
from twinbus.pair import ordered_queues, tracing
from twinbus.pair.backlog import Rotation
from twinbus.pair.board import Board, Change, Scope
from twinbus.pair.diversion import Diversion, Diverted
from twinbus.pair.errors import PartnerError
from twinbus.pair.failures import Failure, kind_of
from twinbus.pair.half import Half, HalfState
from twinbus.pair.health import Event, State
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.ordered_route import OrderedRoute
from twinbus.pair.ordered_syphon import OrderedPump
from twinbus.pair.pairing import Paired, pair
from twinbus.pair.partitions import Partitions
from twinbus.pair.ping import ping
from twinbus.pair.presence import RENEW_S, Presence
from twinbus.pair.pumping import Pump

WATCH_S = 0.1
PING_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
OUTBOX_RENEW_S = 10.0  # Whoever has an outbox says more often how full it is.
TOLD_PING_S = 5.0  # Pings that follow each other more closely are not told one by one.
# A ping that fails so is not to be tried for ever as if the datacenter were down.
_WILL_NOT_PASS = (Failure.PERMANENT,)


class Companion:
    """Made by a paired client; `start` on the loop that it shall run on."""

    def __init__(
        self, primary: Half, secondary: Half, options: SendAvailabilityOptions, board: Board, primary_name: str | None
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.options = options
        self.board = board
        self.paired: Paired | None = None
        self.pump: Pump | None = None
        self.diversion: Diversion | None = None
        self.rotation: Rotation | None = None
        self.on_fault: Callable[[Half, Exception], None] | None = None
        self.on_diverted: Callable[[Diverted], None] | None = None
        self.ordered: OrderedRoute | None = None  # Where messages of a session stay in order.
        self.ordered_pump: OrderedPump | None = None
        self.make_ordered: Callable[[list[str]], OrderedRoute] | None = None
        self.describe: Callable[[], dict[str, Any]] = dict  # What its status record says.
        self.look_first: Callable[[], Awaitable[None]] | None = None  # Before that; then it is told more often.
        self.partitions = Partitions(primary)
        self.pings = self.pings_failed = 0
        self.ping_times = Spread(PING_BOUNDS_S)
        self._presence: Presence | None = None
        self._new_paths: list[str] = []
        self._primary_name = primary_name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pinging: set[Scope] = set()

    async def start(self) -> Paired:
        """Make the pair; then stand by."""
        self._loop = asyncio.get_running_loop()
        options = self.options
        paired = await pair(self.primary, self.secondary, options.backlog_queue_count, self._primary_name)
        if options.ordered and self.make_ordered is not None:
            queues = await ordered_queues.have(self.secondary, paired.primary, options.backlog_queue_count)
            self.ordered = self.make_ordered(queues)
        self.paired = paired
        self.rotation = Rotation(self.paired.queues, options.seconds("queue_rest"), time.monotonic)
        self.diversion = Diversion(
            self.secondary, self.rotation, options.seconds("divert_timeout"), lambda: uuid4().hex, self.on_diverted
        )
        self.board.listen(self._changed)
        self._spawn(self._keep_time())
        if options.enable_syphon:
            self.pump = Pump(
                self.primary,
                self.secondary,
                self.paired.queues,
                batch=options.syphon_batch,
                poll_s=options.seconds("poll"),
                pause_s=options.seconds("syphon_pause"),
            )
            self.pump.start()
            self.ordered_pump = OrderedPump(
                self.primary,
                self.secondary,
                lambda: ordered_queues.found(self.secondary, paired.primary),
                poll_s=options.seconds("poll"),
                pause_s=options.seconds("syphon_pause"),
            )
            self.ordered_pump.start()
            self._spawn(self._watch())
        if options.announce:
            renew_s = RENEW_S if self.look_first is None else OUTBOX_RENEW_S
            halves = (self.primary, self.secondary)
            self._presence = Presence(
                "paired-client", self.paired.primary, halves, self.describe, renew_s, self.look_first
            )
            self._spawn(self._presence.run())
        for path in self._new_paths:
            self._spawn(self.partitions.find_out(path))
        return self.paired

    def look_up(self, path: str) -> None:
        """Find out in the background what kind of entity is sent to; may be called in any thread."""
        if not self.partitions.is_new(path):
            return
        if self.paired is None or self._loop is None:
            self._new_paths.append(path)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._spawn(self.partitions.find_out(path)))

    def was_diverted(self, diverted: Diverted) -> None:
        """Tell whoever listens."""
        if self.on_diverted is not None:
            self.on_diverted(diverted)

    async def divert(self, payloads: Sequence[bytes], path: str, preferred: str | None, timeout_s: float | None) -> str:
        """Send to a backlog queue."""
        assert self.diversion is not None
        return await self.diversion.send(payloads, path, preferred, timeout_s)

    async def stop(self) -> None:
        """End everything; nothing hangs."""
        await self._stop_pumps()
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._presence is not None:
            await self._presence.end()
        await asyncio.gather(self.primary.close(), self.secondary.close(), return_exceptions=True)

    async def _stop_pumps(self) -> None:
        for pump in (self.pump, self.ordered_pump):
            if pump is not None:
                await pump.stop()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Time and pings

    def _changed(self, change: Change) -> None:
        """A scope fell ill or healed, perhaps in another thread: look at the clock again."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)
            if change.after is State.HEALTHY:
                for pump in (self.pump, self.ordered_pump):
                    if pump is not None:
                        self._loop.call_soon_threadsafe(pump.wake)
            elif change.after is State.SUSPECT:
                self._loop.call_soon_threadsafe(lambda: self._spawn(self._prepare()))
            if self._presence is not None:
                self._loop.call_soon_threadsafe(self._presence.changed)

    async def _prepare(self) -> None:
        """A failover may follow: open the links to the backlog, so that a diverted send waits for one answer only."""
        for queue in self.rotation.queues if self.rotation is not None else ():
            with suppress(ClientError):
                await self.secondary.sender(queue)

    async def _keep_time(self) -> None:
        """Failovers take effect and pings go out when they are due."""
        while True:
            self._woken.clear()
            due = self.board.next_due()
            wait_s = None if due is None else max(due - time.monotonic(), 0.0)
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                self._act()
                await asyncio.sleep(0.01)  # What is being pinged stays due until its answer comes.

    def _act(self) -> None:
        now = time.monotonic()
        for scope, health in self.board.ill().items():
            if health.due_at is None or health.due_at > now:
                continue
            if not health.pings:
                self.board.tell(scope, Event.TIME)
            elif scope not in self._pinging:
                self._pinging.add(scope)
                self._spawn(self._ping(scope))

    async def _ping(self, scope: Scope) -> None:
        began = time.monotonic()
        try:
            self.pings += 1
            now_ms = time.time_ns() // 1_000_000
            at = self.primary.address
            with tracing.span("send", scope.path, kind="CLIENT", name="ping", at=at, root=True) as span:
                span.say(ping=True)
                try:
                    await ping(self.primary, scope.path, self.board.key(scope), self.options.ping_with_probe, now_ms)
                except ClientError as error:
                    span.fail(error)
                    self.pings_failed += 1
                    event = Event.PING_REFUSED if kind_of(error) in _WILL_NOT_PASS else Event.PING_FAILED
                    self.board.tell(scope, event, error.text)
                else:
                    self.board.tell(scope, Event.PING_SENT)
        finally:
            self.ping_times.add(time.monotonic() - began)
            self._pinging.discard(scope)
            self._woken.set()
            if self._presence is not None and self.options.seconds("ping_primary_interval") >= TOLD_PING_S:
                self._presence.changed()

    # The halves

    async def _watch(self) -> None:
        """Where a syphon runs, one half does not outlive the other for long."""
        while True:
            await asyncio.sleep(WATCH_S)
            for half, partner in ((self.primary, self.secondary), (self.secondary, self.primary)):
                if half.state is not HalfState.OPEN and partner.state is HalfState.OPEN:
                    if half.state is HalfState.CLOSED:
                        await asyncio.sleep(self.options.seconds("partner_grace"))
                    if partner.state is HalfState.OPEN:
                        self._fault(partner, half)
                if half.state is not HalfState.OPEN and partner.state is not HalfState.OPEN:
                    await self._stop_pumps()
                    return

    def _fault(self, half: Half, cause: Half) -> None:
        reason = PartnerError(f"The {cause.role} namespace of the pair is {cause.state.value}: {cause.reason or ''}")
        half.fault(reason)
        if self.on_fault is not None:
            self.on_fault(half, reason)
