"""The record of a drill: a JSON document in a file that is replaced about once a second, for who looks from outside.

The console shows it; the format is told in docs/drills.md. Nothing is read back from it.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twinbus.drill.course import Course
from twinbus.drill.ending import Ending
from twinbus.drill.stage import Plan

WRITE_S = 1.0


@dataclass(slots=True)
class Record:
    """Written while the drill runs, and once more at its end; `async with` does both."""

    path: Path
    plan: Plan
    course: Course
    dry_run: bool = False
    state: str = "running"
    ended_at: datetime | None = None
    verdict: str | None = None
    why: str | None = None
    lost: int = 0  # Known with the verdict: until then, what has not come may still come.
    duplicated: int | None = None  # With the verdict, too: an idempotent call may come twice.
    _writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Record:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writing = asyncio.create_task(self._write_again_and_again())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        assert self._writing is not None
        self._writing.cancel()
        with suppress(asyncio.CancelledError):
            await self._writing
        if self.state == "running":
            cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
            self.state = "aborted" if cancelled else "failed"
            self.why = "it was interrupted" if cancelled else str(error)
        self.ended_at = datetime.now(UTC)
        self.write()

    def ended(self, ending: Ending) -> None:
        """The verdict is there."""
        self.state = "held" if ending.holds else "failed"
        self.verdict = ending.verdict.line()
        self.lost = len(ending.verdict.lost)
        self.duplicated = len(ending.verdict.duplicated)
        self.why = "; ".join(ending.broken) or None

    def aborted(self, why: str) -> None:
        """It was ended before its time."""
        self.state, self.why = "aborted", why

    def document(self) -> dict[str, Any]:
        """As it is written."""
        course = self.course
        return {
            "id": self.path.parent.name,
            "scenario": self.plan.scenario,
            "state": self.state,
            "dry_run": self.dry_run,
            "seed": self.plan.seed,
            "began_at": course.began_at.isoformat(),
            "ended_at": None if self.ended_at is None else self.ended_at.isoformat(),
            "moments": [{"at_s": round(at_s, 2), "what": what} for at_s, what in course.moments],
            "counts": {
                "attempted": len(course.attempted),
                "acknowledged": len(course.acknowledged),
                "received": len(course.received),
                "diverted": len(course.diverted),
                "recovered": len(course.diverted & course.received.keys()),
                "lost": self.lost,
                "duplicated": self._duplicated(),
            },
            "times": course.times(),
            "points": [{**point._asdict(), "at_s": round(point.at_s, 2)} for point in course.points],
            "verdict": self.verdict,
            "why": self.why,
        }

    def _duplicated(self) -> int:
        if self.duplicated is not None:
            return self.duplicated
        return sum(times > 1 for times in self.course.received.values())

    def write(self) -> None:
        """Replace the file; a reader sees the old one or the new one, whole."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.document()))
        os.replace(fresh, self.path)

    async def _write_again_and_again(self) -> None:
        while True:
            self.write()
            await asyncio.sleep(WRITE_S)
