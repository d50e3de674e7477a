"""What stores hold and the catalog does not know: set aside, listed, and taken up again by an operator's word.

Nothing is dropped because it is not understood. Only two things are freed without being asked about: what somebody had
deleted before a crash, and what was never in the catalog and never held a message. What a store does with an entity
that is set aside is `store.quarantine`'s part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from twinbus.entities.entity import AnyEntity
from twinbus.entities.fragments import call_all
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.model.entity import QueueDescription, from_document, to_document
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.model.topic import subscription_from_document, topic_from_document
from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Drop, Peek, QueueSettings
from twinbus.store.quarantine import Held, Remember, Remembered, SetAside

if TYPE_CHECKING:
    from twinbus.entities.namespace import Namespace
    from twinbus.model.message import Delivered

_log = EventLog(__name__)
MEGABYTE = 1024 * 1024


class Fate(Enum):
    """What becomes of an entity that a store holds when it is opened."""

    SERVED = "served"
    RESTORED = "restored"  # It was set aside, and the catalog knows it again.
    BEING_MADE = "being made"
    DELETED = "deleted"  # As somebody wanted before the store was lost.
    FREED = "freed"  # It was never in the catalog and never held a message.
    SET_ASIDE = "set aside"


def fate_of(held: Held, *, is_known: bool, is_being_made: bool, is_being_deleted: bool) -> Fate:
    """The first that applies; setting aside is what is left when nothing else is certain."""
    if is_known:
        return Fate.RESTORED if held.is_aside else Fate.SERVED
    if is_being_made:
        return Fate.BEING_MADE
    if is_being_deleted:
        return Fate.DELETED
    if not held.is_published and not held.is_used and not held.is_aside:
        return Fate.FREED
    return Fate.SET_ASIDE


class Orphan(NamedTuple):
    """An entity that the catalog does not know, with the stores of its fragments."""

    entity: int  # The number of its first fragment.
    path: str
    kind: str
    parts: dict[int, int]  # The store of each fragment's number.

    @property
    def title(self) -> str:
        """How people speak of it."""
        return f"'{self.path}'" if self.path else f"entity {self.entity}, whose name is not known"


class Unreadable(NamedTuple):
    """A row of the catalog that cannot be understood; it stays as it is."""

    row: EntityRow
    reason: str


class Quarantine:
    """What one namespace has set aside."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._aside: dict[int, tuple[int, Held]] = {}  # By number: the store, and what it says.
        self.unreadable: dict[str, Unreadable] = {}  # By lower-case path.
        self.being_made: set[int] = set()
        self.being_deleted: dict[int, int] = {}  # Numbers whose stores have not been told yet, and the stores.

    # What a store holds

    def sort_out(self, index: int, held: Iterable[Held]) -> None:
        """A store was opened: set aside what nobody knows, and finish what was ordered."""
        store = self._namespace.stores[index]
        for number in [number for number, (where, _) in self._aside.items() if where == index]:
            del self._aside[number]
        aside, restored = [], []
        for each in held:
            fate = fate_of(
                each,
                is_known=self._namespace.is_placed(each.entity, index),
                is_being_made=each.entity in self.being_made,
                is_being_deleted=self.being_deleted.get(each.entity) == index,
            )
            if fate is Fate.RESTORED:
                restored.append(each.entity)
            elif fate is Fate.DELETED:
                self._namespace.finish_deletion(index, each.entity)
            elif fate is Fate.FREED:
                store.submit(Drop(queue=each.entity * 4))
            elif fate is Fate.SET_ASIDE:
                self._aside[each.entity] = (index, each)
                aside.append(each)
        for fragment in [number for number, where in self.being_deleted.items() if where == index]:
            if fragment not in {each.entity for each in held}:
                self._namespace.finish_deletion(index, fragment)
        if restored:
            store.submit(SetAside(queue=0, entities=restored, aside=False))
        if aside:
            store.submit(SetAside(queue=0, entities=[each.entity for each in aside]))
        for each in aside:
            _log.error(
                "entity.set_aside",
                "store {store} holds '{entity}' (number {number}), which the catalog does not know: it is set aside;"
                " `twinbus store orphans` lists it",
                store=index,
                entity=each.path or "?",
                number=each.entity,
            )

    # Looking

    def orphans(self) -> list[Orphan]:
        """All that is set aside; the fragments of a partitioned entity are one."""
        found: dict[int, Orphan] = {}
        for number, (index, held) in sorted(self._aside.items()):
            first = number - held.fragment
            known = found.setdefault(first, Orphan(first, held.path, held.kind, {}))
            known.parts[number] = index
        return sorted(found.values(), key=lambda orphan: (orphan.path, orphan.entity))

    async def look_again(self, entity: int | None = None) -> list[Orphan]:
        """What is set aside now, all or one: another gateway may have taken some of it up, or dropped it."""

        def chosen() -> list[Orphan]:
            return [orphan for orphan in self.orphans() if entity in (None, orphan.entity)]

        await self._namespace.look_again()
        for orphan in chosen():
            await self.remembered(orphan)
        return chosen()

    async def orphan(self, entity: int) -> Orphan:
        """The one of that number."""
        for orphan in await self.look_again(entity):
            return orphan
        raise BusError(Fault.ENTITY_NOT_FOUND, f"No entity with the number {entity} is set aside.")

    async def remembered(self, orphan: Orphan) -> list[Remembered]:
        """What its stores know of it, fragment by fragment; those in reach. What they do not hold is forgotten."""
        stores = self._namespace.stores
        answers = await call_all(
            (stores[index], Remember(queue=0, entities=[number])) for number, index in orphan.parts.items()
        )
        for answer in answers:
            if isinstance(answer, Remember) and not answer.result:
                self.forget(answer.entities)
        return [each for answer in answers if isinstance(answer, Remember) for each in answer.result]

    def forget(self, numbers: Iterable[int]) -> None:
        """These are set aside no longer."""
        for number in numbers:
            self._aside.pop(number, None)

    async def look(self, orphan: Orphan, number: int, sub_queue: int, start: int, limit: int) -> list[Delivered]:
        """Messages of one fragment's queue or sub-queue, from a sequence number on, whatever their state."""
        if number not in orphan.parts:
            raise BusError(Fault.ENTITY_NOT_FOUND, f"{orphan.title} has no part with the number {number}.")
        store = self._namespace.stores[orphan.parts[number]]
        asked = Peek(queue=number * 4 + sub_queue, from_sequence_number=start, limit=limit)
        return (await store.call(asked)).result

    # Taking up again

    async def adopt(self, orphan: Orphan, name: str | None = None, forward_to: str | None = None) -> str:
        """Make it an entity of the namespace again, with all that it holds; under another name it is a queue.

        With `forward_to`, its messages and dead letters then move to that entity by themselves, deferred ones too.
        """
        remembered = await self.remembered(orphan)
        if forward_to is not None:
            forward_to = _fitting(orphan, remembered, self._namespace.entity(forward_to))
        row = _row(orphan, remembered, name, forward_to)
        missing = _missing(row, orphan)
        if missing:
            raise BusError(
                Fault.STORE_UNAVAILABLE,
                f"{orphan.title} has parts that are not here: numbers {missing}. Bring their stores up first.",
                definite=True,
            )
        await self._namespace.take_up(row, orphan.parts, undefer=forward_to is not None)
        _log.warning("entity.adopted", "'{entity}' is an entity of the namespace again", entity=row.name)
        return row.name

    async def drop(self, orphan: Orphan, confirmed: str) -> None:
        """Give up all that it holds, for good."""
        if confirmed != (orphan.path or str(orphan.entity)):
            raise BusError(
                Fault.ARGUMENT,
                f"Dropping {orphan.title} deletes all its messages: confirm it with its name,"
                f" '{orphan.path or orphan.entity}'.",
            )
        stores = self._namespace.stores
        answers = await call_all(
            (stores[index], Drop(queue=number * 4, only_aside=True)) for number, index in orphan.parts.items()
        )
        for answer, number in zip(answers, list(orphan.parts), strict=True):
            if isinstance(answer, BusError) and answer.fault not in (Fault.ENTITY_DELETED, Fault.ENTITY_NOT_FOUND):
                raise answer
            self.forget([number])
        _log.warning("entity.given_up", "'{entity}', which was set aside, was dropped by order", entity=orphan.path)


