"""Publishing: a topic's message becomes a copy in each of the given queues, all of them or none, and is stored once.

Which subscriptions get a copy, and how it differs, was decided by the caller. Nothing is on disk when this returns; the
commit makes it so.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming, MessageState
from twinbus.store.commands import Copy, Publication, Publish
from twinbus.store.copies import Alike, Copies
from twinbus.store.plan import LARGEST_RECORD, Kind
from twinbus.store.sending import known_duplicates, store_run
from twinbus.store.settling import lock_lost, remove
from twinbus.store.volatile import Entity, Lock, Queue
from twinbus.store.work import Work, columns_of

NO_SESSION = "Session id is null."
_NO_SESSION_TEXT = "The subscription requires sessions, and the message has no session id."
_SCHEDULED = int(MessageState.SCHEDULED)


class _Step(NamedTuple):
    """What will be done about one publication, if its unit is accepted."""

    message: Incoming
    duplicate: bool = False
    waits: bool = False  # In the topic's own queue, for its time to come.
    token: bytes = b""
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
    known = known_duplicates(
        work,
        [
            (topic, publication.message.message_id)
            for topic, command in found
            if topic.entity.settings.duplicate_window_ms
            for unit in command.units
            for publication in unit
            if publication.message.message_id and not publication.token
        ],
    )
    copies = Copies(work)
    for topic, command in found:
        told = _Told()
        for unit in command.units:
            try:
                steps = _decide(work, topic, unit, known)
            except BusError as error:
                command.result.append(error)
                continue
            command.result.append([_do(work, topic, command, step, known, copies, told) for step in steps])
        work.journal.add("send", topic.id, command.origin, told.sent)
        work.journal.add("send", topic.id, command.origin, told.dropped, "duplicate")
    copies.store()


# Deciding changes nothing, so that a refused unit leaves no trace.


def _decide(work: Work, topic: Queue, unit: list[Publication], known: set[tuple[int, str]]) -> list[_Step]:
    """What to do about each publication of a unit; raises the reason for which the unit is refused."""
    steps: list[_Step] = []
    demand: dict[Entity, int] = {}
    seen: set[str] = set()
    tokens: set[bytes] = set()
    for message, copies, token in unit:
        size = len(message.record)
        if size > LARGEST_RECORD:
            raise BusError(Fault.MESSAGE_TOO_LARGE, f"A message of {size} bytes is more than the store can keep.")
        if token:
            if token in tokens or _lock(work, topic, token) is None:
                raise lock_lost()
            tokens.add(token)
        elif topic.entity.settings.duplicate_window_ms and message.message_id:
            if message.message_id in seen or (topic.id, message.message_id) in known:
                steps.append(_Step(message, duplicate=True))
                continue
            seen.add(message.message_id)
        # Its time may have come since the caller looked at the clock. Then it has no copies yet, and still must wait
        # here for somebody to make them.
        if message.due_at_ms is not None and not copies and not token:
            demand[topic.entity] = demand.get(topic.entity, 0) + size
            steps.append(_Step(message, waits=True))
            continue
        steps.append(_Step(message, token=token, targets=_targets(work, copies, size, demand)))
    for entity, size in demand.items():
        _check_room(entity, size)
    return steps


def _lock(work: Work, topic: Queue, token: bytes) -> Lock | None:
    lock = topic.locks.get(token)
    return None if lock is None or lock.until_ms <= work.now_ms else lock


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


# Doing cannot fail.


def _do(
    work: Work, topic: Queue, command: Publish, step: _Step, known: set[tuple[int, str]], copies: Copies, told: _Told
) -> int:
    """Carry out what was decided about one publication; its number in the topic's own queue."""
    message = step.message
    if step.duplicate:
        told.send(message, 0)
        return 0
    if step.token:
        number = _consume(work, topic, command, step.token)
    else:
        number = topic.next_seq
        topic.next_seq += 1
        work.touch(topic)
        if topic.entity.settings.duplicate_window_ms and message.message_id:
            known.add((topic.id, message.message_id))
            work.plan.duplicates.append((topic.id, message.message_id))
            work.memory.due(work.now_ms + topic.entity.settings.duplicate_window_ms)
        if step.waits:
            store_run(work, topic, command.origin, [message], number, _waiting(work, message))
            return number
        told.send(message, number)
    if step.targets:
        copies.add(topic.id, number, command.origin, message.record, step.targets)
    return number


def _consume(work: Work, topic: Queue, command: Publish, token: bytes) -> int:
    """A message that waited for its time leaves the topic's own queue; its number there."""
    lock = topic.locks[token]
    work.unlock(topic, token, lock, True)
    work.journal.add("complete", topic.id, command.origin, columns_of([lock.message]), "published")
    remove(work, topic, [lock.message])
    return lock.message.seq


def _waiting(work: Work, message: Incoming) -> Kind:
    """A scheduled message, whose time to live begins at its time."""
    due = max(message.due_at_ms or 0, work.now_ms)
    work.memory.due(due)
    return Kind(_SCHEDULED, None if message.ttl_ms is None else due + message.ttl_ms, due, message.session_id)
