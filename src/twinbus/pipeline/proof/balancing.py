"""Counts of copies by namespace and by how they came and went, put together to the conservation line's two sides.

Counting is done in SQL (`judgement.BALANCE`); what a line looks like is `findings`' business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from twinbus.pipeline.proof import custody
from twinbus.pipeline.proof.findings import Balance

_WORKED = ("completed", "received_deleted")


class _Sides:
    """One namespace's counts as they come."""

    def __init__(self) -> None:
        self.created: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.resident: Counter[str] = Counter()
        self.apart: Counter[str] = Counter()
        self.told = 0
        self.moved = 0

    def take(self, row: Mapping[str, Any]) -> None:
        """One row of the counts."""
        side, way, count = row["side"], row["way"], row["creations"]
        if side == "copies":
            self._take_copies(row)
        elif side in ("seen", "told"):
            self.resident[way] += count
            self.told += count if side == "told" else 0
        elif side == "apart":
            self.apart[way] += count
        elif side == "carried":
            self.created["carried_over"] += count
            self.resident["carried_over"] += count if way == "resident" else 0
        elif way == "resident":
            self.resident["never_created"] += count

    def _take_copies(self, row: Mapping[str, Any]) -> None:
        if row["creations"]:
            self.created[custody.CREATED[row["how_created"] - 1].name] += row["creations"]
        if row["ends"]:
            is_old_number = row["how_ended"] == custody.RENUMBERED
            way = "renumbered" if is_old_number else custody.ENDED[row["how_ended"] - 1].name
            self.ended[way] += row["ends"]
            if row["in_backlog"] and way in _WORKED and not row["ended_dead"]:
                self.moved += row["ends"]

    def balance(self, namespace: str) -> Balance:
        """The two sides; what was only renumbered cancels out."""
        again = min(self.created["renumbered"], self.ended["renumbered"])
        self.created["renumbered"] -= again
        self.ended["renumbered"] -= again
        created, ended, resident, apart = (
            dict((+side).most_common()) for side in (self.created, self.ended, self.resident, self.apart)
        )
        return Balance(namespace, created, ended, resident, apart, told=self.told, moved=self.moved)


def balances(rows: Sequence[Mapping[str, Any]]) -> list[Balance]:
    """The balance of each namespace, from the rows of `judgement.BALANCE`."""
    found: dict[str, _Sides] = {}
    for row in rows:
        found.setdefault(row["namespace"], _Sides()).take(row)
    return [sides.balance(namespace) for namespace, sides in sorted(found.items())]
