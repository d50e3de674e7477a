"""Publishing: a topic's message becomes a copy in each of the given queues, all of them or none, and is stored once.

Which subscriptions get a copy, and how it differs, was decided by the caller. Nothing is on disk when this returns; the
commit makes it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, MessageState
from twinbus.store.commands import Copy, Publication, Publish, Transfer
from twinbus.store.copies import Alike, Copies
from twinbus.store.duplicates import Known, key_of, known_duplicates, remember
from twinbus.store.plan import LARGEST_RECORD, Kind
from twinbus.store.sending import store_run
from twinbus.store.transferring import Arrivals, may_be_duplicate
from twinbus.store.volatile import Entity, Queue
from twinbus.store.work import Work

NO_SESSION = "Session id is null."
_NO_SESSION_TEXT = "The subscription requires sessions, and the message has no session id."
_SCHEDULED = int(MessageState.SCHEDULED)


class _Step(NamedTuple):
    """What will be done about one publication, if its unit is accepted."""

    message: Incoming
    is_here: bool = False  # The same transfer came before.
    duplicate: bool = False
    waits: bool = False  # In the topic's own queue, for its time to come.
    targets: dict[Alike, list[Queue]] | None = None


class _Told:
    """What a command did in the topic's own queue, for the journal."""

    def __init__(self) -> None:
        self.sent: tuple[list[str], list[int], list[int], list[int]] = ([], [], [0], [])
        self.dropped: tuple[list[str], list[int], list[int], list[int]] = ([], [], [0], [])

    def send(self, message: Incoming, number: int) -> None:
        """One message was published, or (with number 0) dropped as a duplicate."""
        ids, numbers, _, sizes = self.sent if number else self.dropped
        ids.append(message.message_id)
        numbers.append(number)
        sizes.append(len(message.record))


def publish(work: Work, commands: list[Publish]) -> None:
    """Store the units of all commands in order of arrival."""
    found: list[tuple[Queue, Publish]] = []
    for command in commands:
        try:
            found.append((work.queue_of(command), command))
        except BusError as error:
            command.error = error
    candidates = [
        (topic, publication.message)
        for topic, command in found
        if topic.entity.settings.duplicate_window_ms
        for unit, transfer in zip(command.units, _transfers(command), strict=True)
        if may_be_duplicate(topic, transfer)
        for publication in unit
    ]
    commit = _Commit(work, known_duplicates(work, candidates), Arrivals(work, commands), Copies(work))
    for topic, command in found:
        commit.publish(topic, command)
    commit.arrivals.leave()
    commit.copies.store()
    commit.arrivals.remember()


def _transfers(command: Publish) -> Sequence[Transfer | None]:
    return command.transfers or [None] * len(command.units)


