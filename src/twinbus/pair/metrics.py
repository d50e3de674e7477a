"""The numbers of a paired client for Prometheus: a collector that an application registers, and nothing that costs.

Everything is counted elsewhere while it happens, and read when a scrape comes; what the names mean is in
`model.metrics`. The backlog itself is counted by the namespace that holds it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from twinbus.model.exposition import families
from twinbus.model.metrics import Labels, Numbers, Value
from twinbus.pair.errors import OutboxError
from twinbus.pair.route.health import State

if TYPE_CHECKING:
    from twinbus.pair.core import PairCore
    from twinbus.pair.ledger.ledger import LedgerCore
    from twinbus.pair.sdk.clients.paired import PairedClient
    from twinbus.pair.syphon.home import Progress
    from twinbus.pair.syphon.standalone import StandaloneSyphon

STATES = {state: state.value.replace(" ", "_") for state in State}
_FROM_BAD_TO_WORSE = (State.HEALTHY, State.SUSPECT, State.FAILED_OVER, State.REFUSED)


class PairMetrics(Collector):
    """Register it: `REGISTRY.register(PairMetrics(client))`. One for each pair and registry."""

    def __init__(self, client: PairedClient[Any, Any], ledger: LedgerCore | None = None) -> None:
        """`ledger` is the one that the client's receivers use, if they use one."""
        self._core = client._core
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """The numbers of this moment; none before the pair is made."""
        primary = self._core.background.pairing.paired.primary
        return iter(()) if not primary else families(numbers(self._core, self._ledger, primary))


class SyphonMetrics(Collector):
    """The same for a syphon that has a process of its own."""

    def __init__(self, syphon: StandaloneSyphon) -> None:
        self._syphon = syphon

    def collect(self) -> Iterator[Metric]:
        """The numbers of this moment; none before the pair is made."""
        paired = self._syphon.paired
        if paired is None:
            return iter(())
        moved = _moved(self._syphon.progress)
        return families({f"twinbus_{name}": {(("pair", paired.primary),): value} for name, value in moved.items()})


def numbers(core: PairCore, ledger: LedgerCore | None, pair: str) -> Numbers:
    """Everything that is counted about a pair, by public name."""
    found: dict[str, dict[Labels, Value]] = {
        f"twinbus_{name}": {(("pair", pair),): value} for name, value in _plain(core, ledger).items()
    }
    states = [health.state for health in core.health_board.ill().values()]
    worst = max(states, key=_FROM_BAD_TO_WORSE.index, default=State.HEALTHY)
    found["twinbus_pair_state"] = {
        (("pair", pair), ("state", name)): int(state is worst) for state, name in STATES.items()
    }
    found["twinbus_pair_entity_pings_total"] = {
        (("pair", pair), ("entity", entity)): count for entity, count in core.background.pings_by_entity.items()
    }
    found["twinbus_pair_ill_entities"] = {
        (("pair", pair), ("state", name)): states.count(state)
        for state, name in STATES.items()
        if state is not State.HEALTHY
    }
    return found


def _plain(core: PairCore, ledger: LedgerCore | None) -> dict[str, Value]:
    background, status = core.background, core.status()
    told: dict[str, Value] = {
        "pair_failovers_total": core.health_board.failovers.total(),
        "pair_diverted_messages_total": status.diverted,
        "pair_pings_total": background.pings,
        "pair_pings_failed_total": background.pings_failed,
        "pair_ping_seconds": background.ping_times.histogram(),
        "pair_failed_over_seconds": _failed_over_s(core),
        "pair_resting_queues": len(status.resting_queues),
    }
    if background.syphon is not None:
        told |= _moved(background.syphon.progress)
    if ledger is not None:
        told["ledger_suppressed_total"] = ledger.counts["suppressed"]
        told["ledger_handed_total"] = ledger.counts["handed_out"]
    return told | _outbox(core)


def _moved(progress: Progress) -> dict[str, Value]:
    return {
        "syphon_moved_total": progress.moved.total(),
        "syphon_deadlettered_total": progress.dead,
        "syphon_duplicates_total": progress.doubled,
    }


def _outbox(core: PairCore) -> dict[str, Value]:
    if core.outbox is None:
        return {}
    told: dict[str, Value] = {"outbox_sent_total": core.outbox.dispatcher.progress.sent}
    try:
        counts = core.outbox.outbox.counts()
    except OutboxError:
        return told  # Its disk fails, which its senders hear of.
    put_at_ms = counts.oldest_put_at_ms
    return told | {
        "outbox_messages": counts.messages - counts.aside,
        "outbox_oldest_seconds": 0.0 if put_at_ms is None else max(0.0, time.time() - put_at_ms / 1000),
        "outbox_set_aside_messages": counts.aside,
    }


def _failed_over_s(core: PairCore) -> float:
    since = [health.since for health in core.health_board.ill().values() if health.state is State.FAILED_OVER]
    return max(0.0, core.health_board.now() - min(since)) if since else 0.0
