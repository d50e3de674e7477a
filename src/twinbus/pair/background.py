"""The background of a paired client, on one event loop: pings, diverted sends, the syphon, the end of both.

An asynchronous application lends its own loop, a synchronous one gets a thread with one (`sync`). Decisions are made
by `health_board` and `health`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from twinbus.client.errors import ClientError
from twinbus.model.logged import EventLog
from twinbus.model.metrics import Spread
from twinbus.pair import tracing
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.ending import Ending
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.pairing import Pairing
from twinbus.pair.presence import RENEW_S, Presence
from twinbus.pair.route.carrier import Carrier, Failed, Patience
from twinbus.pair.route.entities import Entities
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.route.health import Event, State
from twinbus.pair.route.health_board import Change, HealthBoard, Scope
from twinbus.pair.route.ping import ping
from twinbus.pair.route.presets import PRESETS
from twinbus.pair.syphon.syphon import Syphon

_log = EventLog(__name__)

GRACE_S = 0.25  # For an attempt to end by itself, and say why.
AGAIN_S, AGAIN_MAX_S = 1.0, 30.0  # What is missing of the pair is tried again.
PING_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
OUTBOX_RENEW_S = 10.0  # A client with an outbox says more often how full it is.
ANNOUNCED_PING_S = 5.0  # Pings that follow each other more closely are not announced one by one.
# A ping that fails so is not to be tried for ever as if the datacenter were down.
_WILL_NOT_PASS = (Failure.PERMANENT, Failure.MISTAKE)


class Background:
    """Made by a paired client; `start` on the loop that it shall run on."""

    def __init__(
        self,
        primary: RemoteNamespace,
        secondary: RemoteNamespace,
        options: SendAvailabilityOptions,
        health_board: HealthBoard,
        primary_name: str | None,
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.options = options
        self.health_board = health_board
        self.pairing = Pairing(primary, secondary, options, primary_name, self.was_diverted)
        self.is_started = False
        self.syphon: Syphon | None = None
        self.on_fault: Callable[[RemoteNamespace, Exception], None] | None = None
        self.on_diverted: Callable[[Diverted], None] | None = None
        self.describe: Callable[[], dict[str, Any]] = dict  # What its status record says.
        self.look_first: Callable[[], Awaitable[None]] | None = None  # Before that; then it is announced more often.
        self.entities = Entities(primary)
        self.entities.restore(self.pairing.entities)
        self._preset = PRESETS[options.preset]
        # Where the first failure counts, the same call has to reach the backlog in time.
        share = 1.0 if options.seconds("failover_interval") else 0.5
        patience = Patience(options.seconds("primary_timeout"), share, options.seconds("divert_timeout"))
        self.carrier = Carrier(health_board, primary, self.entities, self._preset.counting, patience)
        self.pings = self.pings_failed = 0
        self.pings_by_entity: Counter[str] = Counter()
        self.ping_times = Spread(PING_BOUNDS_S)
        self._presence: Presence | None = None
        self._new_paths: list[str] = []
        self._runs_for = ""  # The primary whose syphon and status record there are.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._unsure = asyncio.Event()  # The primary is back, and may be another one.
        self._tasks: set[asyncio.Task[None]] = set()
        self._pinging: set[Scope] = set()

    async def start(self) -> None:
        """Make the pair as far as that is possible now, and stand by; the rest follows."""
        self._loop = asyncio.get_running_loop()
        self.carrier.backlog = self.pairing.diversion
        self.carrier.ordered = self.pairing.ordered
        problem = f"no answer within {self.options.seconds('attempt_timeout'):g} s"
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.seconds("attempt_timeout") + GRACE_S):
                problem = await self.pairing.complete()
        if (met := self.pairing.problem) is not None and not self.primary.has_answered:
            self.carrier.begin_without(Failed(kind_of(met), met.text), self.options.seconds("ping_primary_interval"))
        if problem:
            _log.warning("pair.incomplete", "the pair is not complete yet: {error}", error=problem)
        self.is_started = True
        self.health_board.listen(self._changed)
        self._spawn(self._run_timers())
        self._spawn(self._make_whole())
        if self.options.enable_syphon:
            self._spawn(self._end_together())
        for path in self._new_paths:
            self._spawn(self.entities.find_out(path))

    async def _make_whole(self) -> None:
        """Have the pair made whole, and run what needs the primary's name, from when it is known."""
        pairing, again_s = self.pairing, AGAIN_S
        while True:
            await self._run_for(pairing.paired.primary)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if pairing.is_complete else again_s):
                    await self._unsure.wait()
            if self._unsure.is_set():
                self._unsure.clear()
                pairing.doubt()
            problem = await pairing.complete()
            if problem:
                _log.info("pair.incomplete", "the pair is not complete yet: {error}", error=problem)
            again_s = min(again_s * 2, AGAIN_MAX_S) if problem else AGAIN_S

    async def _run_for(self, primary: str) -> None:
        if primary in ("", self._runs_for):
            return
        self._runs_for = primary
        options, namespaces = self.options, (self.primary, self.secondary)
        if options.enable_syphon:
            await self._stop_syphon()
            self.syphon = Syphon(*namespaces, primary, self.pairing.paired.drained, options)
            self.syphon.start()
        if options.announce and self._presence is None:
            renew_s = RENEW_S if self.look_first is None else OUTBOX_RENEW_S
            self._presence = Presence("paired-client", primary, namespaces, self.describe, renew_s, self.look_first)
            self._spawn(self._presence.run())
        elif self._presence is not None:  # It was announced under the provisional name.
            self._presence.pair = primary
            self._presence.changed()
        if self.syphon is not None:
            self.syphon.on_change = self._syphon_changed

    def _syphon_changed(self) -> None:
        """It may have found the primary again, which can then say who it is."""
        if self._presence is not None:
            self._presence.changed()
        if not self.pairing.is_complete:
            self._unsure.set()

    def look_up(self, path: str) -> None:
        """Find out in the background what kind of entity is sent to; may be called in any thread."""
        if not self.entities.is_new(path):
            return
        if not self.is_started or self._loop is None:
            self._new_paths.append(path)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._spawn(self.entities.find_out(path)))

    def was_diverted(self, diverted: Diverted) -> None:
        """Announce it to those who listen."""
        if self.on_diverted is not None:
            self.on_diverted(diverted)

    async def stop(self) -> None:
        """End everything; nothing hangs."""
        self.pairing.remember_entities(self.entities.document())
        await self._stop_syphon()
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._presence is not None:
            await self._presence.end()
        await asyncio.gather(self.primary.close(), self.secondary.close(), return_exceptions=True)

    async def _stop_syphon(self) -> None:
        if self.syphon is not None:
            await self.syphon.stop()

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
                self._loop.call_soon_threadsafe(self._unsure.set)
                if self.syphon is not None:
                    self._loop.call_soon_threadsafe(self.syphon.wake)
            else:
                self._loop.call_soon_threadsafe(lambda: self.pairing.remember_entities(self.entities.document()))
            if change.after is State.SUSPECT:
                self._loop.call_soon_threadsafe(lambda: self._spawn(self._prepare()))
            if self._presence is not None:
                self._loop.call_soon_threadsafe(self._presence.changed)

    async def _prepare(self) -> None:
        """A failover may follow: open the links to the backlog, so that a diverted send waits for one answer only."""
        for queue in self.pairing.rotation.queues:
            with suppress(ClientError):
                await self.secondary.message_bytes_max(queue)

    async def _run_timers(self) -> None:
        """Failovers take effect and pings go out when they are due."""
        while True:
            self._woken.clear()
            due = self.health_board.next_due()
            wait_s = None if due is None else max(due - time.monotonic(), 0.0)
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                self._act()
                await asyncio.sleep(0.01)  # What is being pinged stays due until its answer comes.

    def _act(self) -> None:
        now = time.monotonic()
        for scope, health in self.health_board.ill().items():
            if health.due_at is None or health.due_at > now:
                continue
            if not health.pings:
                self.health_board.record(scope, Event.TIME)
            elif scope not in self._pinging:
                self._pinging.add(scope)
                self._spawn(self._ping(scope))

    async def _ping(self, scope: Scope) -> None:
        began = time.monotonic()
        try:
            self.pings += 1
            self.pings_by_entity[scope.path] += 1
            now_ms = time.time_ns() // 1_000_000
            at = self.primary.address
            with tracing.span("send", scope.path, kind="CLIENT", name="ping", at=at, root=True) as span:
                span.say(ping=True)
                try:
                    await ping(
                        self.primary, scope.path, self.health_board.key(scope), self.options.ping_with_probe, now_ms
                    )
                except ClientError as error:
                    span.fail(error)
                    self.pings_failed += 1
                    is_refused = self._preset.refused_ping_ends_diverting and kind_of(error) in _WILL_NOT_PASS
                    event = Event.PING_REFUSED if is_refused else Event.PING_FAILED
                    self.health_board.record(scope, event, error.text)
                else:
                    self.health_board.record(scope, Event.PING_SENT)
        finally:
            self.ping_times.add(time.monotonic() - began)
            self._pinging.discard(scope)
            self._woken.set()
            if self._presence is not None and self.options.seconds("ping_primary_interval") >= ANNOUNCED_PING_S:
                self._presence.changed()

    # The end of both namespaces

    async def _end_together(self) -> None:
        """Where a syphon runs, one namespace does not stay open for long without the other; then all work ends."""
        grace_s = self.options.seconds("partner_grace")
        await Ending(self.primary, self.secondary, grace_s, self._faulted).run()
        await self._stop_syphon()
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(self.primary.close(), self.secondary.close(), return_exceptions=True)

    def _faulted(self, namespace: RemoteNamespace, reason: Exception) -> None:
        if self.on_fault is not None:
            self.on_fault(namespace, reason)
