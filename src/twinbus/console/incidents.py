"""Incidents: from when a pair leaves `normal` until it is `normal` again, with what was seen meanwhile.

Decides purely on what the watch in `console.pair` saw; keeping them over a restart is `book`'s part, showing them the
pages'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from twinbus.console.asking import Document
from twinbus.console.shapes import seconds_of

KEPT_MAX = 200
STAGES_MAX = 200
POINTS_MAX = 240  # Of one incident; of a longer one, every second is left out.
CLIENTS_MAX = 1_000
GRACE_S = 20.0  # A pair that is not normal when watching begins may just be starting.
SAVED_S = 30.0  # So often one that goes on is saved, whatever happens.
LATE_S = 60.0  # Clients speak now and then: what they say so long after its end still counts.
NORMAL = "normal"


class Point(NamedTuple):
    """The pair at one moment, for a timeline."""

    at_s: float
    state: str
    arriving: float
    backlog: int


class Stage(NamedTuple):
    """A state that an incident went through, from when on, and why."""

    at_s: float
    state: str
    why: str


class Moment(NamedTuple):
    """What one look at the pair tells."""

    at_s: float
    state: str
    why: str
    arriving: float
    backlog: int
    oldest_s: float | None
    clients: Sequence[Document]

    @property
    def point(self) -> Point:
        """For the timeline."""
        return Point(self.at_s, self.state, self.arriving, self.backlog)


@dataclass(slots=True)
class Incident:
    """One failover, or what might have become one."""

    id: str
    began_at_s: float
    why: str
    stages: list[Stage] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    ended_at_s: float | None = None
    greatest_backlog: int = 0
    oldest_s: float = 0.0
    # Of each client, what it had diverted and brought home before, and what it says now.
    told: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    @property
    def diverted(self) -> int:
        """Messages that clients sent to the backlog, as they said."""
        return sum(now - before for before, now, _, _ in self.told.values())

    @property
    def brought_home(self) -> int:
        """Messages that syphons brought home, as they said."""
        return sum(now - before for _, _, before, now in self.told.values())

    @property
    def worst(self) -> str:
        """The state that says most about it."""
        seen = {stage.state for stage in self.stages}
        return next((state for state in _WORST if state in seen), self.stages[0].state if self.stages else "unknown")

    def lasted_s(self, now_s: float) -> float:
        """How long, until now if it goes on."""
        return (now_s if self.ended_at_s is None else self.ended_at_s) - self.began_at_s

    def document(self) -> Document:
        """As it is exported."""
        return {
            "id": self.id,
            "began_at": _instant(self.began_at_s),
            "ended_at": None if self.ended_at_s is None else _instant(self.ended_at_s),
            "why": self.why,
            "states": [{"at": _instant(stage.at_s), "state": stage.state, "why": stage.why} for stage in self.stages],
            "counts": {
                "diverted": self.diverted,
                "brought_home": self.brought_home,
                "greatest_backlog": self.greatest_backlog,
                "oldest_age_s": round(self.oldest_s, 1),
            },
            "points": [
                {"at": _instant(at_s), "state": state, "arriving": arriving, "backlog": backlog}
                for at_s, state, arriving, backlog in self.points
            ],
            "clients": {client: list(told) for client, told in self.told.items()},
        }


_WORST = ("both down", "stranded", "diverted", "failing", "unprotected", "waiting", "draining", "suspect")


def read(document: Mapping[str, Any]) -> Incident:
    """An incident as it was exported; what is no such thing raises."""
    counts = document["counts"]
    return Incident(
        id=str(document["id"]),
        began_at_s=_seconds(document["began_at"]),
        why=str(document["why"]),
        stages=[Stage(_seconds(each["at"]), str(each["state"]), str(each["why"])) for each in document["states"]],
        points=[
            Point(_seconds(each["at"]), str(each["state"]), float(each["arriving"]), int(each["backlog"]))
            for each in document["points"]
        ],
        ended_at_s=None if document["ended_at"] is None else _seconds(document["ended_at"]),
        greatest_backlog=int(counts["greatest_backlog"]),
        oldest_s=float(counts["oldest_age_s"]),
        told={str(client): _four(told) for client, told in document["clients"].items()},
    )


def _four(told: Sequence[object]) -> tuple[int, int, int, int]:
    first, second, third, fourth = (int(str(each)) for each in told)
    return first, second, third, fourth


def _seconds(instant: object) -> float:
    found = seconds_of(instant)
    if found is None:
        raise ValueError("not an instant")
    return found


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Incidents:
    """Those of one pair, the oldest first; the last may go on."""

    def __init__(self) -> None:
        self.kept: deque[Incident] = deque(maxlen=KEPT_MAX)
        self._calm: dict[str, tuple[int, int]] | None = None  # What clients said while all was well.
        self._before: Point | None = None
        self._began_s: float | None = None  # When watching began.
        self._saved_s = 0.0

    @property
    def open(self) -> Incident | None:
        """The one that goes on."""
        return self.kept[-1] if self.kept and self.kept[-1].ended_at_s is None else None

    def find(self, incident: str) -> Incident | None:
        """The one of that id."""
        return next((each for each in self.kept if each.id == incident), None)

    def take(self, moment: Moment) -> Incident | None:
        """Take a look into account; the incident that has changed so that it should be saved."""
        self._began_s = moment.at_s if self._began_s is None else self._began_s
        is_known = self.open is not None or self._calm is not None
        changed: Incident | None
        if moment.state != NORMAL:
            if not is_known and moment.at_s - self._began_s < GRACE_S:
                return None
            changed = self._go_on(moment)
        elif self.open is not None:
            changed = self._end(self.open, moment)
        else:
            changed = self._is_calm(moment)
        self._before = moment.point
        return changed

    def _go_on(self, moment: Moment) -> Incident | None:
        incident = self.open
        if incident is None:
            incident = Incident(f"{int(moment.at_s * 1000):x}", moment.at_s, moment.why)
            if self._before is not None:
                incident.points.append(self._before)
            self.kept.append(incident)
        is_new = not incident.stages or incident.stages[-1].state != moment.state
        if is_new and len(incident.stages) < STAGES_MAX:
            incident.stages.append(Stage(moment.at_s, moment.state, moment.why))
        self._count(incident, moment)
        if is_new or moment.at_s - self._saved_s >= SAVED_S:
            self._saved_s = moment.at_s
            return incident
        return None

    def _end(self, incident: Incident, moment: Moment) -> Incident:
        self._count(incident, moment)
        incident.ended_at_s = moment.at_s
        incident.stages.append(Stage(moment.at_s, NORMAL, moment.why))
        self._calm = said(moment.clients)
        return incident

    def _count(self, incident: Incident, moment: Moment) -> None:
        incident.points.append(moment.point)
        if len(incident.points) > POINTS_MAX:
            incident.points = [*incident.points[:-1:2], incident.points[-1]]
        incident.greatest_backlog = max(incident.greatest_backlog, moment.backlog)
        incident.oldest_s = max(incident.oldest_s, moment.oldest_s or 0.0)
        self._hear(incident, moment)

    def _hear(self, incident: Incident, moment: Moment) -> bool:
        """What clients say; whether it is news."""
        before = dict(incident.told)
        for client, (diverted, moved) in said(moment.clients).items():
            known = incident.told.get(client)
            if known is None and len(incident.told) >= CLIENTS_MAX:
                continue
            first_diverted, _, first_moved, _ = known or self._first(client, diverted, moved)
            incident.told[client] = (
                first_diverted,
                max(first_diverted, diverted),
                first_moved,
                max(first_moved, moved),
            )
        return incident.told != before

    def _first(self, client: str, diverted: int, moved: int) -> tuple[int, int, int, int]:
        """What a client had done before; one that nobody knew has done all of it since."""
        first = (self._calm or {}).get(client, (0, 0))
        return first[0], diverted, first[1], moved

    def _is_calm(self, moment: Moment) -> Incident | None:
        """All is well; late words about the last incident, and what came and went between two looks."""
        last, calm = self.kept[-1] if self.kept else None, said(moment.clients)
        changed: Incident | None
        if last is not None and last.ended_at_s is not None and moment.at_s - last.ended_at_s < LATE_S:
            changed = last if self._hear(last, moment) else None
        else:
            changed = self._missed(calm, moment)
        self._calm = calm
        return changed

    def _missed(self, calm: Mapping[str, tuple[int, int]], moment: Moment) -> Incident | None:
        diverted = {
            client: (self._calm[client][0], now, self._calm[client][1], moved)
            for client, (now, moved) in calm.items()
            if self._calm is not None and client in self._calm and now > self._calm[client][0]
        }
        if not diverted or self._before is None:
            return None
        why = "Clients diverted messages between two looks of this console; it did not see why."
        incident = Incident(f"{int(moment.at_s * 1000):x}", self._before.at_s, why, told=diverted)
        incident.stages = [Stage(self._before.at_s, "diverted", why), Stage(moment.at_s, NORMAL, moment.why)]
        incident.points = [self._before, moment.point]
        incident.ended_at_s = moment.at_s
        self.kept.append(incident)
        return incident


def said(clients: Sequence[Document]) -> dict[str, tuple[int, int]]:
    """How many messages each client says to have diverted and brought home, ever."""
    return {
        str(record["id"]): (record["state"]["diverted"], (record["state"]["syphon"] or {}).get("moved", 0))
        for record in clients
    }
