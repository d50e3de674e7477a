"""The namespace: which entities exist, on which store each lives, and which policies guard them.

Keeps the catalog in memory and durable through a port; doors (gateway, admin) look entities up here and are told of
changes. Messages themselves pass through `Queue` and `Mailbox`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from twinbus.entities.feed import Feed
from twinbus.entities.mailbox import Mailbox
from twinbus.entities.ports import CatalogPort, StorePort
from twinbus.entities.queue import Queue, settings_of
from twinbus.model import limits
from twinbus.model.clock import Clock
from twinbus.model.entity import QueueDescription, check_queue, check_rules, check_update, from_document, to_document
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Origin
from twinbus.model.security import AuthorizationRule
from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Configure, Create, Drop, DropLocks, Hints, Note, Record

RULES_KEY = "authorization-rules"
NEXT_ID_KEY = "next-entity-id"
CREATED_KEY = "created-at-ms"


class Namespace:
    """All entities of one namespace."""

    def __init__(self, name: str, clock: Clock, stores: Sequence[StorePort], catalog: CatalogPort) -> None:
        self.name = name
        self.clock = clock
        self.stores = stores
        self.rules: tuple[AuthorizationRule, ...] = ()
        self.started_at_ms = clock.now_ms()
        self.created_at_ms = self.started_at_ms
        self._catalog = catalog
        self._queues: dict[str, Queue] = {}
        self._by_id: dict[int, Queue] = {}
        self._reserved: dict[str, int] = {}  # Names whose creation or deletion is under way, and their stores.
        self._next_id = 1
        self._notes: list[tuple[int, Note]] = []
        self.on_changed: list[Callable[[Queue], None]] = []  # The description was updated.
        self.on_deleted: list[Callable[[Queue], None]] = []
        self.on_rules_changed: list[Callable[[], None]] = []

    def load(self, meta: dict[str, str], rows: Iterable[EntityRow]) -> None:
        """Take over what the catalog holds, at start."""
        self._next_id = int(meta.get(NEXT_ID_KEY, "1"))
        self.rules = tuple(AuthorizationRule.from_document(d) for d in json.loads(meta.get(RULES_KEY, "[]")))
        for row in rows:
            queue = Queue(row.id, from_document(json.loads(row.document)), row.store, self.stores[row.store])
            self._adopt(queue)

        self.created_at_ms = int(meta.get(CREATED_KEY, self.started_at_ms))

    async def keep_creation_date(self) -> None:
        """Remember when the namespace was created, at its first start."""
        await self._catalog.set_meta(CREATED_KEY, str(self.created_at_ms))

    def _adopt(self, queue: Queue) -> None:
        self._queues[queue.name.lower()] = queue
        self._by_id[queue.id] = queue

    # Looking up

    def find(self, path: str) -> Queue | None:
        """The entity of that name, whatever its case."""
        return self._queues.get(path.lower())

    def queue(self, path: str) -> Queue:
        """The entity of that name, or the fault that it does not exist."""
        found = self.find(path)
        if found is None:
            raise BusError(Fault.ENTITY_NOT_FOUND, f"The messaging entity '{path}' could not be found.")
        return found

    def queues(self) -> list[Queue]:
        """All queues, by name."""
        return [self._queues[key] for key in sorted(self._queues)]

    def rules_for(self, path: str) -> list[AuthorizationRule]:
        """The policies that can grant something on a path: the namespace's and the entity's own."""
        entity = self.find(path)
        return [*self.rules, *(entity.description.authorization_rules if entity is not None else ())]

    # Changing

    async def create_queue(self, description: QueueDescription) -> Queue:
        """Create a queue: durable in its store first, then in the catalog, then visible."""
        check_queue(description)
        key = description.name.lower()
        self._check_free(key, description.name)
        if len(self._queues) >= limits.ENTITIES_MAX:
            raise BusError(Fault.QUOTA_EXCEEDED, f"A namespace has at most {limits.ENTITIES_MAX} entities.")
        store = self._reserved[key] = self._store_for_new()
        try:
            now = self.clock.now_ms()
            entity, self._next_id = self._next_id, self._next_id + 1
            await self._catalog.set_meta(NEXT_ID_KEY, str(self._next_id))  # Numbers are never used twice.
            queue = Queue(entity, replace(description, created_at_ms=now, updated_at_ms=now), store, self.stores[store])
            await queue.store.call(Create(queue=queue.number(), settings=settings_of(description)))
            await self._save(queue, queue.description)
            self._adopt(queue)
            return queue
        finally:
            del self._reserved[key]

    def _check_free(self, key: str, name: str) -> None:
        if key in self._queues or key in self._reserved:
            raise BusError(Fault.ENTITY_EXISTS, f"The messaging entity '{name}' already exists.")

    def _store_for_new(self) -> int:
        loads = [0] * len(self.stores)
        for store in [*(queue.store_index for queue in self._queues.values()), *self._reserved.values()]:
            loads[store] += 1
        return loads.index(min(loads))

    async def _save(self, queue: Queue, description: QueueDescription) -> None:
        document = json.dumps(to_document(description))
        await self._catalog.put(EntityRow(queue.id, queue.name, "queue", queue.store_index, document))

    async def update_queue(self, description: QueueDescription) -> Queue:
        """Replace a queue's description; its locks are dropped, as they are volatile."""
        queue = self.queue(description.name)
        check_update(queue.description, description)
        changed = replace(
            description,
            name=queue.name,
            created_at_ms=queue.description.created_at_ms,
            updated_at_ms=self.clock.now_ms(),
        )
        await self._save(queue, changed)
        queue.description = changed
        await queue.store.call(Configure(queue=queue.number(), settings=settings_of(description)))
        for tell in self.on_changed:
            tell(queue)
        for tell_rules in self.on_rules_changed:
            tell_rules()
        return queue

    async def delete_queue(self, path: str) -> None:
        """Remove a queue and everything in it: invisible first, then forgotten, then freed."""
        queue = self.queue(path)
        key = queue.name.lower()
        self._reserved[key] = queue.store_index
        del self._queues[key]
        del self._by_id[queue.id]
        try:
            for tell in self.on_deleted:
                tell(queue)
            await self._catalog.remove(queue.id)
            await queue.store.call(Drop(queue=queue.number()))
        finally:
            del self._reserved[key]

    async def delete_idle(self) -> None:
        """Remove the queues whose AutoDeleteOnIdle has passed without a link, an operation or a change."""
        now_ms = self.clock.now_ms()
        for queue in self.queues():
            last_ms = max(queue.accessed_at_ms, queue.description.updated_at_ms, self.started_at_ms)
            if not queue.links and now_ms - last_ms >= queue.description.auto_delete_on_idle_ms:
                await self.delete_queue(queue.name)

    async def set_rules(self, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the namespace's policies; whoever used a key that is gone loses access at once."""
        check_rules(tuple(rules))
        self.rules = tuple(rules)
        await self._catalog.set_meta(RULES_KEY, json.dumps([rule.to_document() for rule in rules]))
        for tell in self.on_rules_changed:
            tell()

    # What the stores say

    def hinted(self, hints: Hints) -> None:
        """A commit may have made messages or sessions available, or ended session locks: wake who waits."""
        for number in hints.ready:
            if feed := self._feed(number):
                feed.wake()
        for number, sessions in hints.sessions.items():
            if feed := self._feed(number):
                feed.wake_sessions(sessions)
        for number, session, holder in hints.lost_sessions:
            if feed := self._feed(number):
                lost = BusError(Fault.SESSION_LOCK_LOST, f"The lock of session '{session}' has ended.")
                feed.session_lost(session, holder, lost)

    def _feed(self, number: int) -> Feed | None:
        """The feed of a queue that somebody has asked for; hints about others interest nobody."""
        queue = self._by_id.get(number >> 2)
        mailbox = queue.mailboxes.get(number & 3) if queue is not None else None
        return None if mailbox is None else mailbox.feed

    # What changes nothing but counts

    def note(
        self,
        mailbox: Mailbox,
        operation: str,
        outcome: str,
        origin: Origin,
        *,
        message_id: str = "",
        size: int = 0,
        count: int = 1,
        tracking_id: str = "",
    ) -> None:
        """Keep an entry for the journal until the next flush."""
        note = Note(operation, mailbox.number, outcome, message_id, size, count, origin.connection, tracking_id)
        self._notes.append((mailbox.store_index, note))

    def drop_locks(self, owner: int, origin: Origin) -> None:
        """A connection broke off: its message locks and sessions fall, in every store."""
        for store in self.stores:
            store.submit(DropLocks(queue=0, origin=origin, owner=owner))

    def flush_notes(self) -> None:
        """Hand the collected entries to their stores; the broker calls this at least once a second."""
        notes, self._notes = self._notes, []
        for index, store in enumerate(self.stores):
            mine = [note for where, note in notes if where == index]
            if mine:
                store.submit(Record(queue=mine[0].queue, notes=mine))

    def drop_orphans(self, held: Sequence[Sequence[int]]) -> None:
        """Have each store free what the catalog does not know: a deletion or a creation was interrupted."""
        for index, entities in enumerate(held):
            for entity in entities:
                queue = self._by_id.get(entity)
                if queue is None or queue.store_index != index:
                    self.stores[index].submit(Drop(queue=entity * 4))
