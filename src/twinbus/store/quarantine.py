"""What a store keeps for a catalog that may be lost: entities set aside, what is remembered of them, and the witness.

An entity that the catalog does not know is set aside: nothing in it expires, becomes due or is dropped, until somebody
who knows better says so. Which entities those are is decided by `entities`; here it is written down.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from twinbus.model.message import Counts
from twinbus.store import statements
from twinbus.store.commands import Command, QueueSettings
from twinbus.store.reading import counts_of
from twinbus.store.volatile import Queue
from twinbus.store.work import Work


class Held(NamedTuple):
    """An entity, or a fragment of one, that a store holds when it is opened."""

    entity: int
    is_aside: bool = False
    is_used: bool = True  # It holds a message, or has held one.
    is_published: bool = True  # The catalog has had it.
    path: str = ""
    kind: str = ""
    fragment: int = 0


class Remembered(NamedTuple):
    """What a store knows of an entity without any catalog."""

    entity: int
    path: str
    kind: str
    fragment: int
    document: str | None  # As the catalog had it last; None if it was never told.
    settings: QueueSettings
    counts: Counts


@dataclass(slots=True, eq=False, kw_only=True)
class SetAside(Command):
    """Set entities aside, or make them ordinary ones again. `queue` is ignored; those that are not there are too.

    With `undefer`, deferred messages become active, under their numbers and without an end of their time to live: for
    entities whose messages go elsewhere, where nobody could ask for them by number.
    """

    entities: list[int]
    aside: bool = True
    undefer: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Remember(Command):
    """Tell what is known of entities. `queue` is ignored, and entities that are not there are left out."""

    entities: list[int]
    result: list[Remembered] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Witness(Command):
    """Remember that the catalog has seen so many changes, so that an older one is recognised. `queue` is ignored."""

    generation: int


@dataclass(slots=True, eq=False, kw_only=True)
class Position(Command):
    """Tell the number of the journal's last row, when it is on disk. `queue` is ignored."""

    journal: int = 0


def set_aside(work: Work, command: SetAside) -> None:
    """Mark the entities in memory and in their rows."""
    found = [work.memory.entities[each] for each in command.entities if each in work.memory.entities]
    changed = [entity for entity in found if not entity.dropped and entity.aside != command.aside]
    for entity in changed:
        entity.aside = command.aside
    if changed:
        values = {"aside": 2 if command.aside else 0, "entities": json.dumps([entity.id for entity in changed])}
        work.execute(statements.SET_ASIDE, values)
        work.memory.due(work.now_ms)
    if command.undefer:
        for queue in [queue for entity in changed for queue in entity.queues if queue.deferred]:
            _undefer(work, queue)


def _undefer(work: Work, queue: Queue) -> None:
    work.execute(statements.UNDEFER, (queue.id,))
    queue.active += queue.deferred
    queue.deferred = 0
    queue.line.rewind(1)
    work.touch(queue)
    work.hints.ready.add(queue.id)


def remember(work: Work, command: Remember) -> None:
    """Names and descriptions from the database, settings and counts from memory."""
    work.flush()
    named = work.row(statements.REMEMBERED, (json.dumps(command.entities),))[0]
    known = {entity: rest for entity, *rest in json.loads(named)}
    for number in command.entities:
        entity = work.memory.entities.get(number)
        if entity is None or entity.dropped:
            continue
        path, kind, fragment, document = known.get(number, ("", "", 0, None))
        command.result.append(Remembered(number, path, kind, fragment, document, entity.settings, counts_of(entity)))


def witness(work: Work, command: Witness) -> None:
    """Keep the highest number."""
    work.execute(statements.WITNESS, {"generation": str(command.generation)})


def position(work: Work, command: Position) -> None:
    """Of the embedded store, which writes one journal. What is written makes the commit wait for the disk."""
    command.journal = work.memory.next_journal - 1
    work.execute(statements.NOTE_POSITION, (str(command.journal),))
