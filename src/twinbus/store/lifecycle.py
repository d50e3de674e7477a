"""Entities come, change and go; and a connection that breaks off loses its locks in all of them.

The rows of a dropped entity are freed later, in chunks, by `store.sweeping`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from twinbus.model.errors import BusError, Fault
from twinbus.store import statements
from twinbus.store.commands import Configure, Create, Drop, DropLocks, EntityName, Introduce, QueueSettings
from twinbus.store.sessions import end
from twinbus.store.settling import end_locks
from twinbus.store.volatile import Entity, Queue
from twinbus.store.work import Work


def create(work: Work, command: Create) -> None:
    """Make an entity's queues; an entity that exists is left as it is."""
    entity_id = command.queue >> 2
    known = work.memory.entities.get(entity_id)
    if known is not None:
        if known.dropped:
            raise BusError(Fault.ENTITY_DELETED, "The entity was deleted, and its number is not used again.")
        if known.aside:
            raise BusError(Fault.ENTITY_EXISTS, "The number belongs to an entity that is set aside.")
        return
    entity = Entity(entity_id, command.settings)
    for queue in entity.queues:
        work.execute(statements.CREATE_QUEUE, (queue.id, settings_text(command.settings) if queue.sub == 0 else None))
        queue.line.caught_up = True
    work.memory.add(entity)
    if command.name is not None:
        name(work, {entity_id: command.name})


def introduce(work: Work, command: Introduce) -> None:
    """Keep names, and note which are of entities that are gone."""
    name(work, command.names)
    if command.gone:
        work.execute(statements.ENTITIES_GONE, {"now_ms": work.now_ms, "gone": json.dumps(command.gone)})


def name(work: Work, names: Mapping[int, EntityName]) -> None:
    """Keep names for the journal's readers."""
    if names:
        rows = [(entity, *named) for entity, named in names.items()]
        work.execute(statements.NAME_ENTITIES, {"names": json.dumps(rows)})


def configure(work: Work, command: Configure) -> None:
    """Change an entity's settings; its locks are dropped and the deliveries count."""
    entity = work.queue_of(command).entity
    _drop_all_locks(work, entity)
    work.execute(statements.CONFIGURE_QUEUE, (settings_text(command.settings), entity.id * 4))
    entity.settings = command.settings
    for queue in entity.queues:
        queue.line.rewind(1)
    work.memory.due(work.now_ms)


def to_drop(work: Work, command: Drop) -> Entity:
    """The entity that goes, or the reason why it stays."""
    entity = work.queue_of(command).entity
    if command.only_aside and not entity.aside:
        raise BusError(Fault.NOT_ALLOWED, "The entity is not set aside any more: it is served.")
    return entity


def drop(work: Work, command: Drop) -> None:
    """An entity is gone at once; its rows follow."""
    entity = to_drop(work, command)
    for queue in entity.queues:
        for hold in queue.holds.values():
            work.hints.lost_sessions.append((queue.id, hold.session or "", hold.holder))
        work.journal.dropped += queue.active + queue.deferred + queue.scheduled
        queue.line.rewind(1)
        queue.locks.clear()
        queue.holds.clear()
        queue.owners.clear()
    entity.dropped = True
    work.execute(statements.DROP_QUEUE, {"first": entity.id * 4})
    work.execute(statements.ENTITIES_GONE, {"now_ms": work.now_ms, "gone": json.dumps([entity.id])})
    work.memory.due(work.now_ms)


def _drop_all_locks(work: Work, entity: Entity) -> None:
    for queue in entity.queues:
        for hold in list(queue.holds.values()):
            end(work, queue, hold, counted=True)
        end_locks(work, queue, list(queue.locks), True, "drop_lock", why="configure")


def drop_locks(work: Work, command: DropLocks) -> None:
    """A connection broke off: its sessions end, its locks fall, and the deliveries count."""
    for queue in work.memory.queues.values():
        for hold in [hold for hold in queue.holds.values() if hold.owner == command.owner]:
            command.result += len(hold.tokens)
            end(work, queue, hold, counted=True)
        tokens = queue.owners.pop(command.owner, None)
        if tokens:
            command.result += end_locks(work, queue, sorted(tokens), True, "drop_lock", command.origin)


def settings_text(settings: QueueSettings) -> str:
    """Settings as the main queue's row keeps them."""
    return json.dumps(settings._asdict())


def settings_of(text: str) -> QueueSettings:
    """Settings from a row; one that this version does not know is ignored, one that is missing has its default."""
    known = {name: value for name, value in json.loads(text).items() if name in QueueSettings._fields}
    return QueueSettings(**known)


def load(rows: list[list[int | str | None]]) -> list[Entity]:
    """Entities from the rows of all queues, in order of their ids."""
    entities: dict[int, Entity] = {}
    for queue_id, settings, dropped, *numbers in rows:
        assert isinstance(queue_id, int)
        if queue_id & 3 == 0:
            entities[queue_id >> 2] = Entity(queue_id >> 2, settings_of(str(settings)))
        entity = entities[queue_id >> 2]
        entity.dropped, entity.aside = dropped == 1, dropped == 2
        _fill(entity.queues[queue_id & 3], numbers)
    return list(entities.values())


def _fill(queue: Queue, numbers: list[int | str | None]) -> None:
    fields = ("next_seq", "active", "deferred", "scheduled", "damaged", "bytes")
    for field, value in zip(fields, numbers, strict=True):
        setattr(queue, field, value)
    queue.disk_tail = queue.next_seq
