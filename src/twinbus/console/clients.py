"""What paired clients and syphons say of themselves, put together: who diverts, when the next ping is due, outboxes.

Whoever may send can write anything into a record, so it is tidied before anybody looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from twinbus.console.asking import Document
from twinbus.console.shapes import seconds_of


def tidied(record: Document) -> Document:
    """A client's record with a state of the expected shape: whoever may send can write anything into it."""
    state = record["state"] if isinstance(record.get("state"), dict) else {}
    ill, syphon = state.get("ill"), state.get("syphon")
    kept: Document = {
        "ill": {str(name): str(how) for name, how in ill.items()} if isinstance(ill, dict) else {},
        "syphon": None,
        "ping": _numbers(state.get("ping"), "next_in_s", "every_s"),
        "outbox": _numbers(state.get("outbox"), "waiting", "set_aside", "oldest_s"),
        **{name: _whole(state.get(name)) for name in ("ill_count", "diverted", "pings")},
    }
    if isinstance(syphon, dict):
        kept["syphon"] = _syphon(syphon)
    return {**record, "state": kept}


def _syphon(told: Document) -> Document:
    problem, waits_for, blocked = told.get("problem"), told.get("waits_for"), told.get("blocked")
    queues = {name: told.get(name) for name in ("queues", "ordered_queues")}
    return {
        "moved": _whole(told.get("moved")),
        "problem": str(problem)[:300] if problem else None,
        "waits_for": waits_for if waits_for in ("primary", "secondary") else None,
        "next_try_in_s": (_numbers(told, "next_try_in_s") or {}).get("next_try_in_s"),
        "blocked": {str(path): str(why)[:300] for path, why in blocked.items()} if isinstance(blocked, dict) else {},
        # One that does not say which queues it drains has all of its pair.
        **{name: None if said is None else str(said)[:300] for name, said in queues.items()},
    }


def _numbers(found: object, *names: str) -> dict[str, float | None] | None:
    """The numbers of these names in an object; None where there is no object."""
    if not isinstance(found, dict):
        return None
    given = {name: found.get(name) for name in names}
    return {
        name: value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None
        for name, value in given.items()
    }


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def syphons_in(clients: list[Document]) -> list[Document]:
    """Those that bring messages home."""
    return [record for record in clients if record["kind"] == "syphon" or record["state"].get("syphon") is not None]


def drainers(clients: Sequence[Document], queue: str) -> list[Document]:
    """The syphons that are alive and say that they bring messages home from a backlog queue."""
    where, _, number = queue.rpartition("/")
    key = "ordered_queues" if where.endswith("-ordered") else "queues"
    return [
        record
        for record in syphons_in(list(clients))
        if (said := (record["state"]["syphon"] or {}).get(key)) is None or _in_spans(number, said)
    ]


def _in_spans(number: str, spans: str) -> bool:
    """Whether a number is in a text such as `0-9,12`."""
    for span in spans.split(","):
        first, _, last = span.partition("-")
        ends = (first, last or first, number)
        if all(end.isdecimal() for end in ends) and int(first) <= int(number) <= int(last or first):
            return True
    return False


def diverting(clients: list[Document]) -> list[Document]:
    """Paired clients some of whose sends go to the backlog."""
    return [record for record in clients if "failed over" in (record["state"].get("ill") or {}).values()]


def told_ago_s(clients: list[Document], now_s: float) -> float | None:
    """How old the oldest word of these clients is: they speak now and then, and when something changes."""
    ages = [now_s - at_s for record in clients if (at_s := seconds_of(record["seen_at"])) is not None]
    return max(ages, default=None)


class Outboxes(NamedTuple):
    """What clients keep on their own disks, as they last said."""

    waiting: int
    oldest_s: float | None


def outboxes_of(clients: Sequence[Document]) -> Outboxes | None:
    """All outboxes together; None if no client has one."""
    told = [record["state"]["outbox"] for record in clients if record["state"]["outbox"] is not None]
    if not told:
        return None
    ages = [each["oldest_s"] for each in told if each["oldest_s"] is not None]
    return Outboxes(int(sum(each["waiting"] or 0 for each in told)), max(ages, default=None))


def next_ping_s(clients: Sequence[Document], now_s: float) -> float | None:
    """When the next ping of a client is due; counted on from what it last said."""
    due: list[float] = []
    for record in clients:
        ping, seen_s = record["state"]["ping"], seconds_of(record["seen_at"])
        if ping is None or ping["next_in_s"] is None or seen_s is None:
            continue
        at_s, every_s = seen_s + ping["next_in_s"], ping["every_s"] or 0.0
        if at_s < now_s and every_s > 0:
            at_s += math.ceil((now_s - at_s) / every_s) * every_s
        due.append(max(at_s, now_s))
    return min(due, default=None)


def syphoned(clients: list[Document]) -> int:
    """Messages that the syphons which are alive have brought home."""
    told: list[dict[str, Any]] = [record["state"].get("syphon") or {} for record in syphons_in(clients)]
    return sum(int(record.get("moved") or 0) for record in told)
