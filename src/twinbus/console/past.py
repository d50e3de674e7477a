"""Whether a namespace went back in time, as the other half of its pair notices it.

A directory that is put back whole from last week belongs together, so that a broker by itself sees nothing. Whoever
watched it knows how many changes its catalog had seen. What was last seen is kept in a file, over restarts.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

log = logging.getLogger("twinbus.console")

NAME = "partners.json"
RESTORED_STEP = 1_000_000  # `twinbus restore` raises the count by so much.


class Seen(NamedTuple):
    """Who a namespace was, and how many changes its catalog had seen."""

    id: str
    generation: int


def seen_in(status: dict[str, Any]) -> Seen | None:
    """What a namespace says of itself; those of older versions, and Azure's, say nothing."""
    found, generation = status.get("id"), status.get("generation")
    return Seen(found, generation) if isinstance(found, str) and isinstance(generation, int) else None


def judge(before: Seen | None, now: Seen) -> str | None:
    """What is wrong with a namespace that was seen before, in a sentence; None if it just went on."""
    if before is None:
        return None
    if now.id != before.id:
        return "is another namespace than the one that was there before: its id has changed."
    if now.generation < before.generation:
        return (
            f"has gone back in time: its catalog has seen {now.generation:,} changes, and had seen"
            f" {before.generation:,} before. What it accepted and removed since then is as it was."
        )
    if now.generation - before.generation >= RESTORED_STEP:
        return "was restored from a backup. What it accepted and removed since then is as it was."
    return None


class Past:
    """What was last seen of the namespaces of a pair, by their parts in it."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / NAME
        self._seen = self._read()
        self.noticed: dict[str, str] = {}  # By the part in the pair, as long as this process lives.

    def _read(self) -> dict[str, Seen]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return {role: Seen(str(each["id"]), int(each["generation"])) for role, each in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            log.warning("what was last seen of the pair cannot be read from %s: %s", self._path, problem)
            return {}

    def look(self, role: str, status: dict[str, Any]) -> None:
        """A namespace has answered."""
        now = seen_in(status)
        if now is None or now == self._seen.get(role):
            return
        problem = judge(self._seen.get(role), now)
        if problem is not None:
            log.error("the %s of the pair %s See docs/operating.md, 'What a restore means'.", role, problem)
            self.noticed[role] = f"The {role} {problem}"
        self._seen[role] = now
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps({role: seen._asdict() for role, seen in self._seen.items()}), encoding="utf-8")
            os.replace(fresh, self._path)
        except OSError as problem:
            log.warning("what was seen of the pair cannot be kept in %s: %s", self._path, problem)
