"""What a paired client is, whatever its flavour: two halves, a board, a companion, and the SDK's clients.

The flavours (`sync`, `aio`) add how to wait.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twinbus.client import ConnectionString
from twinbus.pair import sdk
from twinbus.pair.board import Board, Change
from twinbus.pair.companion import Companion
from twinbus.pair.half import Half, refuse_same
from twinbus.pair.health import Policy, State
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.sending import PairedSending, Pairing

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

    def sending(self, sender: Any, path: str) -> PairedSending:
        """The steps of a sender."""
        self.companion.look_up(path)
        return PairedSending(self.pairing, sender, path)

    def _record(self) -> dict[str, Any]:
        """What operators are told of this client; bounded, as a record is small."""
        status = self.status()
        syphon = status.syphon
        return {
            "ill": dict(list(status.ill.items())[:RECORD_ENTITIES_MAX]),
            "ill_count": len(status.ill),
            "diverted": status.diverted,
            "pings": status.pings,
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
            diverted=companion.diversion.diverted if companion.diversion else 0,
            pings=companion.pings,
            syphon=None if pump is None else {"moved": dict(pump.moved), "dead": pump.dead, "problem": pump.problem},
            differing_queues=dict(paired.differing) if paired else {},
            stuck={queue: count for queue, count in paired.surplus.items() if count} if paired else {},
        )


def halves(primary: str, secondary: str, kwargs: dict[str, Any], timeout_s: float) -> tuple[Half, Half]:
    """Both namespaces, from their connection strings."""
    tls = _trusting(kwargs)
    first, second = ConnectionString.parse(primary), ConnectionString.parse(secondary)
    refuse_same(first, second)
    return Half("primary", first, tls=tls, timeout_s=timeout_s), Half("secondary", second, tls=tls, timeout_s=timeout_s)


def halves_of(primary: Any, secondary: Any, timeout_s: float) -> tuple[Half, Half]:
    """Both namespaces, from SDK clients that somebody made."""
    found = []
    for role, client in (("primary", primary), ("secondary", secondary)):
        tls = _trusting({"connection_verify": client._connection_verify})
        found.append(Half(role, sdk.target_of(client), tls=tls, timeout_s=timeout_s))
    return found[0], found[1]


def _trusting(kwargs: dict[str, Any]) -> ssl.SSLContext | None:
    """The SDK's way of naming authorities, for our own client."""
    context: ssl.SSLContext | None = kwargs.get("ssl_context")
    verify = kwargs.get("connection_verify")
    if context is None and verify:
        return ssl.create_default_context(cafile=verify)
    return context
