"""The small checks of a process: stores, disk, clock, certificate, journal, event loop, each by itself.

They look at this process alone, never at a partner, and change nothing. Reasons name no path and no address, because
whoever can reach the port may read them; `/$api/stores` has the rest, for those with a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twinbus.admin.probes import Check, Finding
from twinbus.broker.hosting import Hosted
from twinbus.broker.loop_watch import LoopWatch
from twinbus.broker.measuring import DISK_FREE_LIMIT_BYTES, Measures
from twinbus.broker.opened import StoreState
from twinbus.model.clock import Clock

LAG_LIMIT_S = 1.0
DRIFT_LIMIT_S = 5.0
CERTIFICATE_LIMIT_S = 14 * 24 * 3600


class Health:
    """What can be asked one by one under `/healthz/`."""

    def __init__(
        self,
        hosted: Sequence[Hosted],
        measures: Sequence[Measures],
        clock: Clock,
        wall_clock: Clock,
        certificate_expires_s: int | None,
    ) -> None:
        """`clock` is the broker's own, `wall_clock` the machine's as it is now."""
        self._hosted = hosted
        self._measures = measures
        self._clock = clock
        self._wall_clock = wall_clock
        self.certificate_expires_s = certificate_expires_s
        self.loop = LoopWatch()
        self._failing_since_ms: dict[str, int] = {}

    @property
    def drift_s(self) -> float:
        """How far the machine's clock is ahead of the broker's."""
        return (self._wall_clock.now_ms() - self._clock.now_ms()) / 1000

    def serves(self) -> bool:
        """Whether one store at least takes commands."""
        return any(store.is_available for hosted in self._hosted for store in hosted.stores)

    def doubts(self) -> list[str]:
        """What is not served because nobody but an operator knows whether it may be, one sentence each."""
        found = [
            f"store {store.number} of '{hosted.settings.name}' is set aside: `twinbus store list` says why."
            for hosted in self._hosted
            for store in hosted.stores
            if store.state_name == StoreState.SET_ASIDE.value
        ]
        return found + self._catalog_doubts()

    def _catalog_doubts(self) -> list[str]:
        found = [
            f"the catalog of '{hosted.settings.name}' takes no changes: `twinbus status` says why."
            for hosted in self._hosted
            if hosted.data.catalog_problem
        ]
        for hosted in self._hosted:
            quarantine = hosted.namespace.quarantine
            if aside := len(quarantine.orphans()) + len(quarantine.unreadable):
                found.append(
                    f"{aside} entities of '{hosted.settings.name}' are set aside: `twinbus store orphans` lists them."
                )
        return found

    def checks(self) -> Mapping[str, Check]:
        """All checks by name; a certificate and a journal have one where they are used."""
        found: dict[str, Check] = {
            "store": self._store,
            "catalog": self._catalog,
            "disk": self._disk,
            "clock": self._check_clock,
        }
        if self.certificate_expires_s is not None:
            found["certs"] = self._certs
        if any(hosted.exporter is not None for hosted in self._hosted):
            found["journal"] = self._journal
        return found | {"loop": self._loop}

    async def _store(self) -> Finding:
        ill = [
            (store.since_ms, f"store {store.number} of '{hosted.settings.name}' is {store.state_name}")
            for hosted in self._hosted
            for store in hosted.stores
            if store.state_name != "up"
        ]
        if not ill:
            return Finding(True, "All messaging stores are up.")
        return Finding(False, f"{'; '.join(text for _, text in ill)}.", min(since for since, _ in ill))

    async def _catalog(self) -> Finding:
        return self._judged("catalog", " ".join(self._catalog_doubts()))

    async def _disk(self) -> Finding:
        for hosted, measures in zip(self._hosted, self._measures, strict=True):
            name = hosted.settings.name
            if not await measures.look_at_disk():
                return self._judged("disk", f"The disk of '{name}' does not answer.")
            if measures.free_bytes is not None and measures.free_bytes < DISK_FREE_LIMIT_BYTES:
                free = measures.free_bytes // 2**20
                limit = DISK_FREE_LIMIT_BYTES // 2**20
                return self._judged("disk", f"The disk of '{name}' has {free} MiB left; the limit is {limit} MiB.")
        return self._judged("disk", "")

    async def _check_clock(self) -> Finding:
        drift = self.drift_s
        if abs(drift) <= DRIFT_LIMIT_S:
            return self._judged("clock", "")
        side = "ahead of" if drift > 0 else "behind"
        return self._judged("clock", f"The machine's clock is {abs(drift):.0f} s {side} the broker's: restart it.")

    async def _certs(self) -> Finding:
        left_s = (self.certificate_expires_s or 0) - self._wall_clock.now_ms() // 1000
        if left_s >= CERTIFICATE_LIMIT_S:
            return self._judged("certs", "")
        ended = "has ended" if left_s <= 0 else f"ends in {left_s / 86_400:.1f} days"
        return self._judged("certs", f"The TLS certificate {ended}: renew it, and restart the broker.")

    async def _journal(self) -> Finding:
        failing = [
            hosted.settings.name
            for hosted in self._hosted
            if hosted.exporter is not None and any(hosted.exporter.metrics()["journal_export_failing"].values())
        ]
        return self._judged("journal", f"The journal of '{failing[0]}' cannot be exported." if failing else "")

    async def _loop(self) -> Finding:
        lag = self.loop.lag_s
        late = f"The event loop was {lag:.1f} s late within the last minute."
        return self._judged("loop", late if lag > LAG_LIMIT_S else "")

    def _judged(self, check: str, problem: str) -> Finding:
        """A finding; since when it fails is known from the first time that somebody asked."""
        if not problem:
            self._failing_since_ms.pop(check, None)
            return Finding(True, "ok")
        return Finding(False, problem, self._failing_since_ms.setdefault(check, self._wall_clock.now_ms()))
