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

    def attempted(self, message_id: str, entity: str, at: float, tag: str | None = None) -> None:
        """A message is about to be sent; `tag` is what its copies share, where that is not the MessageId."""
        told: dict[str, object] = {"attempted": message_id, "entity": entity, "at": round(at, 4)}
        self._write(told if tag is None else {**told, "tag": tag})

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
class Known:
    """What somebody knows of messages beside the log."""

    diverted: frozenset[str] = frozenset()  # An outbox may divert what it acknowledged long before.
    kept: frozenset[str] = frozenset()  # Seen where they are safe, though nobody can receive them yet.
    # Only a namespace held these that never came back: they must be lost, and nothing else.
    condemned: frozenset[str] = frozenset()


NOTHING = Known()


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
    condemned: frozenset[str] = frozenset()  # See Known.
    divert_s: float | None = None
    heal_s: float | None = None
    drain_s: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the claim holds: nothing that was acknowledged is missing but what had to be, nothing came twice."""
        return set(self.lost) == self.condemned and not self.duplicated

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


def judge(log: Path, received: Counter[str], known: Known = NOTHING) -> Verdict:
    """Compare what was sent with what came; times are added by whoever measured them."""
    attempted: set[str] = set()
    acknowledged: set[str] = set()
    diverted: set[str] = set(known.diverted)
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
        lost=tuple(sorted(acknowledged - set(received) - known.kept)),
        duplicated=tuple(sorted(message for message, times in received.items() if times > 1)),
        diverted=len(diverted),
        recovered=len(diverted & set(received)),
        condemned=known.condemned,
    )
