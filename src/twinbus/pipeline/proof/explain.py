"""One message's journey over all namespaces, told from the files alone and without Spark, so that it is there at once.

The operations are the journal's; what became of all messages together is `reconcile`'s business.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.client.messages import read
from twinbus.model.address import is_backlog
from twinbus.model.extras import needing
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.proof import sendlog
from twinbus.pipeline.proof.evidence import Evidence
from twinbus.pipeline.proof.versions import check_journal, check_residents, journal_files

with needing("pyarrow"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

if TYPE_CHECKING:
    from twinbus.pair.namespace.own_client import (
        OwnClientNamespace,  # With it comes the SDK, which takes a while, and most need no more than files.
    )

_COLUMNS = [
    "namespace", "batch", "place", "at", "operation", "entity", "kind", "sub_queue", "queue", "outcome", "session_id",
    "sequence_number", "delivery_count", "connection", "client",
]  # fmt: skip


class Event(NamedTuple):
    """Something that happened to the message, or was said of it."""

    at_us: int | None  # None where only an order is known.
    namespace: str
    place: str
    what: str
    detail: str = ""


class Standing(NamedTuple):
    """A copy that has not ended, as its journal says."""

    namespace: str
    entity: str
    sub_queue: str
    number: int
    state: str
    is_seen: bool | None = None  # Whether a browse saw it; None if nobody looked.


@dataclass(slots=True)
class Journey:
    """All that is known of one message."""

    message_id: str
    events: list[Event] = field(default_factory=list)
    standing: list[Standing] = field(default_factory=list)
    attempts: int = 0
    acknowledged: bool | None = None  # None: there is no send log, or it does not know the message.
    deliveries: int = 0
    completed: Counter[str] = field(default_factory=Counter)  # Copies, by entity.
    suppressed: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)  # How copies ended that nobody completed.
    moves: int = 0

    def summary(self) -> str:
        """What became of it, in one sentence."""
        if not self.events and not self.standing:
            return "Nothing is known of this message."
        told = self._worked()
        if self.suppressed.total():
            told.append(f"suppressed {_times(self.suppressed.total())}")
        if self.moves:
            told.append("brought home from the backlog")
        told += sorted(set(self.ended))
        for copy in self.standing:
            place = f"{copy.namespace} {copy.entity}{f' {copy.sub_queue}' if copy.sub_queue else ''}"
            seen = ", though nobody saw it there" if copy.is_seen is False else ""
            told.append(f"{copy.state} in {place} as number {copy.number}{seen}")
        if not told and self.acknowledged:
            return "Acknowledged, and not accounted for: it may be lost."
        sentence = "; ".join(told) or "no copy of it was made"
        return f"{sentence[0].upper()}{sentence[1:]}."

    def _worked(self) -> list[str]:
        """How often it was worked on: a copy in each of several subscriptions is no second time."""
        worked = {entity: count - self.suppressed[entity.lower()] for entity, count in self.completed.items()}
        twice = [f"worked on {_times(count)} in {entity}" for entity, count in worked.items() if count > 1]
        once = [entity for entity, count in worked.items() if count == 1]
        if len(once) == 1:
            return [*twice, "worked on once"]
        return [*twice, *([f"worked on once in each of {len(once)} entities"] if once else [])]


def explain(evidence: Evidence, message_id: str) -> Journey:
    """Everything that the files say of a message, in order of time."""
    journey = Journey(message_id)
    for log, path in enumerate(evidence.send_logs):
        _sent(journey, path, log)
    rows = _rows(journal_files(evidence.journals), message_id)
    seen = _seen(evidence.residents, message_id)
    _journaled(journey, rows, seen)
    for path in evidence.ledgers:
        _marked(journey, path)
    journey.events.sort(key=lambda event: event.at_us or 0)  # What has no time comes first, in its own order.
    return journey


def _rows(files: Sequence[Path], message_id: str) -> list[dict[str, Any]]:
    """The journal's rows about a message. One column is read of everything, the others only where it is found."""
    check_journal(files)
    found: list[dict[str, Any]] = []
    for path in files:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["message_id"])["message_id"]
            mask = pc.equal(ids, message_id)
            if pc.any(mask).as_py():
                found += file.read_row_group(group, columns=_COLUMNS).filter(mask).to_pylist()
    return sorted(found, key=lambda row: (row["at"], row["namespace"], row["batch"], row["place"]))


