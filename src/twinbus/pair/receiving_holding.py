"""Copies that wait for the fate of another one: their locks are renewed until that is done, or its claim lapses.

Decisions are made by `ledger`; what is done with a copy afterwards is told in `receiving`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from twinbus.model.logged import EventLog
from twinbus.pair import receiving_sdk
from twinbus.pair.errors import LedgerError
from twinbus.pair.ledger import Copy, Decision, Key
from twinbus.pair.ledger_keeping import LedgerCore
from twinbus.pair.ledger_storage import Claim
from twinbus.pair.receiving_lane import Lane

_log = EventLog(__name__)

LOOK_S = 1.0  # How often the ledger is asked about marks that were made elsewhere.
HELD_MAX = 2000
RENEW_S = 3.0  # A lock is renewed when it has no longer than this, or a third of its time.


class Arrival(NamedTuple):
    """A copy, and where it came from."""

    lane: Lane
    message: Any
    key: Key | None  # None: it has no tag.
    copy: Copy


class Holding:
    """The copies that one receiver holds back."""

    def __init__(
        self,
        ledger: LedgerCore,
        ready: deque[Arrival],
        arrived: Callable[[], None],
        dispose: Callable[[Arrival, Decision], None],
    ) -> None:
        self._ledger = ledger
        self._ready = ready
        self._arrived = arrived
        self._dispose = dispose
        self._held: list[Arrival] = []
        self._keys: set[Key] = set()
        self._renew_at: dict[Copy, float] = {}
        self._look = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more can be held."""
        return len(self._held) >= HELD_MAX

    def hold(self, arrival: Arrival) -> None:
        """Keep a copy until something can be said about it."""
        self._held.append(arrival)
        assert arrival.key is not None
        self._keys.add(arrival.key)
        self._plan(arrival)
        if self._keeping is None or self._keeping.done():
            self._loop = asyncio.get_running_loop()
            self._ledger.listen(self._marked)
            self._keeping = self._loop.create_task(self._keep())

    async def close(self) -> None:
        """Give back what is held."""
        self._ledger.unlisten(self._marked)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        for arrival in [*self._held, *self._ready]:
            arrival.lane.messages.append(arrival.message)  # The lane gives it back as it closes.
        self._held.clear()
        self._ready.clear()

    def _marked(self, key: Key) -> None:
        """A mark was made here, on the ledger's thread."""
        if key in self._keys and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look.set)

    async def _keep(self) -> None:
        try:
            while self._held or self._ready:
                self._look.clear()
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self._look.wait()
                except TimeoutError:
                    pass
                await self._judge()
                await self._renew()
        finally:
            self._ledger.unlisten(self._marked)

    async def _judge(self) -> None:
        """Ask the ledger again."""
        held, self._held = self._held, []
        self._keys = set()
        held = [arrival for arrival in held if not receiving_sdk.lock_expired(arrival.message)]
        claims = [
            Claim(arrival.key, arrival.copy, self._ledger.lease_of(receiving_sdk.locked_for_s(arrival.message)))
            for arrival in held
            if arrival.key is not None
        ]
        try:
            answers = await asyncio.gather(*(asyncio.wrap_future(future) for future in self._ledger.claim(claims)))
        except LedgerError as error:
            _log.warning(
                "ledger.unavailable", "held copies wait, because the ledger cannot be asked: {error}", error=error
            )
            self._held.extend(held)
            return
        for arrival, answer in zip(held, answers, strict=True):
            if answer.decision is Decision.HOLD:
                self._held.append(arrival)
                assert arrival.key is not None
                self._keys.add(arrival.key)
            elif answer.decision is Decision.HAND_OUT:
                self._ready.append(arrival)
                self._arrived()
            else:
                self._dispose(arrival, answer.decision)

    async def _renew(self) -> None:
        """Renew the locks that are about to run out."""
        now = asyncio.get_running_loop().time()
        for arrival in [*self._held, *self._ready]:
            if self._renew_at.get(arrival.copy, 0.0) > now or receiving_sdk.locked_for_s(arrival.message) is None:
                continue
            try:
                await arrival.lane.call(lambda receiver, a=arrival: receiving_sdk.renew(receiver, a.message))  # type: ignore[misc]
            except Exception as error:
                _log.info(
                    "lock.lost",
                    "the lock of a held copy from {namespace} is lost: {error}",
                    namespace=arrival.lane.namespace,
                    error=error,
                )
                if arrival in self._held:
                    self._held.remove(arrival)  # It comes again.
                continue
            self._plan(arrival)
        current = {arrival.copy for arrival in [*self._held, *self._ready]}
        self._renew_at = {copy: at for copy, at in self._renew_at.items() if copy in current}

    def _plan(self, arrival: Arrival) -> None:
        left_s = receiving_sdk.locked_for_s(arrival.message)
        if left_s is not None:
            self._renew_at[arrival.copy] = asyncio.get_running_loop().time() + max(left_s - max(RENEW_S, left_s / 3), 0)
