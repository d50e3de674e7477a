"""What becomes of each message of a generated journal: one method for each fate and each fault, all messages at once.

How rows become files is `generated_journal`'s business.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from support.generated_journal import (
    AUDIT,
    BACKLOG_QUEUES,
    BILLING,
    CARTS,
    DOOMED,
    EVENTS,
    FAR,
    INBOX,
    LATER,
    METRICS,
    ORDERS,
    SESSION_RUN,
    SLO_S,
    START_MS,
    Numbers,
    Place,
    _Journal,
    _text,
    iso,
    write_lines,
)
from twinbus.pipeline.proof.evidence import RESIDENT_COLUMNS, RESIDENTS_VERSION, RESIDENTS_VERSION_KEY

_TYPES = {"string": pa.string(), "int64": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
FORWARD = {"connection": "", "client": "forward"}
BROKER = {"connection": "", "client": "broker"}
REDRIVING = ({"connection": "http", "client": "api"}, {"connection": "http", "client": "job"})  # Prompt, console.
# These come by themselves; the others go to the backlog if they are sent during the outage.
DIRECT = {"lost_whole", "lost_message", "stuck", "unexplained", "unborn", "late", "out_of_order", "gap"}


class Run:
    """One generated hour."""

    def __init__(
        self,
        seed: int,
        messages: int,
        faults: dict[str, int],
        fates: dict[str, float],
        primary: str,
        secondary: str,
        prefix: str,
        span_ms: int,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.primary, self.secondary = _Journal(primary), _Journal(secondary)
        self.ids = _text(np.arange(messages, dtype=np.int64), prefix)
        self.sent = START_MS + np.arange(messages, dtype=np.int64) * span_ms // max(messages, 1)
        self.end_ms = START_MS + span_ms + int(SLO_S * 4000)
        self.backlog = [
            Place(f"{primary}/x-servicebus-transfer/{index}", 4 * (index + 1)) for index in range(BACKLOG_QUEUES + 1)
        ]
        self._outage = (START_MS + span_ms * 4 // 10, START_MS + span_ms * 6 // 10)
        self.residents: list[dict[str, Any]] = []
        self.suppressed: list[tuple[Numbers, Numbers]] = []
        self._share_out(messages, faults, fates)
        self._divert()

    def _share_out(self, messages: int, faults: dict[str, int], fates: dict[str, float]) -> None:
        """Which message has which fate: victims first, far enough from each other in time."""
        wanted = {kind: count * (2 if kind == "out_of_order" else 1) for kind, count in faults.items() if count}
        if sum(wanted.values()) * 4 > messages:
            raise ValueError("There are too few messages for so many faults.")
        chosen = self.rng.permutation(messages)
        self.victims: dict[str, Numbers] = {}
        at = 0
        for kind, count in sorted(wanted.items()):
            self.victims[kind] = np.sort(chosen[at : at + count])
            at += count
        rest = chosen[at:]
        shares = self.rng.random(len(rest))
        self.fates: dict[str, Numbers] = {}
        below = 0.0
        for kind, share in fates.items():
            self.fates[kind] = np.sort(rest[(shares >= below) & (shares < below + share)])
            below += share
        self.fates["ordinary"] = np.sort(rest[shares >= below])

    def _divert(self) -> None:
        """What is sent during the outage goes to a backlog queue, and home afterwards, in order."""
        begin, end = self._outage
        diverted = (self.sent >= begin) & (self.sent < end)
        for kind in DIRECT & self.victims.keys():
            diverted[self.victims[kind]] = False
        self._always_diverted = self.victims.get("lost_in_move", np.empty(0, np.int64))
        diverted[self._always_diverted] = True
        self.diverted = diverted
        who = np.flatnonzero(diverted)
        moved = np.maximum(end + 1_000, self.sent[who] + 500) + np.arange(len(who)) // 4
        self.arrived = self.sent.copy()
        self.arrived[who] = moved
        for index, queue in enumerate(self.backlog[:BACKLOG_QUEUES]):
            mine = who[index::BACKLOG_QUEUES]
            numbers = self.secondary.numbers(queue, len(mine))
            self.secondary.add("send", queue, mine, self.sent[mine], numbers)
            self.secondary.add("receive", queue, mine, self.arrived[mine] - 20, numbers, client="syphon")
            self.secondary.add("complete", queue, mine, self.arrived[mine] + 15, numbers, client="syphon")

    def live(self) -> None:
        """Everything happens."""
        for kind, who in [*self.fates.items(), *self.victims.items()]:
            getattr(self, f"_{kind}")(who)
        minutes = np.arange(self._outage[0], self._outage[1], 60_000, dtype=np.int64)
        nobody, none = np.full(len(minutes), -1, np.int64), np.zeros(len(minutes), np.int64)
        self.primary.add("send", ORDERS, nobody, minutes, none, outcome="ping", bytes=0)
        for queue in self.backlog[:BACKLOG_QUEUES]:
            self.secondary.add("receive", queue, nobody, minutes, none, outcome="empty", count=2, bytes=0)

    # The steps that most lives are made of.

    def _send(self, place: Place, who: Numbers, operation: str = "send", **more: Any) -> Numbers:
        numbers = self.primary.numbers(place, len(who))
        self.primary.add(operation, place, who, self.arrived[who], numbers, **more)
        return numbers

    def _work(self, place: Place, who: Numbers, numbers: Numbers, at_ms: Numbers | None = None) -> None:
        """Received and completed."""
        at = self.arrived[who] + 20 + self.rng.integers(0, 2_000, len(who)) if at_ms is None else at_ms
        self.primary.add("receive", place, who, at, numbers)
        self.primary.add("complete", place, who, at + 30, numbers)

    def _stay(self, place: Place, who: Numbers, numbers: Numbers, state: str = "active", session: Any = "") -> None:
        self._reside(self.primary.namespace, place, who, numbers, state)

    def _reside(self, namespace: str, place: Place, who: Numbers, numbers: Numbers, state: str, path: str = "") -> None:
        self.residents += [
            {
                "namespace": namespace, "entity": place.entity, "sub_queue": place.sub_queue, "sequence_number": number,
                "message_id": self.ids[one].as_py(), "session_id": "", "state": state,
                "enqueued_at": int(self.arrived[one]) * 1000, "destination": path, "bytes": 600,
            }
            for one, number in zip(who.tolist(), numbers.tolist(), strict=True)
        ]  # fmt: skip

    # Ordinary fates.

    def _ordinary(self, who: Numbers) -> None:
        self._work(ORDERS, who, self._send(ORDERS, who))

    def _in_session(self, who: Numbers) -> None:
        phase = (self.sent[who] >= self._outage[0]).astype(np.int64) + (self.sent[who] >= self._outage[1])
        numbers = self._send(CARTS, who, session=_text(who // SESSION_RUN * 3 + phase, "s-"))
        self._work(CARTS, who, numbers, self.arrived[who] + 25)

    def _published(self, who: Numbers) -> None:
        topic = self._send(EVENTS, who)
        for place in (AUDIT, BILLING):
            numbers = self.primary.numbers(place, len(who))
            self.primary.add("copy", place, who, self.arrived[who], numbers, outcome=_text(topic, "40/"))
            self._work(place, who, numbers)

    def _unwanted(self, who: Numbers) -> None:
        self._send(EVENTS, who)

    def _received_deleted(self, who: Numbers) -> None:
        numbers = self._send(METRICS, who)
        self.primary.add("receive_delete", METRICS, who, self.arrived[who] + 40, numbers)

    def _redelivered(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("receive", ORDERS, who, self.arrived[who] + 5, numbers)
        self.primary.add("abandon", ORDERS, who, self.arrived[who] + 9, numbers)
        self._work(ORDERS, who, numbers)

    def _dead(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("receive", ORDERS, who, self.arrived[who] + 5, numbers)
        self.primary.add("deadletter", ORDERS, who, self.arrived[who] + 9, numbers)
        self._stay(ORDERS.dead, who, numbers)

    def _expired(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("ttl_expire", ORDERS, who, self.arrived[who] + 9_000, numbers, outcome="removed", **BROKER)

    def _expired_dead(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("ttl_expire", ORDERS, who, self.arrived[who] + 9_000, numbers, outcome="deadletter", **BROKER)
        self._stay(ORDERS.dead, who, numbers)

    def _purged(self, who: Numbers) -> None:
        self.primary.add("delete", ORDERS, who, self.arrived[who] + 9_000, self._send(ORDERS, who))

    def _cancelled(self, who: Numbers) -> None:
        self.primary.add("cancel", LATER, who, self.arrived[who] + 9_000, self._send(LATER, who, "schedule"))

    def _scheduled(self, who: Numbers) -> None:
        old, new = self._send(LATER, who, "schedule"), self.primary.numbers(LATER, len(who))
        at = self.arrived[who] + 30_000
        self.primary.add("activate", LATER, who, at, new, outcome=_text(old, ""), **BROKER)
        self._work(LATER, who, new, at + 40)

    def _waiting_scheduled(self, who: Numbers) -> None:
        self._stay(LATER, who, self._send(LATER, who, "schedule"), "scheduled")

    def _deferred(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("receive", ORDERS, who, self.arrived[who] + 5, numbers)
        self.primary.add("defer", ORDERS, who, self.arrived[who] + 9, numbers)
        self._stay(ORDERS, who, numbers, "deferred")

    def _forwarded(self, who: Numbers) -> None:
        """To a queue of the same store: it arrives and leaves in one transaction."""
        numbers, new = self._send(INBOX, who), self.primary.numbers(ORDERS, len(who))
        self.primary.add("send", ORDERS, who, self.arrived[who] + 3, new, **FORWARD)
        self.primary.add("forward", INBOX, who, self.arrived[who] + 3, numbers, outcome=str(ORDERS.number), **FORWARD)
        self._work(ORDERS, who, new)

    def _forwarded_far(self, who: Numbers) -> None:
        """To a queue of another store: a send there, then a complete here."""
        numbers, new = self._send(INBOX, who), self.primary.numbers(FAR, len(who))
        self.primary.add("receive", INBOX, who, self.arrived[who] + 1, numbers, **FORWARD)
        self.primary.add("send", FAR, who, self.arrived[who] + 3, new, **FORWARD)
        self.primary.add("complete", INBOX, who, self.arrived[who] + 5, numbers, **FORWARD)
        self._work(FAR, who, new)

    def _redriven(self, who: Numbers) -> None:
        numbers, new = self._send(ORDERS, who), self.primary.numbers(ORDERS, len(who))
        at = self.arrived[who]
        self.primary.add("receive", ORDERS, who, at + 5, numbers)
        self.primary.add("deadletter", ORDERS, who, at + 9, numbers)
        by = REDRIVING[len(who) % 2]
        self.primary.add("receive", ORDERS.dead, who, at + 8_000, numbers, **by)
        self.primary.add("send", ORDERS, who, at + 8_005, new, **by)
        self.primary.add("forward", ORDERS.dead, who, at + 8_005, numbers, outcome=str(ORDERS.number), **by)
        self._work(ORDERS, who, new, at + 8_100)

    def _dropped(self, who: Numbers) -> None:
        """Deleted with its entity."""
        numbers = self._send(DOOMED, who)
        self.primary.add("drop", DOOMED, who, np.full(len(who), self.end_ms - 9_000), numbers)

    def _twice_dropped(self, who: Numbers) -> None:
        """Sent again, and known as a duplicate."""
        numbers = self._send(ORDERS, who)
        self.primary.add("send", ORDERS, who, self.arrived[who] + 9, np.zeros(len(who), np.int64), outcome="duplicate")
        self._work(ORDERS, who, numbers)

    def _active(self, who: Numbers) -> None:
        self._stay(ORDERS, who, self._send(ORDERS, who))

    def _locked(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("receive", ORDERS, who, self.arrived[who] + 5, numbers)
        self._stay(ORDERS, who, numbers)

    def _suppressed(self, who: Numbers) -> None:
        """Two copies were completed, the second one by the ledger."""
        first, second = self._send(ORDERS, who), self._send(ORDERS, who)
        self._work(ORDERS, who, first)
        self._work(ORDERS, who, second, self.arrived[who] + 5_000)
        self.suppressed.append((who, first))

    # Faults.

    def _lost_whole(self, who: Numbers) -> None:
        """Nothing is left but the sender's word."""

    def _lost_message(self, who: Numbers) -> None:
        self._send(ORDERS, who)

    def _lost_in_move(self, who: Numbers) -> None:
        """All that there is to see is in the backlog."""

    def _stuck(self, who: Numbers) -> None:
        surplus = self.backlog[BACKLOG_QUEUES]
        numbers = self.secondary.numbers(surplus, len(who))
        self.secondary.add("send", surplus, who, self.sent[who], numbers)
        self._reside(self.secondary.namespace, surplus, who, numbers, "active", "orders")

    def _duplicated(self, who: Numbers) -> None:
        for delay in (100, 4_000):
            self._work(ORDERS, who, self._send(ORDERS, who), self.arrived[who] + delay)

    def _late(self, who: Numbers) -> None:
        self._work(ORDERS, who, self._send(ORDERS, who), self.arrived[who] + int(SLO_S * 2000))

    def _out_of_order(self, who: Numbers) -> None:
        """Of each two the earlier one is delivered later; the overtaker is what is to be found."""
        namespace = len(who) // 2
        first, second = who[:namespace], who[namespace:]
        session = _text(first, "mixed-")
        numbers, later = self._send(CARTS, first, session=session), self._send(CARTS, second, session=session)
        last = self.arrived[second]
        self._work(CARTS, second, later, last + 50)
        self._work(CARTS, first, numbers, last + 500)
        self.victims["out_of_order"] = second

    def _unexplained(self, who: Numbers) -> None:
        self._stay(ORDERS, who, 1_000_000_000 + np.arange(len(who)))

    def _ended_twice(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self._work(ORDERS, who, numbers)
        self.primary.add("delete", ORDERS, who, self.arrived[who] + 5_000, numbers)

    def _unborn(self, who: Numbers) -> None:
        self._work(ORDERS, who, 2_000_000_000 + np.arange(len(who)))

    def _created_twice(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self.primary.add("send", ORDERS, who, self.arrived[who] + 3, numbers)
        self._work(ORDERS, who, numbers)

    def _risen(self, who: Numbers) -> None:
        numbers = self._send(ORDERS, who)
        self._work(ORDERS, who, numbers)
        self._stay(ORDERS, who, numbers)

    def _gap(self, who: Numbers) -> None:
        self._ordinary(who)

    # The other files.

    def write_residents(self, path: Path) -> None:
        """What a browse found after all of it, and that it looked everywhere."""
        began, ended = self.end_ms * 1000, self.end_ms * 1000 + 900_000
        places = [
            (self.primary.namespace, each) for each in (ORDERS, CARTS, METRICS, INBOX, FAR, LATER, AUDIT, BILLING)
        ]
        places += [(self.secondary.namespace, queue) for queue in self.backlog]
        looked = [
            {"namespace": namespace, "entity": place.entity, "sub_queue": sub_queue, "sequence_number": 0}
            for namespace, place in places
            for sub_queue in ("", "$DeadLetterQueue")
        ]
        blank = {column.name: "" if column.type == "string" else 0 for column in RESIDENT_COLUMNS}
        rows = [{**blank, **row, "began": began, "ended": ended} for row in looked + self.residents]
        columns = {column.name: [row[column.name] for row in rows] for column in RESIDENT_COLUMNS}
        table = pa.table(
            {column.name: pa.array(columns[column.name], _TYPES[column.type]) for column in RESIDENT_COLUMNS}
        )
        pq.write_table(table.replace_schema_metadata({RESIDENTS_VERSION_KEY: str(RESIDENTS_VERSION)}), path)

    def write_send_log(self, path: Path) -> None:
        """What the senders wrote: an attempt and an acknowledgement for each message but those nobody sent."""
        ghosts = set(self.victims.get("unexplained", np.empty(0, np.int64)).tolist())
        names, sent, diverted = self.ids.to_pylist(), self.sent.tolist(), self.diverted.tolist()
        with path.open("w") as file:
            for number, (name, at_ms, aside) in enumerate(zip(names, sent, diverted, strict=True)):
                if number not in ghosts:
                    spelt = json.dumps(name)
                    told = f'"acknowledged": {spelt}, "at": {(at_ms + 1) / 1000}, "diverted": {str(aside).lower()}'
                    file.write(f'{{"attempted": {spelt}, "entity": "", "at": {(at_ms - 1) / 1000}}}\n{{{told}}}\n')

    def write_ledger(self, path: Path) -> None:
        """What `twinbus ledger export` says."""
        rows = [
            {
                "scope": "orders", "tag": self.ids[one].as_py(), "state": "done", "namespace": self.primary.namespace,
                "sequence_number": number, "at": iso(int(self.arrived[one])), "suppressed": 1,
            }
            for who, numbers in self.suppressed
            for one, number in zip(who.tolist(), numbers.tolist(), strict=True)
        ]  # fmt: skip
        write_lines(path, rows)
