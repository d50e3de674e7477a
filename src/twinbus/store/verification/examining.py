"""The checks of one messaging store, over a snapshot of it: each asks its question and turns the answer into findings.

A check that cannot be made says why instead. What catalog and stores say of each other is `belonging`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol
from zlib import crc32

from twinbus.store.journal import DamagedRowError, JournalRow, content
from twinbus.store.lifecycle import settings_of
from twinbus.store.verification import questions
from twinbus.store.verification.checks import EXAMPLES_MAX, Finding, Names, Unchecked
from twinbus.store.verification.questions import Dialect
from twinbus.store.verification.replay import Replay, made_in

ROWS_AT_ONCE = 5_000
BODIES_AT_ONCE = 64
GOING = 1  # An entity that is dropped, while its rows are being freed.
_COUNTS = ("active", "deferred", "scheduled", "damaged", "bytes")

Progress = Callable[[int], None]  # So many more rows were read.


class Snapshot(Protocol):
    """A database at one instant. Its errors are those of the engine."""

    errors: tuple[type[Exception], ...]

    def integrity(self) -> Iterable[str]:
        """What the engine itself finds wrong; nothing if that is all right."""
        ...

    def unchecked(self) -> str:
        """Why the engine itself was not asked; empty if it was."""
        ...

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The answer to a statement."""
        ...

    def stream(self, statement: str, at_once: int) -> Iterator[tuple[Any, ...]]:
        """A long answer, fetched so many rows at once."""
        ...

    def tables(self) -> Mapping[str, Collection[str]]:
        """The tables that there are, with their columns."""
        ...


class StoreSnapshot(Snapshot, Protocol):
    """A messaging store at one instant."""

    dialect: Dialect

    def since_ms(self) -> int | None:
        """Up to when what the journal tells may have ended in rows that are trimmed; None where rows go in order."""
        ...

    def is_complete(self, first_row: int) -> bool:
        """Whether a journal that begins with this row was never trimmed."""
        ...

    def text(self, value: str) -> str:
        """A text as clients gave it."""
        ...


@dataclass(slots=True)
class Examined:
    """What was found in one store, and what others are checked against."""

    number: int
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    entities: dict[int, bool] = field(default_factory=dict)  # Whether it ever held a message; without dropped ones.
    transfers: list[int] = field(default_factory=list)
    messages: int = 0
    bodies: int = 0
    body_bytes: int = 0
    journal_rows: int = 0
    last_journal: int | None = None  # The newest row's number, where there is one writer.
    names: Names = field(default_factory=lambda: Names({}))

    def document(self) -> dict[str, Any]:
        """Its numbers."""
        return {
            "number": self.number,
            "messages": self.messages,
            "bodies": self.bodies,
            "body_bytes": self.body_bytes,
            "journal_rows": self.journal_rows,
        }


def sizes(snapshot: StoreSnapshot) -> int:
    """How many rows an examination will report as read; 0 if they cannot be counted."""
    try:
        [(messages, bodies, journal)] = snapshot.rows(questions.SIZES)
    except snapshot.errors:
        return 0
    return int(messages) + int(bodies) + int(journal)


def examine(snapshot: StoreSnapshot, number: int, progress: Progress) -> Examined:
    """Make all checks of one store."""
    return _Examination(snapshot, number, progress).made()


def look_at_queues(snapshot: StoreSnapshot, number: int) -> Examined:
    """Only what a store says of its entities, and who it is."""
    return _Examination(snapshot, number, lambda rows: None).looked_at()


