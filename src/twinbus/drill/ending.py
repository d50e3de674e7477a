"""How a drill ended: the verdict, the proof if there is one, and what a scenario found beside them.

Decides whether the drill holds; what is claimed is the scenario's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.drill.history import Verdict

if TYPE_CHECKING:
    from twinbus.drill.proof import Proof


def untrue(claims: Mapping[str, bool]) -> tuple[str, ...]:
    """What does not hold: each claim stands beside the words that say how it is broken."""
    return tuple(words for words, holds in claims.items() if not holds)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a drill ended."""

    verdict: Verdict
    suppressed: int = 0  # Second copies that the ledger kept from being worked on.
    proof: Proof | None = None
    remarks: tuple[str, ...] = ()  # For people, before the verdict.
    broken: tuple[str, ...] = ()  # Claims of the scenario's own that do not hold.

    @property
    def holds(self) -> bool:
        """Whether everything that the drill claims is so."""
        return self.verdict.holds and not self.broken and (self.proof is None or self.proof.holds)

    def lines(self, report: Path) -> list[str]:
        """For people and scripts; the verdict is the last."""
        lines = [*self.remarks, *(f"broken: {claim}" for claim in self.broken)]
        lines += [] if self.proof is None else self.proof.lines()
        return [
            *lines,
            f"report: {report}",
            f"suppressed by the ledger {self.suppressed}",
            self.verdict.line(),
        ]