def _seen(residents: Path | None, message_id: str) -> dict[tuple[str, str, int], dict[str, Any]] | None:
    if residents is None:
        return None
    check_residents(residents)
    table = pq.read_table(residents, filters=pc.field("message_id") == message_id)
    return {(row["namespace"], row["entity"].lower(), row["sequence_number"]): row for row in table.to_pylist()}


# The journal

_ENDS = {
    "complete", "receive_delete", "forward", "delete", "cancel", "drop", "damaged",
}  # fmt: skip
_WORDS = {
    "send": "accepted", "schedule": "accepted, for later", "copy": "copied for a subscription",
    "activate": "became active", "receive": "handed out", "receive_delete": "handed out and removed",
    "complete": "completed", "abandon": "abandoned", "release": "released", "defer": "deferred",
    "deadletter": "dead-lettered", "transfer_deadletter": "could not be forwarded", "forward": "forwarded",
    "expire_lock": "its lock expired", "drop_lock": "its lock was dropped", "ttl_expire": "its time to live was over",
    "delete": "purged", "cancel": "cancelled", "drop": "deleted with its entity", "damaged": "damaged, and set aside",
}  # fmt: skip
_DISCARDED = {"delete": "purged", "cancel": "cancelled", "drop": "deleted with its entity", "damaged": "damaged"}


def _journaled(journey: Journey, rows: Iterable[dict[str, Any]], seen: Any) -> None:
    copies: dict[tuple[str, int, int], Standing] = {}
    published = False
    for row in rows:
        journey.events.append(_event(row))
        key = (row["namespace"], row["queue"] >> 2, row["sequence_number"])
        operation, made = row["operation"], row["sequence_number"] > 0
        if operation == "activate":
            old = (row["namespace"], row["queue"] >> 2, int(row["outcome"]))
            copies.pop(old, None)
            copies[key] = _standing(row, "active")
        elif operation in ("send", "copy", "schedule") and made:
            published |= row["kind"] == "topic" and operation == "send"
            if row["kind"] != "topic" or operation == "schedule":
                copies[key] = _standing(row, "scheduled" if operation == "schedule" else "active")
        elif operation in _ENDS or (operation == "ttl_expire" and row["outcome"] == "removed"):
            copies.pop(key, None)
            _count_end(journey, row)
        elif key in copies:
            copies[key] = _changed(copies[key], row)
        if operation in ("receive", "receive_delete") and made and not row["sub_queue"] and row["connection"]:
            journey.deliveries += 0 if is_backlog(row["entity"]) else 1
    if published and not copies and not journey.completed and not any(row["operation"] == "copy" for row in rows):
        journey.ended.append("published, and no subscription wanted it")
    for copy in copies.values():
        place = (copy.namespace, copy.entity.lower(), copy.number)
        journey.standing.append(copy._replace(is_seen=None if seen is None else place in seen))
    known = {(copy.namespace, copy.entity.lower(), copy.number) for copy in copies.values()}
    journey.standing += [
        Standing(row["namespace"], row["entity"], row["sub_queue"], row["sequence_number"], row["state"], True)
        for place, row in (seen or {}).items()
        if place not in known
    ]


def _standing(row: dict[str, Any], state: str) -> Standing:
    return Standing(row["namespace"], row["entity"], row["sub_queue"], row["sequence_number"], state)


def _changed(copy: Standing, row: dict[str, Any]) -> Standing:
    """A copy after an operation that did not end it."""
    operation = row["operation"]
    if operation in ("deadletter", "ttl_expire"):
        return copy._replace(sub_queue="$DeadLetterQueue", state="dead-lettered")
    if operation == "transfer_deadletter":
        return copy._replace(sub_queue="$Transfer/$DeadLetterQueue", state="dead-lettered")
    if operation == "defer":
        return copy._replace(state="deferred")
    if operation == "receive" and copy.state == "active":
        return copy._replace(state="locked")
    if copy.state == "locked":
        return copy._replace(state="active")
    return copy