class _Examination:
    def __init__(self, snapshot: StoreSnapshot, number: int, progress: Progress) -> None:
        self._snapshot = snapshot
        self._progress = progress
        self._where = f"store {number}"
        self._examined = Examined(number)
        self._names = Names({})
        self._is_unreadable = False
        self._has_whole_journal = True

    def made(self) -> Examined:
        for check, make in (
            ("pages", self._pages),
            ("queue-row", self._queue_rows),
            ("body", self._bodies),
            ("message-without-body", self._without_body),
            ("body-without-message", self._without_message),
            ("body-used-twice", self._used_twice),
            ("message-state", self._impossible),
            ("counts", self._counts),
            ("stray-rows", self._strays),
            ("claims", self._claims),
            ("transfers", self._transfers),
            ("journal-gap", self._journal_gaps),
            ("journal-row", self._journal_rows),
            ("journal-state", self._journal_state),
        ):
            try:
                make()
            except self._snapshot.errors as error:
                self._unreadable(check, error)
        return self._examined

    def looked_at(self) -> Examined:
        try:
            self._queue_rows()
            self._transfers()
        except self._snapshot.errors as error:
            self._unreadable("queue-row", error)
        return self._examined

    # Telling

    def _found(self, check: str, text: str, count: int = 1, examples: Iterable[str] = ()) -> None:
        self._examined.findings.append(Finding(check, self._where, text, count, tuple(examples)[:EXAMPLES_MAX]))

    def _not_made(self, check: str, why: str) -> None:
        self._examined.unchecked.append(Unchecked(check, self._where, why))

    def _unreadable(self, check: str, error: Exception) -> None:
        """What cannot be read is told once, and what could not be checked because of it each time."""
        text = " ".join(str(error).split())
        if not self._is_unreadable and not any(found.check == "pages" for found in self._examined.findings):
            self._found("pages", f"It cannot be read: {text}.")
        self._is_unreadable = True
        self._not_made(check, f"the rows could not be read: {text}")

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self._snapshot.rows(self._snapshot.dialect.fill(statement))

    # Checks

    def _pages(self) -> None:
        wrong = list(self._snapshot.integrity())
        if wrong:
            self._found("pages", "The database's own check finds it damaged.", len(wrong), wrong)
        if why := self._snapshot.unchecked():
            self._not_made("pages", why)

    def _queue_rows(self) -> None:
        examined = self._examined
        examined.meta = dict(self._ask(questions.META))
        known = {entity: (path, kind, fragment) for entity, path, kind, fragment in self._ask(questions.NAMES)}
        self._names = examined.names = Names(known)
        wrong: list[str] = []
        for entity, rows in groupby(self._ask(questions.QUEUES), key=lambda row: row[0] >> 2):
            found = {queue & 3: (settings, dropped, next_seq) for queue, settings, dropped, next_seq in rows}
            main = found.get(0, (None, 0, 1))
            if main[1] != GOING:
                examined.entities[entity] = any(next_seq > 1 for _, _, next_seq in found.values())
            name = self._names.queue(entity * 4)
            if set(found) != {0, 1, 2}:
                wrong.append(f"{name}: {len(found)} rows where there must be three")
            elif not _is_readable(main[0]):
                wrong.append(f"{name}: its settings cannot be read")
        if wrong:
            self._found(
                "queue-row", f"{len(wrong)} entities are not ruled by the rows that they need.", len(wrong), wrong
            )

    def _bodies(self) -> None:
        examined = self._examined
        wrong: list[int] = []
        read = size = 0
        for body, data in self._snapshot.stream(questions.BODIES, BODIES_AT_ONCE):
            if crc32(data[4:]) != int.from_bytes(data[:4], "big"):
                wrong.append(body)
            size += len(data)
            read += 1
            if read % 10_000 == 0:
                self._progress(10_000)
        self._progress(read % 10_000)
        examined.bodies, examined.body_bytes = read, size
        if not wrong:
            return
        owners = self._snapshot.rows(questions.owners(wrong[:1_000]))
        by_body = {body: f"{self._names.queue(queue)}, number {seq}{_AS[state]}" for body, queue, seq, state in owners}
        told = [by_body.get(body, f"record {body}, which no message names") for body in wrong[:1_000]]
        self._found("body", f"{len(wrong):,} records do not match their checksums.", len(wrong), told)

    def _without_body(self) -> None:
        for queue, count, first, last in self._ask(questions.WITHOUT_BODY):
            text = f"{count:,} messages of {self._names.queue(queue)} have no record."
            self._found("message-without-body", text, count, _numbers(count, first, last))

    def _without_message(self) -> None:
        [(count, first, last, size)] = self._ask(questions.WITHOUT_MESSAGE)
        if count:
            text = f"{count:,} records with {size:,} bytes belong to no message."
            self._found("body-without-message", text, count, [f"records {first} to {last}"])

    def _used_twice(self) -> None:
        rows = self._ask(questions.USED_TWICE)
        if rows:
            told = [f"record {body}: {count} rows, one of {self._names.queue(queue)}" for body, count, queue, _ in rows]
            self._found("body-used-twice", f"{len(rows):,} records belong to several messages.", len(rows), told)

    def _impossible(self) -> None:
        rows = self._ask(questions.IMPOSSIBLE)
        if rows:
            told = [f"{self._names.queue(queue)}, number {seq}" for queue, seq, *_ in rows]
            self._found("message-state", f"{len(rows):,} message rows are impossible.", len(rows), told)

    def _counts(self) -> None:
        for queue, next_seq, *rest in self._ask(questions.COUNTS):
            told, (last, *found, lost) = rest[:5], rest[5:]
            name = self._names.queue(queue)
            self._examined.messages += sum(found[:4])
            if next_seq <= last:
                text = f"The next number of {name} is {next_seq}, and number {last} is there already."
                self._found("next-number", text)
            wrong = [
                f"{count}: its row says {said:,}, its messages are {counted:,}"
                for count, said, counted in zip(_COUNTS, told, found, strict=True)
                if said != counted and not (count == "bytes" and lost)  # Which is told already.
            ]
            if wrong:
                self._found("counts", f"The counts of {name} are not those of its messages.", len(wrong), wrong)

    def _strays(self) -> None:
        dialect = self._snapshot.dialect
        gone = {entity for (entity,) in self._ask(questions.GONE)}
        for tables, may_be_gone in ((dialect.lasting, False), (dialect.volatile, True)):
            for table in tables:
                rows = self._ask(questions.strays(table))
                rows = [row for row in rows if not (may_be_gone and row[0] >> 2 in gone)]
                count = sum(number for _, number in rows)
                if rows:
                    told = [f"{self._names.queue(queue)}: {number:,}" for queue, number in rows]
                    text = f"{count:,} rows of the table '{table}' belong to queues that have no row."
                    self._found("stray-rows", text, count, told)

    def _claims(self) -> None:
        if "claim" not in self._snapshot.dialect.volatile:
            return
        wrong = [str(claim) for claim, held in self._ask("SELECT id, held FROM claim") if not _is_held(held)]
        if wrong:
            self._found("claims", f"{len(wrong):,} claims cannot be read.", len(wrong), wrong)

    def _transfers(self) -> None:
        self._examined.transfers = [queue for (queue,) in self._ask(questions.TRANSFERS)]

    # The journal

    def _journal_gaps(self) -> None:
        gaps = [(writer, last + 1, following - 1) for writer, last, following in self._ask(questions.GAPS)]
        gaps += [(writer, last + 1, exported) for writer, last, exported in self._ask(questions.BEHIND)]
        if gaps:
            self._has_whole_journal = False
            missing = sum(last - first + 1 for _, first, last in gaps)
            told = [_rows_of(writer, first, last) for writer, first, last in gaps]
            self._found("journal-gap", f"{missing:,} rows of the journal are missing.", missing, told)

    def _journal_rows(self) -> None:
        wrong: list[str] = []
        read, last = 0, None
        for writer, row in self._journal():
            try:
                content(row)
            except DamagedRowError:
                wrong.append(_rows_of(writer, row.id, row.id))
            read += 1
            last = row.id if writer == 0 else None
            if read % 1_000 == 0:
                self._progress(1_000)
        self._progress(read % 1_000)
        self._examined.journal_rows, self._examined.last_journal = read, last
        if wrong:
            self._has_whole_journal = False
            self._found("journal-row", f"{len(wrong):,} rows of the journal are damaged.", len(wrong), wrong)

    def _journal(self) -> Iterator[tuple[int, JournalRow]]:
        statement = self._snapshot.dialect.fill(questions.JOURNAL)
        for writer, *row in self._snapshot.stream(statement, ROWS_AT_ONCE):
            yield writer, JournalRow(*row)

    def _journal_state(self) -> None:
        if not self._has_whole_journal:
            self._not_made("journal-state", "the journal is not whole")
            return
        first = next((row.id for _, row in self._journal()), 0)
        topics = {entity * 4 for entity in self._examined.entities if self._names.kind(entity) == "topic"}
        replay = Replay(topics, self._snapshot.since_ms(), self._snapshot.is_complete(first))
        for _, row in self._journal():
            replay.take(row)
        named = {entity for entity in self._examined.entities if self._names.kind(entity)}
        if unnamed := len(self._examined.entities) - len(named):
            self._not_made("journal-state", f"nobody told the store what {unnamed} of its entities are")
        rest = {entity * 4 + sub for entity in named for sub in range(3)}
        states = self._snapshot.stream(questions.STATES, ROWS_AT_ONCE)
        for queue, rows in groupby(states, key=itemgetter(0)):
            messages = [(seq, self._snapshot.text(message_id)) for _, seq, message_id in rows]
            self._progress(len(messages))
            if queue in rest:
                rest.discard(queue)
                self._compare(replay, queue, messages)
        for queue in sorted(rest):
            self._compare(replay, queue, [])

    def _compare(self, replay: Replay, queue: int, messages: list[tuple[int, str]]) -> None:
        name = self._names.queue(queue)
        found = {seq for seq, _ in messages}
        is_whole = True
        for numbers, what in (
            (replay.missing(queue, found), "were stored and have not ended, and are not there"),
            (replay.unexplained(queue, found), "are there, and the journal says that they are not"),
        ):
            if numbers:
                is_whole = False
                text = f"{len(numbers):,} messages of {name} {what}."
                self._found("journal-state", text, len(numbers), [f"number {seq}" for seq in sorted(numbers)[:10]])
        if is_whole and not replay.agrees(queue, messages):
            self._tell_differing(queue, dict(messages))

    def _tell_differing(self, queue: int, found: dict[int, str]) -> None:
        journaled: dict[int, str] = {}
        for _, row in self._journal():
            journaled.update((number, named) for number, named in made_in(row, queue) if number in found)
        told = [
            f"number {number}: the journal says '{named}', the row says '{found[number]}'"
            for number, named in sorted(journaled.items())
            if found[number] != named
        ]
        text = f"{len(told):,} messages of {self._names.queue(queue)} have another message id than the journal says."
        self._found("journal-state", text, max(len(told), 1), told)


_AS = {0: "", 1: ", deferred", 2: ", scheduled", 3: ", set aside already"}


def _is_readable(settings: Any) -> bool:
    try:
        settings_of(str(settings))
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _is_held(text: Any) -> bool:
    try:
        held = json.loads(text)
        return all(isinstance(seq, int) and isinstance(count, int) for seq, count in held)
    except (ValueError, TypeError):
        return False


def _numbers(count: int, first: int, last: int) -> list[str]:
    return [f"number {first}"] if count == 1 else [f"numbers {first} to {last}"]


def _rows_of(writer: int, first: int, last: int) -> str:
    of_writer = f" of writer {writer}" if writer else ""
    return f"row {first}{of_writer}" if first == last else f"rows {first} to {last}{of_writer}"