def _row(orphan: Orphan, remembered: Sequence[Remembered], name: str | None, forward_to: str | None) -> EntityRow:
    """The catalog's row that an entity had, as far as its stores know, or one of a queue with another name."""
    if not remembered:
        raise BusError(Fault.STORE_UNAVAILABLE, f"The stores of {orphan.title} do not answer.", definite=True)
    known = next((each for each in remembered if each.document is not None), remembered[0])
    places = [orphan.parts[number] for number in sorted(orphan.parts)]
    if name is None and forward_to is None and known.document is not None:
        return EntityRow(orphan.entity, known.path, known.kind, places[0], known.document)
    if name is None and forward_to is None and known.kind != "queue":
        raise BusError(
            Fault.NOT_ALLOWED,
            f"How {orphan.title}, a {known.kind}, was described is not known: take it up as a queue of another name.",
        )
    description = _as_queue(known, name or known.path, len(places) > 1)
    if forward_to is not None:
        # On their way messages of sessions are forwarded in the order of their numbers, which is each session's, too.
        description = replace(
            description, requires_session=False, forward_to=forward_to, forward_dead_letters_to=forward_to
        )
    document = to_document(description)
    if len(places) > 1:
        document["fragments"] = places
    return EntityRow(orphan.entity, description.name, "queue", places[0], json.dumps(document))