def _count_end(journey: Journey, row: dict[str, Any]) -> None:
    operation = row["operation"]
    by_forwarding = row["client"] == "forward" and not row["connection"]
    if operation in ("complete", "receive_delete"):
        if by_forwarding or row["outcome"] == "published":
            return
        if is_backlog(row["entity"]) and not row["sub_queue"]:
            journey.moves += 1
        elif row["sub_queue"]:
            journey.ended.append("settled among the dead letters")
        else:
            journey.completed[row["entity"]] += 1
    elif operation == "ttl_expire":
        journey.ended.append("expired")
    elif operation in _DISCARDED:
        journey.ended.append(_DISCARDED[operation])


def _event(row: dict[str, Any]) -> Event:
    place = row["entity"] + (f"/{row['sub_queue']}" if row["sub_queue"] else "")
    operation, outcome = row["operation"], row["outcome"]
    what = _WORDS.get(operation, operation)
    detail = [f"number {row['sequence_number']}"] if row["sequence_number"] else []
    if operation == "send" and outcome == "duplicate":
        what = "dropped as a duplicate"
    elif operation == "send" and row["kind"] == "topic":
        what = "published"
    elif operation in ("send", "schedule") and is_backlog(row["entity"]):
        what = "diverted to the backlog"
    elif operation == "complete" and is_backlog(row["entity"]) and not row["sub_queue"]:
        what = "brought home: completed in the backlog"
    elif operation == "activate":
        detail = [f"number {outcome} became {row['sequence_number']}"]
    elif outcome and operation not in ("copy", "forward"):
        detail.append(outcome)
    if row["session_id"]:
        detail.append(f"session {row['session_id']}")
    if operation == "receive" and row["delivery_count"]:
        detail.append(f"delivered {_times(row['delivery_count'])} before")
    if row["client"] and row["connection"] in ("", "http"):
        detail.append(f"by {row['client']}")  # The broker's own doing; others are told by the names of their links.
    return Event(int(row["at"].timestamp() * 1_000_000), row["namespace"], place, what, ", ".join(detail))


# Logs and ledgers


def _sent(journey: Journey, path: Path, log: int) -> None:
    words = {"attempted": "attempted", "acknowledged": "acknowledged", "failed": "failed"}
    for line in sendlog.lines(path, journey.message_id):
        if line is None or line.message_id != journey.message_id:
            continue
        journey.acknowledged = bool(journey.acknowledged) or line.event == "acknowledged"
        journey.attempts += line.event == "attempted"
        detail = [line.why] if line.why else []
        detail += ["diverted"] if line.diverted else []
        journey.events.append(
            Event(sendlog.epoch_us(line.at), "", line.entity, f"the sender: {words[line.event]}", ", ".join(detail))
        )


def _marked(journey: Journey, path: Path) -> None:
    try:
        file = path.open(encoding="utf-8")
    except OSError as problem:
        raise PipelineError(f"The ledger's export {path} cannot be read: {problem.strerror}.") from problem
    wanted = json.dumps(journey.message_id)[1:-1]
    with file:
        for text in file:
            if wanted not in text and journey.message_id not in text:
                continue
            try:
                row = json.loads(text)
            except ValueError:
                continue
            if isinstance(row, dict) and row.get("tag") == journey.message_id:
                times = int(row.get("suppressed") or 0)
                journey.suppressed[str(row.get("scope", "")).lower()] += times
                detail = f"suppressed {_times(times)}" if times else ""
                journey.events.append(
                    Event(_instant_us(row.get("at")), str(row.get("namespace", "")), str(row.get("scope", "")),
                          f"the ledger: {row.get('state', '')}", detail)
                )  # fmt: skip


def _instant_us(text: Any) -> int | None:
    try:
        return pa.scalar(str(text)).cast(pa.timestamp("us", "UTC")).value  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, ValueError):
        return None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# Now


async def look(namespace: OwnClientNamespace, journey: Journey) -> None:
    """Look whether the copies that should be in a namespace are there; nothing is taken."""
    name = await namespace.name()
    for place, copy in enumerate(journey.standing):
        if copy.namespace != name:
            continue
        path = f"{copy.entity}/{copy.sub_queue}" if copy.sub_queue else copy.entity
        node = await (await namespace.connection()).management(path)
        try:
            found = [read(payload) for payload in await node.peek(copy.number, 1)]
        finally:
            await node.close()
        is_there = bool(found) and found[0].sequence_number == copy.number
        journey.standing[place] = copy._replace(is_seen=is_there)