class _Commit(NamedTuple):
    """What all publications of one commit share."""

    work: Work
    known: Known
    arrivals: Arrivals
    copies: Copies

    def publish(self, topic: Queue, command: Publish) -> None:
        """Store the units of one command."""
        told = _Told()
        for unit, transfer in zip(command.units, _transfers(command), strict=True):
            try:
                steps = self._decide(topic, unit, transfer)
            except BusError as error:
                command.result.append(error)
                continue
            command.result.append([self._do(topic, command, step, transfer, told) for step in steps])
        self.work.journal.add("send", topic.id, command.origin, told.sent)
        self.work.journal.topics.add(topic.id)
        self.work.journal.add("send", topic.id, command.origin, told.dropped, "duplicate")

    def _decide(self, topic: Queue, unit: list[Publication], transfer: Transfer | None) -> list[_Step]:
        """What to do about each publication of a unit; raises the reason for which the unit is refused.

        It changes nothing, so that a refused unit leaves no trace.
        """
        if transfer is not None:
            if self.arrivals.is_here(transfer):
                return [_Step(message, is_here=True) for message, _ in unit]
            self.arrivals.lock_of(transfer)
        settings = topic.entity.settings
        is_own = not may_be_duplicate(topic, transfer)
        steps: list[_Step] = []
        demand: dict[Entity, int] = {}
        seen: set[str] = set()
        for message, copies in unit:
            size = len(message.record)
            if size > LARGEST_RECORD:
                raise BusError(Fault.MESSAGE_TOO_LARGE, f"A message of {size} bytes is more than the store can keep.")
            key = key_of(settings, message) if settings.duplicate_window_ms and not is_own else ""
            if key:
                if key in seen or (topic.id, key) in self.known:
                    steps.append(_Step(message, duplicate=True))
                    continue
                seen.add(key)
            # Its time may have come since the caller looked at the clock. Then it has no copies yet, and still must
            # wait here for somebody to make them.
            if message.due_at_ms is not None and not copies and not is_own:
                demand[topic.entity] = demand.get(topic.entity, 0) + size
                steps.append(_Step(message, waits=True))
                continue
            steps.append(_Step(message, targets=_targets(self.work, copies, size, demand)))
        for entity, size in demand.items():
            _check_room(entity, size)
        return steps

    def _do(self, topic: Queue, command: Publish, step: _Step, transfer: Transfer | None, told: _Told) -> int:
        """Carry out what was decided about one publication, which cannot fail; its number in the topic's own queue."""
        message = step.message
        if step.is_here:
            return 0
        moved = None if transfer is None else self.arrivals.take(transfer, topic, command.origin)
        if step.duplicate:
            told.send(message, 0)
            return 0
        if moved is not None and not may_be_duplicate(topic, transfer):
            number = moved.seq
        else:
            number = topic.next_seq
            topic.next_seq += 1
            self.work.touch(topic)
            remember(self.work, topic, message, self.known)
            if step.waits:
                store_run(self.work, topic, command.origin, [message], number, _waiting(self.work, message))
                return number
            told.send(message, number)
        if step.targets:
            self.copies.add(topic.id, number, command.origin, message.record, step.targets)
        return number


def _targets(work: Work, copies: list[Copy], shared_size: int, demand: dict[Entity, int]) -> dict[Alike, list[Queue]]:
    """The queues that get copies, by what the copies have in common; adds what each entity must have room for."""
    queues = work.memory.queues
    alike: dict[Alike, list[Queue]] = {}
    for copy in copies:
        target = queues.get(copy.queue)
        # A subscription may have been deleted since the caller looked.
        if target is None or target.entity.dropped:
            continue
        entity = target.entity
        if copy.session_id is None and entity.settings.requires_session and target.sub == SubQueue.MAIN:
            target = entity.queues[SubQueue.DEAD_LETTER]
            copy = copy._replace(reason=NO_SESSION, description=_NO_SESSION_TEXT)
        if target.sub != SubQueue.MAIN and copy.ttl_ms is not None:
            copy = copy._replace(ttl_ms=None)  # A dead-letter queue knows no time to live.
        demand[entity] = demand.get(entity, 0) + (shared_size if copy.record is None else len(copy.record))
        shape = copy[1:]
        if shape in alike:
            alike[shape].append(target)
        else:
            alike[shape] = [target]
    return alike


def _check_room(entity: Entity, size: int) -> None:
    room = entity.settings.max_size_bytes - entity.bytes
    if size > room:
        raise BusError(
            Fault.QUOTA_EXCEEDED,
            f"Entity {entity.id} is full: it may hold {entity.settings.max_size_bytes} bytes,"
            f" {max(room, 0)} are free, and {size} were published to it.",
        )


def _waiting(work: Work, message: Incoming) -> Kind:
    """A scheduled message, whose time to live begins at its time."""
    due = max(message.due_at_ms or 0, work.now_ms)
    work.memory.due(due)
    return Kind(_SCHEDULED, None if message.ttl_ms is None else due + message.ttl_ms, due, message.session_id)
