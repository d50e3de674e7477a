"""What a drill's sender and receiver saw, written down as it happens, and the verdict that follows from it.

Loss is judged from outside: a broker that lost a message whole would have lost every trace of it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO


class SendLog:
    """Attempts and their outcomes, a line each, flushed before a send goes on its way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] = path.open("a")

    def __enter__(self) -> SendLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def attempted(self, message_id: str, entity: str, at: float) -> None:
        """A message is about to be sent."""
        self._write({"attempted": message_id, "entity": entity, "at": round(at, 4)})

    def acknowledged(self, message_id: str, at: float, diverted: bool) -> None:
        """The sender was told that the message is kept."""
        self._write({"acknowledged": message_id, "at": round(at, 4), "diverted": diverted})

    def failed(self, message_id: str, at: float, why: str) -> None:
        """The sender was told that it failed; it may have arrived nevertheless."""
        self._write({"failed": message_id, "at": round(at, 4), "why": why})

    def _write(self, entry: dict[str, object]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the messages."""

    attempted: int
    acknowledged: int
    received: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    diverted: int
    recovered: int  # Diverted, and received.
    divert_s: float | None = None
    heal_s: float | None = None
    drain_s: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the claim holds: nothing that was acknowledged is missing, nothing came twice."""
        return not self.lost and not self.duplicated

    def line(self) -> str:
        """One line, the same for people and for scripts."""

        def seconds(value: float | None) -> str:
            return "-" if value is None else f"{value:.1f}"

        return (
            f"verdict: attempted {self.attempted}, acknowledged {self.acknowledged}, received {self.received},"
            f" lost {len(self.lost)}, duplicated {len(self.duplicated)}, diverted {self.diverted},"
            f" recovered {self.recovered}; divert {seconds(self.divert_s)} s, heal {seconds(self.heal_s)} s,"
            f" drain {seconds(self.drain_s)} s"
        )


def judge(log: Path, received: Counter[str]) -> Verdict:
    """Compare what was sent with what came; times are added by whoever measured them."""
    attempted: set[str] = set()
    acknowledged: set[str] = set()
    diverted: set[str] = set()
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "attempted" in entry:
            attempted.add(entry["attempted"])
        elif "acknowledged" in entry:
            acknowledged.add(entry["acknowledged"])
            if entry["diverted"]:
                diverted.add(entry["acknowledged"])
    return Verdict(
        attempted=len(attempted),
        acknowledged=len(acknowledged),
        received=len(received),
        lost=tuple(sorted(acknowledged - set(received))),
        duplicated=tuple(sorted(message for message, times in received.items() if times > 1)),
        diverted=len(diverted),
        recovered=len(diverted & set(received)),
    )
