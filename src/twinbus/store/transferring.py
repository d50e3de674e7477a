"""Messages that move here from another queue: neither lost nor doubled, whichever store their queue is on.

On this store the lock at the source is completed in the same transaction. From another store this one remembers where
a message came from, until it is told that the source has completed it. Who moves messages, and when, is decided above.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from twinbus.model.errors import BusError
from twinbus.model.message import Incoming, Origin
from twinbus.store import statements
from twinbus.store.commands import Forget, Publish, Send, Transfer
from twinbus.store.duplicates import Known, key_of, known_duplicates, remember
from twinbus.store.sending import refusal_of, store
from twinbus.store.settling import lock_lost, remove
from twinbus.store.volatile import Lock, Queue, Stored
from twinbus.store.work import Work, columns_of

REMEMBERED_MS = 30 * 24 * 3600 * 1000


class Arrivals:
    """What one commit knows of transfers: which came before, and what those of this commit do to their sources."""

    def __init__(self, work: Work, commands: Sequence[Send | Publish]) -> None:
        self._work = work
        self._seen: set[tuple[int, int]] = set()
        self._new: list[tuple[int, int]] = []
        self._leaving: dict[tuple[int, int, Origin], list[Stored]] = {}
        asked = [
            (transfer.queue, transfer.sequence_number)
            for command in commands
            for transfer in command.transfers
            if not transfer.token
        ]
        if asked:
            work.flush()  # The same transfer may have been stored by another command of this commit.
            found = work.database.execute(statements.KNOWN_TRANSFERS, (json.dumps(asked),)).get
            self._seen = {(queue, seq) for queue, seq in json.loads(found)}

    def is_here(self, transfer: Transfer) -> bool:
        """Whether the message was stored before, so that nothing is left to do; never true of one with a token."""
        return not transfer.token and (transfer.queue, transfer.sequence_number) in self._seen

    def lock_of(self, transfer: Transfer) -> Lock | None:
        """The lock at the source if that is on this store; raises when it is lost."""
        if not transfer.token:
            return None
        source = self._work.memory.queues.get(transfer.queue)
        lock = None if source is None or source.entity.dropped else source.locks.get(transfer.token)
        if lock is None or lock.until_ms <= self._work.now_ms:
            raise lock_lost()
        return lock

    def take(self, transfer: Transfer, destination: Queue, origin: Origin) -> Stored | None:
        """A message is accepted, or dropped as a duplicate; it leaves its source, and is returned if that is here."""
        if not transfer.token:
            self._seen.add((transfer.queue, transfer.sequence_number))
            self._new.append((transfer.queue, transfer.sequence_number))
            return None
        source = self._work.memory.queues[transfer.queue]
        lock = source.locks[transfer.token]
        self._work.unlock(source, transfer.token, lock, True)
        self._leaving.setdefault((source.id, destination.id, origin), []).append(lock.message)
        return lock.message

    def leave(self) -> None:
        """Remove from the sources what was taken."""
        work = self._work
        for (source_id, destination_id, origin), messages in self._leaving.items():
            source = work.memory.queues[source_id]
            told = ("complete", "published") if source_id == destination_id else ("forward", str(destination_id))
            work.journal.add(told[0], source_id, origin, columns_of(messages), told[1])
            remove(work, source, messages)

    def remember(self) -> None:
        """Keep where messages came from that are not complete there yet. Everything else is in the plan by now."""
        work = self._work
        if self._new:
            values = {"now_ms": work.now_ms, "transfers": json.dumps(self._new)}
            work.execute(statements.REMEMBER_TRANSFERS, values)
            work.memory.due(work.now_ms + REMEMBERED_MS)


def may_be_duplicate(queue: Queue, transfer: Transfer | None) -> bool:
    """Whether duplicate detection applies: not to a message that was in this entity all the time."""
    return transfer is None or transfer.queue >> 2 != queue.entity.id


def send(work: Work, commands: list[Send]) -> None:
    """Store the units of commands with transfers, each unit one message."""
    found: list[tuple[Queue, Send]] = []
    for command in commands:
        try:
            found.append((work.queue_of(command), command))
        except BusError as error:
            command.error = error
    candidates = [
        (queue, message)
        for queue, command in found
        for (message,), transfer in zip(command.units, command.transfers, strict=True)
        if may_be_duplicate(queue, transfer)
    ]
    known = known_duplicates(work, candidates)
    known.update(work.plan.duplicates)
    arrivals = Arrivals(work, [command for _, command in found])
    for queue, command in found:
        _send(work, queue, command, known, arrivals)
    arrivals.leave()
    arrivals.remember()


def _send(work: Work, queue: Queue, command: Send, known: Known, arrivals: Arrivals) -> None:
    settings = queue.entity.settings
    room = settings.max_size_bytes - queue.entity.bytes
    accepted: list[Incoming] = []
    dropped: list[Incoming] = []
    first = queue.next_seq
    for unit, transfer in zip(command.units, command.transfers, strict=True):
        [message] = unit
        if arrivals.is_here(transfer):
            command.result.append([0])
            continue
        size = len(message.record)
        is_own = not may_be_duplicate(queue, transfer)
        try:
            lock = arrivals.lock_of(transfer)
        except BusError as error:
            command.result.append(error)
            continue
        if is_own and lock is not None:
            room += lock.message.size  # What it took up in this entity is free again.
        refusal = refusal_of(queue, unit, size, room)
        if refusal is not None:
            room -= lock.message.size if is_own and lock is not None else 0
            command.result.append(refusal)
            continue
        arrivals.take(transfer, queue, command.origin)
        if not is_own and (queue.id, key_of(settings, message)) in known:
            dropped.append(message)
            command.result.append([0])
            continue
        room -= size
        if not is_own:
            remember(work, queue, message, known)
        command.result.append([first + len(accepted)])
        accepted.append(message)
    if accepted:
        store(work, queue, command.origin, accepted)
    if dropped:
        ids = [message.message_id for message in dropped]
        sizes = [len(message.record) for message in dropped]
        work.journal.add("send", queue.id, command.origin, (ids, [0] * len(ids), [0], sizes), "duplicate")


def forget(work: Work, command: Forget) -> None:
    """Sources on other stores have completed their messages."""
    values = {"queue": command.queue, "seqs": json.dumps(command.sequence_numbers)}
    work.execute(statements.FORGET_TRANSFERS, values)