def _fitting(orphan: Orphan, remembered: Sequence[Remembered], target: AnyEntity) -> str:
    """The path of an entity to which messages are to move; refused if it is none for them."""
    if not isinstance(target, Queue | Topic):
        raise BusError(
            Fault.ARGUMENT, f"'{target.path}' is a subscription: messages can be moved to a queue or a topic."
        )
    has_sessions = any(each.settings.requires_session for each in remembered)
    if isinstance(target, Queue) and has_sessions and not target.requires_session:
        raise BusError(
            Fault.NOT_ALLOWED,
            f"The messages of {orphan.title} belong to sessions, and '{target.path}' has none: several receivers could"
            " work on one session at a time. Move them to a queue that requires sessions, to a topic, or take it up.",
        )
    if isinstance(target, Queue) and target.requires_session and not has_sessions:
        raise BusError(
            Fault.NOT_ALLOWED,
            f"'{target.path}' takes messages with a SessionId only, and {orphan.title} has no sessions. Move them to a"
            " queue without sessions, or take it up.",
        )
    return target.path


def _as_queue(known: Remembered, name: str, partitioned: bool) -> QueueDescription:
    """A queue with the settings of an entity of any kind."""
    if known.document is not None and known.kind == "queue":
        document = json.loads(known.document)
        document.pop("fragments", None)
        return replace(from_document(document), name=name, forward_to=None, forward_dead_letters_to=None)
    return _of_settings(known.settings, name, partitioned, _ttl_ms(known))


def _ttl_ms(known: Remembered) -> int | None:
    if known.document is None:
        return None
    document = json.loads(known.document)
    document.pop("fragments", None)
    document.pop("rules", None)
    read = topic_from_document if known.kind == "topic" else subscription_from_document
    return int(read(document).default_ttl_ms)


def _of_settings(settings: QueueSettings, name: str, partitioned: bool, ttl_ms: int | None) -> QueueDescription:
    made = QueueDescription(
        name=name,
        lock_duration_ms=settings.lock_duration_ms,
        max_delivery_count=settings.max_delivery_count,
        dead_letter_on_expiration=settings.dead_letter_on_expiry,
        requires_session=settings.requires_session,
        max_size_mb=max(settings.max_size_bytes // MEGABYTE, 1),
        partitioned=partitioned,
    )
    if settings.duplicate_window_ms:
        made = replace(made, requires_duplicate_detection=True, duplicate_window_ms=settings.duplicate_window_ms)
    return made if ttl_ms is None else replace(made, default_ttl_ms=ttl_ms)


def _missing(row: EntityRow, orphan: Orphan) -> list[int]:
    """Numbers that the row places on stores and that are not set aside there."""
    places = placed(row)
    return [number for number, index in places.items() if orphan.parts.get(number) != index]


def placed(row: EntityRow) -> dict[int, int]:
    """On which store each number of a row's entity lies, as far as its document can be read."""
    try:
        fragments = json.loads(row.document).get("fragments", [row.store])
        return {row.id + place: int(index) for place, index in enumerate(fragments)}
    except (ValueError, AttributeError, TypeError):
        return {row.id: row.store}
