"""What a paired client is, whatever its flavour: two namespaces, the health of entities, work in the background.

The flavours (`sync`, `aio`) add how to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus.model.logged import EventLog
from twinbus.pair.background import Background
from twinbus.pair.errors import OutboxError
from twinbus.pair.namespace.open_links import heard
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.outbox.behind_pair import PairOutbox
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Counts, Queued
from twinbus.pair.route.carrier import Sending
from twinbus.pair.route.health import Policy, State
from twinbus.pair.route.health_board import Change, HealthBoard
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.namespace import SdkNamespace, needs_sdk, settings_of
from twinbus.pair.syphon.home import Progress

_log = EventLog(__name__)

RECORD_ENTITIES_MAX = 20


@dataclass(frozen=True, slots=True)
class PairStatus:
    """How a pair stands, as this client sees it."""

    primary: str
    namespaces: dict[str, str]
    backlog_queues: list[str]
    resting_queues: list[str]
    ill: dict[str, str]  # Entities that are not healthy, and their state.
    diverted: int
    pings: int
    syphon: dict[str, Any] | None  # None where this process runs none.
    differing_queues: dict[str, list[str]] = field(default_factory=dict)
    outbox: dict[str, Any] | None = None  # None where this client has none.
    pings_by_entity: dict[str, int] = field(default_factory=dict)


class PairCore:
    """Two namespaces and what is between them."""

    def __init__(
        self,
        primary: RemoteNamespace,
        secondary: RemoteNamespace,
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
        self.health_board = HealthBoard(policy, clock)
        if on_change is not None:
            self.health_board.listen(on_change)
        self.background = Background(primary, secondary, self.options, self.health_board, primary_name)
        self.background.describe = self._record
        self.carrier = self.background.carrier
        self.outbox: PairOutbox | None = None
        self._outbox_always = False
        self._outbox_counts: Counts | None = None
        self._opening: asyncio.Task[None] | None = None

    def sending(self, path: str, always: bool | None = None, ordered: bool | None = None) -> Sending:
        """What is sent to an entity, and how; `always` and `ordered` as the client has them, unless they are given."""
        if ordered and not self.options.ordered:
            raise ValueError("An ordered sender needs a client whose options say ordered=True.")
        if always and self.outbox is None:
            raise ValueError("always=True needs a client with an outbox.")
        self.background.look_up(path)
        ordered = self.options.ordered if ordered is None else ordered
        always = self._outbox_always if always is None else always
        return Sending(path, self.outbox, always, ordered)

    def use_outbox(
        self, outbox: Outbox | Path | str | None, always: bool, on_queued: Callable[[Queued], None] | None
    ) -> None:
        """Keep in an outbox what nobody takes, or everything first."""
        if outbox is not None:
            owned = not isinstance(outbox, Outbox)
            made = outbox if isinstance(outbox, Outbox) else Outbox(outbox)
            self.outbox = PairOutbox(made, self.carrier, self.health_board, owned=owned, on_queued=on_queued)
            self._outbox_always = always
            self.background.look_first = self._look_into_outbox
        elif always:
            raise ValueError("always=True needs an outbox.")

    async def open(self) -> None:
        """Make the pair, and begin to dispatch what is in the outbox; the outbox goes first, as it needs nobody."""
        if self.outbox is not None:
            await self.outbox.start()
        if not self.background.is_started:
            await self.background.start()

    async def open_once(self, timeout_s: float | None = None) -> None:
        """The same, once for all who want it at the same time; who has no time to wait for it goes on without."""
        opening = self._opening
        if opening is None or (opening.done() and not self.background.is_started):
            opening = self._opening = asyncio.create_task(self.open())  # The next one may try again.
            opening.add_done_callback(heard)
        done, _ = await asyncio.wait({opening}, timeout=timeout_s)
        for each in done:
            each.result()

    async def close(self) -> None:
        """End everything; nothing hangs."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self.outbox is not None:
            await self.outbox.stop()
        await self.background.stop()

    async def _look_into_outbox(self) -> None:
        """How full the outbox is, for the record; a disk that fails is reported elsewhere."""
        assert self.outbox is not None
        with suppress(OutboxError):
            looked = self.outbox.outbox.use(lambda tables, _: tables.counts(), reads=True)
            self._outbox_counts = await asyncio.wrap_future(looked)

    def _pings(self) -> dict[str, float] | None:
        """When the next ping is due; None while nothing is pinged."""
        due = [
            health.due_at for health in self.health_board.ill().values() if health.pings and health.due_at is not None
        ]
        if not due:
            return None
        next_in_s = max(0.0, min(due) - self.health_board.now())
        return {"next_in_s": round(next_in_s, 1), "every_s": self.options.seconds("ping_primary_interval")}

    def _outbox_record(self) -> dict[str, Any] | None:
        counts = self._outbox_counts
        if counts is None:
            return None
        oldest_ms = counts.oldest_put_at_ms
        age_s = None if oldest_ms is None else max(0.0, time.time() - oldest_ms / 1000)
        return {"waiting": counts.messages - counts.aside, "set_aside": counts.aside, "oldest_s": age_s}

    def _record(self) -> dict[str, Any]:
        """What operators learn of this client; bounded, as a record is small."""
        status = self.status()
        syphon = self.background.syphon
        return {
            "ill": dict(list(status.ill.items())[:RECORD_ENTITIES_MAX]),
            "ill_count": len(status.ill),
            "diverted": status.diverted,
            "pings": status.pings,
            "pings_by_entity": dict(self.background.pings_by_entity.most_common(RECORD_ENTITIES_MAX)),
            "ping": self._pings(),
            "outbox": self._outbox_record(),
            "namespaces": status.namespaces,
            "syphon": None if syphon is None else syphon.record(),
        }

    def status(self) -> PairStatus:
        """How the pair stands."""
        background = self.background
        pairing, syphon = background.pairing, background.syphon
        paired, ordered = pairing.paired, pairing.ordered
        return PairStatus(
            primary=paired.primary,
            namespaces={namespace.role: namespace.state.value for namespace in (self.primary, self.secondary)},
            backlog_queues=pairing.rotation.queues,
            resting_queues=pairing.rotation.resting(),
            ill={
                str(scope): health.state.value
                for scope, health in self.health_board.ill().items()
                if health.state is not State.HEALTHY
            },
            diverted=pairing.diversion.diverted + (0 if ordered is None else ordered.diverted),
            pings=background.pings,
            pings_by_entity=dict(background.pings_by_entity),
            syphon=None if syphon is None else _moved(syphon.progress),
            differing_queues=dict(paired.differing),
            outbox=None if self.outbox is None else self.outbox.status(),
        )


def _moved(progress: Progress) -> dict[str, Any]:
    """What the syphon of a client has done."""
    return {"moved": dict(progress.moved), "dead": progress.dead, "problem": progress.problem}


def namespaces_of(
    primary: Any,
    secondary: Any,
    options: SendAvailabilityOptions,
    described: tuple[RemoteNamespace, RemoteNamespace] | None = None,
) -> tuple[RemoteNamespace, RemoteNamespace]:
    """Both namespaces of SDK clients that somebody made, or as they were `described`.

    Each is reached over our own client, unless the options say otherwise, or only the SDK knows the way.
    """
    first, second = described or (None, None)
    return (
        _namespace_of("primary", primary, options, first),
        _namespace_of("secondary", secondary, options, second),
    )


def _namespace_of(
    role: str, client: Any, options: SendAvailabilityOptions, described: RemoteNamespace | None
) -> RemoteNamespace:
    namespace = described or OwnClientNamespace(
        role,
        sdk.target_of(client),
        tls=sdk.trusting(settings_of(client)),
        timeout_s=options.seconds("attempt_timeout"),
    )
    if options.adapter == "sdk" or needs_sdk(client, namespace.target):
        return SdkNamespace.instead_of(namespace, client)
    return namespace
