"""What a reconciliation found: balances, tables and delays as plain values, and the sentences that follow from them.

Nothing here needs Spark, so that reports, commands and tests can hold findings that came from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from twinbus.pipeline.proof.evidence import Window

SUSPICIOUS = ("lost", "unproven", "stuck", "duplicated", "late", "out_of_order", "imbalances")
HARMLESS = ("suppressed", "redelivered")
TITLES = {
    "lost": "lost",
    "unproven": "not accounted for",
    "stuck": "stuck",
    "duplicated": "worked on more than once",
    "late": "late",
    "out_of_order": "out of order in a session",
    "imbalances": "imbalances",
    "suppressed": "second copies suppressed by the ledger",
    "redelivered": "delivered again",
}


class Found(NamedTuple):
    """A table: how many rows there are, and the first of them."""

    name: str
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs here.
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def title(self) -> str:
        """What it is called for people."""
        return TITLES.get(self.name, self.name)

    def column(self, name: str) -> list[Any]:
        """One column of the rows that were brought."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Balance:
    """A namespace's copies: created, ended, and there. What is carried over was created before its journal begins."""

    namespace: str
    created: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    resident: Mapping[str, int] = field(default_factory=dict)
    apart: Mapping[str, int] = field(default_factory=dict)  # Pings and dropped duplicates made no copy.
    told: int = 0  # So many residents are known from the journal alone.
    moved: int = 0  # So many left the backlog for home.

    @property
    def difference(self) -> int:
        """What is created and neither ended nor there; below nothing, if more is there than was created."""
        return sum(self.created.values()) - sum(self.ended.values()) - sum(self.resident.values())

    def line(self) -> str:
        """The conservation line, with its parts."""

        def side(name: str, parts: Mapping[str, int]) -> str:
            told = ", ".join(f"{part.replace('_', ' ')} {count:,}" for part, count in parts.items() if count)
            return f"{name} {sum(parts.values()):,}" + (f" ({told})" if told else "")

        sides = f"{side('created', self.created)} = {side('ended', self.ended)} + {side('resident', self.resident)}"
        off = f"; off by {self.difference:+,}" if self.difference else ""
        return f"{self.namespace}: {sides}{off}"


class Delay(NamedTuple):
    """How long something took, over so many messages, in seconds."""

    what: str
    messages: int
    p50_s: float
    p95_s: float
    p99_s: float
    most_s: float


class Series(NamedTuple):
    """Counts by bins of time or of delay."""

    what: str
    bins: tuple[tuple[int, int], ...]  # The bin's number, and how many; bins with none are left out.


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened when: bins of equal width from an instant on."""

    first_us: int = 0
    width_us: int = 1
    series: Sequence[Series] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was found."""

    balances: Sequence[Balance] = ()
    tables: Mapping[str, Found] = field(default_factory=dict)
    fates: Mapping[str, int] = field(default_factory=dict)  # Messages, each counted once.
    delays: Sequence[Delay] = ()
    timeline: Timeline = field(default_factory=Timeline)
    latencies: Sequence[Series] = ()  # Bins are quarters of a power of two of a millisecond.
    limits: Sequence[str] = ()  # What could not be seen, and why.
    window: Window = field(default_factory=Window)
    operations: int = 0  # Rows of the journals.
    acknowledged: int | None = None  # Messages of the send logs; None without one.

    def count(self, name: str) -> int:
        """How many rows a table has; none if it was not made."""
        found = self.tables.get(name)
        return 0 if found is None else found.count

    @property
    def balances_out(self) -> bool:
        """Whether the conservation line holds: in sum, and copy by copy."""
        return not self.count("imbalances") and not any(balance.difference for balance in self.balances)

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, and the line balances."""
        return not self.count("lost") and self.balances_out

    @property
    def is_proven(self) -> bool:
        """Whether every acknowledged message is accounted for."""
        return not self.count("unproven")

    def verdict(self) -> str:
        """One sentence."""
        if not self.holds:
            told = [f"{self.count('lost'):,} lost"] if self.count("lost") else []
            told += ["the conservation line does not balance"] if not self.balances_out else []
            return f"It does not hold: {', and '.join(told)}."
        if not self.is_proven:
            return f"Not proven: {self.count('unproven'):,} acknowledged messages cannot be accounted for."
        if self.acknowledged is None:
            return "It balances. Without a send log, loss before the journal cannot be seen."
        return f"It holds: all {self.acknowledged:,} acknowledged messages are accounted for, and the line balances."

    def line(self) -> str:
        """The conservation line in short, over all namespaces."""
        sums = (
            f"{balance.namespace} {sum(balance.created.values()):,} = {sum(balance.ended.values()):,}"
            f" + {sum(balance.resident.values()):,}"
            for balance in self.balances
        )
        moved = sum(balance.moved for balance in self.balances)
        verdict = "balances" if self.balances_out else "does not balance"
        return f"conservation (created = ended + resident): {'; '.join(sums)}; brought home {moved:,}; {verdict}"

    def pair_line(self) -> str:
        """The same across the pair: what was moved home left one namespace and came to the other, and cancels out."""
        moved = sum(balance.moved for balance in self.balances)
        created, ended, resident = (
            sum(sum(getattr(balance, side).values()) for balance in self.balances)
            for side in ("created", "ended", "resident")
        )
        suppressed = self.fates.get("suppressed", 0)
        return (
            f"pair: created {created - moved:,} = ended {ended - moved:,} (of these suppressed by the ledger"
            f" {suppressed:,}) + resident {resident:,}; {moved:,} brought home, which cancel out"
        )

    def document(self) -> dict[str, Any]:
        """Everything for scripts."""
        return {
            "holds": self.holds,
            "proven": self.is_proven,
            "verdict": self.verdict(),
            "balances_out": self.balances_out,
            "line": self.line(),
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "namespaces": [
                {
                    "namespace": balance.namespace,
                    "created": dict(balance.created),
                    "ended": dict(balance.ended),
                    "resident": dict(balance.resident),
                    "apart": dict(balance.apart),
                    "by_journal_alone": balance.told,
                    "brought_home": balance.moved,
                    "difference": balance.difference,
                }
                for balance in self.balances
            ],
            "messages": dict(self.fates),
            "delays": [delay._asdict() for delay in self.delays],
            "tables": {
                name: {"count": found.count, "rows": [dict(zip(found.columns, row, strict=True)) for row in found.rows]}
                for name, found in self.tables.items()
            },
            "limits": list(self.limits),
        }
