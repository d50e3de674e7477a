"""What a paired client is, whatever its flavour: two halves, a board, a companion, and the SDK's clients.

The flavours (`sync`, `aio`) add how to wait.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus.client import ConnectionString
from twinbus.model.logged import EventLog
from twinbus.pair import sdk
from twinbus.pair.board import Board, Change
from twinbus.pair.companion import Companion
from twinbus.pair.errors import OutboxError, PairingError
from twinbus.pair.half import Half, refuse_same
from twinbus.pair.health import Policy, State
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.ordered_route import OrderedRoute
from twinbus.pair.ordered_syphon import OrderedPump
from twinbus.pair.outbox import Outbox
from twinbus.pair.outbox_pair import PairOutbox
from twinbus.pair.outbox_rows import Counts, Queued
from twinbus.pair.outbox_sending import Beside
from twinbus.pair.pumping import Pump
from twinbus.pair.sending import PairedSending, Pairing

_log = EventLog(__name__)

PAIR_AGAIN_S = 2.0
RECORD_ENTITIES_MAX = 20
RECORD_TEXT_MAX = 300


@dataclass(frozen=True, slots=True)
class PairStatus:
    """How a pair stands, as this client sees it."""

    primary: str
    halves: dict[str, str]
    backlog_queues: list[str]
    resting_queues: list[str]
    ill: dict[str, str]  # Entities that are not healthy, and their state.
    diverted: int
    pings: int
    syphon: dict[str, Any] | None  # None where this process runs none.
    differing_queues: dict[str, list[str]] = field(default_factory=dict)
    stuck: dict[str, int] = field(default_factory=dict)  # Surplus queues that hold messages.
    outbox: dict[str, Any] | None = None  # None where this client has none.


class PairCore:
    """Two namespaces and what is between them."""

    def __init__(
        self,
        primary: Half,
        secondary: Half,
        options: SendAvailabilityOptions | None,
        *,
        primary_name: str | None = None,
        on_change: Callable[[Change], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options or SendAvailabilityOptions()
        self.primary = primary
        self.secondary = secondary
        policy = Policy(
            self.options.seconds("failover_interval"),
            self.options.seconds("ping_primary_interval"),
            self.options.heal_after_pings,
        )
        self.board = Board(policy, clock)
        if on_change is not None:
            self.board.listen(on_change)
        self.companion = Companion(primary, secondary, self.options, self.board, primary_name)
        self.companion.describe = self._record
        self.pairing = Pairing(self.board, self.companion, self.options)
        self.companion.make_ordered = lambda queues: OrderedRoute(self.pairing, queues)
        self.outbox: PairOutbox | None = None
        self._outbox_always = False
        self._outbox_counts: Counts | None = None

    def sending(self, sender: Any, path: str, always: bool | None = None, ordered: bool | None = None) -> PairedSending:
        """The steps of a sender; `always` and `ordered` as the client has them, unless they are given."""
        if ordered and not self.options.ordered:
            raise ValueError("An ordered sender needs a client whose options say ordered=True.")
        if always and self.outbox is None:
            raise ValueError("always=True needs a client with an outbox.")
        self.companion.look_up(path)
        ordered = self.options.ordered if ordered is None else ordered
        always = self._outbox_always if always is None else always
        beside = None
        if ordered or self.outbox is not None:
            beside = Beside(self.pairing, path, self.outbox, always, ordered)
        return PairedSending(self.pairing, sender, path, beside)

    def use_outbox(
        self, outbox: Outbox | Path | str | None, always: bool, on_queued: Callable[[Queued], None] | None
    ) -> None:
        """Keep in an outbox what nobody takes, or everything first."""
        if outbox is not None:
            owned = not isinstance(outbox, Outbox)
            made = outbox if isinstance(outbox, Outbox) else Outbox(outbox)
            self.outbox = PairOutbox(made, self.pairing, owned=owned, on_queued=on_queued)
            self._outbox_always = always
            self.companion.look_first = self._look_into_outbox
        elif always:
            raise ValueError("always=True needs an outbox.")

    async def open(self) -> None:
        """Make the pair, and begin to dispatch what is in the outbox; the outbox goes first, as it needs nobody."""
        if self.outbox is not None:
            await self.outbox.start()
        if self.companion.paired is None:
            await self.companion.start()

    async def pair_later(self) -> None:
        """Whoever has an outbox goes on without the pair, until it can be made."""
        while self.companion.paired is None:
            await asyncio.sleep(PAIR_AGAIN_S)
            try:
                await self.companion.start()
            except PairingError as problem:
                _log.warning("pair.waiting", "the pair cannot be made yet: {error}", error=problem)

    async def close(self) -> None:
        """End everything; nothing hangs."""
        if self.outbox is not None:
            await self.outbox.stop()
        await self.companion.stop()

    async def _look_into_outbox(self) -> None:
        """How full the outbox is, for the record; a disk that fails is not the record's business."""
        assert self.outbox is not None
        with suppress(OutboxError):
            looked = self.outbox.outbox.use(lambda tables, _: tables.counts(), reads=True)
            self._outbox_counts = await asyncio.wrap_future(looked)

    def _pings(self) -> dict[str, float] | None:
        """When the next ping is due; None while nothing is pinged."""
        due = [health.due_at for health in self.board.ill().values() if health.pings and health.due_at is not None]
        if not due:
            return None
        next_in_s = max(0.0, min(due) - self.board.now())
        return {"next_in_s": round(next_in_s, 1), "every_s": self.options.seconds("ping_primary_interval")}

    def _outbox_record(self) -> dict[str, Any] | None:
        counts = self._outbox_counts
        if counts is None:
            return None
        oldest_ms = counts.oldest_put_at_ms
        age_s = None if oldest_ms is None else max(0.0, time.time() - oldest_ms / 1000)
        return {"waiting": counts.messages - counts.aside, "set_aside": counts.aside, "oldest_s": age_s}

    def _record(self) -> dict[str, Any]:
        """What operators are told of this client; bounded, as a record is small."""
        status = self.status()
        syphon = status.syphon
        return {
            "ill": dict(list(status.ill.items())[:RECORD_ENTITIES_MAX]),
            "ill_count": len(status.ill),
            "diverted": status.diverted,
            "pings": status.pings,
            "ping": self._pings(),
            "outbox": self._outbox_record(),
            "halves": status.halves,
            "syphon": None
            if syphon is None
            else {
                "moved": sum(syphon["moved"].values()),
                "dead": syphon["dead"],
                "problem": (syphon["problem"] or "")[:RECORD_TEXT_MAX] or None,
            },
        }

    def status(self) -> PairStatus:
        """How the pair stands."""
        companion = self.companion
        paired, pump = companion.paired, companion.pump
        return PairStatus(
            primary=paired.primary if paired else "",
            halves={half.role: half.state.value for half in (self.primary, self.secondary)},
            backlog_queues=list(paired.queues) if paired else [],
            resting_queues=companion.rotation.resting() if companion.rotation else [],
            ill={
                str(scope): health.state.value
                for scope, health in self.board.ill().items()
                if health.state is not State.HEALTHY
            },
            diverted=(companion.diversion.diverted if companion.diversion else 0)
            + (companion.ordered.diverted if companion.ordered else 0),
            pings=companion.pings,
            syphon=None if pump is None else _moved(pump, companion.ordered_pump),
            differing_queues=dict(paired.differing) if paired else {},
            stuck={queue: count for queue, count in paired.surplus.items() if count} if paired else {},
            outbox=None if self.outbox is None else self.outbox.status(),
        )


