"""Copies that wait for the fate of another one: their locks are renewed until that is done, or its claim lapses.

Decisions are made by `ledger`; what is done with a copy afterwards is in `receiver`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twinbus.model.logged import EventLog
from twinbus.pair.errors import LedgerError
from twinbus.pair.ledger.decisions import Copy, Decision, Key, State
from twinbus.pair.ledger.ledger import LedgerCore
from twinbus.pair.ledger.storage import Claim
from twinbus.pair.replication.namespace_receiver import NamespaceReceiver
from twinbus.pair.sdk import received as receiving_sdk

_log = EventLog(__name__)

LOOK_S = 1.0  # How often the ledger is asked about marks that were made elsewhere.
HELD_MAX = 2000
RENEW_S = 3.0  # A lock is renewed when it has no longer than this, or a third of its time.


class Arrival(NamedTuple):
    """A copy, and where it came from."""

    source: NamespaceReceiver
    message: Any
    key: Key | None  # None: it has no tag.
    copy: Copy


async def decisions_on(arrivals: Sequence[Arrival], ledger: LedgerCore, at_once: State | None = None) -> list[Decision]:
    """What the ledger says of each; a copy without a tag is nobody's second one. See `decisions.claim`."""
    claims = [
        Claim(each.key, each.copy, ledger.lease_of(receiving_sdk.locked_for_s(each.message)), at_once)
        for each in arrivals
        if each.key is not None
    ]
    answers = await asyncio.gather(*(asyncio.wrap_future(future) for future in ledger.claim(claims)))
    decided = iter([answer.decision for answer in answers])
    return [Decision.HAND_OUT if each.key is None else next(decided) for each in arrivals]


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

    async def close(self) -> list[Arrival]:
        """End; what was held, for those who give it back."""
        self._ledger.unlisten(self._marked)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        held = [*self._held, *self._ready]
        self._held.clear()
        self._ready.clear()
        return held

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
        """Ask the ledger again. Until it has answered they are held, so that they are given back at an end."""
        self._held = judged = [each for each in self._held if not receiving_sdk.lock_expired(each.message)]
        count = len(judged)
        try:
            decisions = await decisions_on(list(judged), self._ledger)
        except LedgerError as error:
            _log.warning(
                "ledger.unavailable", "held copies wait, because the ledger cannot be asked: {error}", error=error
            )
            return
        arrived_meanwhile = judged[count:]
        self._held = []
        for arrival, decision in zip(judged, decisions, strict=False):
            if decision is Decision.HOLD:
                self._held.append(arrival)
            elif decision is Decision.HAND_OUT:
                self._ready.append(arrival)
                self._arrived()
            else:
                self._dispose(arrival, decision)
        self._held += arrived_meanwhile
        self._keys = {arrival.key for arrival in self._held if arrival.key is not None}

    async def _renew(self) -> None:
        """Renew the locks that are about to run out."""
        now = asyncio.get_running_loop().time()
        for arrival in [*self._held, *self._ready]:
            if self._renew_at.get(arrival.copy, 0.0) > now or receiving_sdk.locked_for_s(arrival.message) is None:
                continue
            try:
                await arrival.source.call(lambda receiver, a=arrival: receiving_sdk.renew(receiver, a.message))  # type: ignore[misc]
            except Exception as error:
                _log.info(
                    "lock.lost",
                    "the lock of a held copy from {namespace} is lost: {error}",
                    namespace=arrival.source.namespace,
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