def _moved(pump: Pump, ordered: OrderedPump | None) -> dict[str, Any]:
    """What the syphon of a client has done, with what it brought home in order."""
    told = {"moved": dict(pump.moved), "dead": pump.dead, "problem": pump.problem}
    if ordered is not None:
        told |= {"moved": dict(pump.moved + ordered.moved), "dead": pump.dead + ordered.dead}
        told["problem"] = pump.problem or ordered.problem
    return told


def halves(primary: str, secondary: str, kwargs: dict[str, Any], timeout_s: float) -> tuple[Half, Half]:
    """Both namespaces, from their connection strings."""
    tls = trusting(kwargs)
    first, second = ConnectionString.parse(primary), ConnectionString.parse(secondary)
    refuse_same(first, second)
    return Half("primary", first, tls=tls, timeout_s=timeout_s), Half("secondary", second, tls=tls, timeout_s=timeout_s)


def halves_of(primary: Any, secondary: Any, timeout_s: float) -> tuple[Half, Half]:
    """Both namespaces, from SDK clients that somebody made."""
    found = []
    for role, client in (("primary", primary), ("secondary", secondary)):
        tls = trusting({"connection_verify": client._connection_verify})
        found.append(Half(role, sdk.target_of(client), tls=tls, timeout_s=timeout_s))
    return found[0], found[1]


def trusting(kwargs: dict[str, Any]) -> ssl.SSLContext | None:
    """The SDK's way of naming authorities, for our own client."""
    context: ssl.SSLContext | None = kwargs.get("ssl_context")
    verify = kwargs.get("connection_verify")
    if context is None and verify:
        return ssl.create_default_context(cafile=verify)
    return context
