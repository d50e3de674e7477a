"""Which entities exist and which policies guard them: doors look things up here and are told of changes.

Keeps the list in memory; `namespace` changes it and makes the changes durable. Messages pass through the entities.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twinbus.entities.entity import AnyEntity
from twinbus.entities.everywhere import name_of
from twinbus.entities.feed import Feed
from twinbus.entities.hybrid import HybridConnection, HybridConnections
from twinbus.entities.mailbox import Mailbox
from twinbus.entities.ports import StorePort
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.model.clock import Clock
from twinbus.model.disturbance import Suffering
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Origin
from twinbus.model.security import AuthorizationRule
from twinbus.store.commands import DropLocks, EntityName, Hints, Introduce, Note, Record
from twinbus.store.quarantine import Held

SUBSCRIPTIONS = "/subscriptions/"
REFUSALS_KEPT = 200
REFUSAL_CHARS_MAX = 500


class Refusal(NamedTuple):
    """Something that was refused, as the log has it."""

    at_ms: int
    code: str
    text: str
    entity: str
    tracking_id: str


class Registry:
    """All entities of one namespace, and what happens to them."""

    hybrids: HybridConnections
    is_shared = False  # Whether other processes change it too.

    def __init__(self, name: str, clock: Clock, stores: Sequence[StorePort]) -> None:
        self.name = name
        self.clock = clock
        self.stores = stores
        self.rules: tuple[AuthorizationRule, ...] = ()
        self.unavailable: dict[str, str] = {}  # Entities whose rows cannot be read, by lower-case name: why.
        self.started_at_ms = clock.now_ms()
        self.created_at_ms = self.started_at_ms
        self._entities: dict[str, Queue | Topic] = {}  # By lower-case name; subscriptions are with their topics.
        self._by_id: dict[int, AnyEntity] = {}  # By each number that an entity has in a store.
        self._notes: list[tuple[int, Note]] = []
        self._introduced: set[int] = set()  # Hybrid connections whose names their stores know.
        self.on_changed: list[Callable[[AnyEntity], None]] = []  # The description was updated.
        self.on_deleted: list[Callable[[AnyEntity], None]] = []
        self.on_rules_changed: list[Callable[[], None]] = []
        self.on_disturbed: list[Callable[[], None]] = []
        self.refusals: deque[Refusal] = deque(maxlen=REFUSALS_KEPT)  # The latest last, for operators to look at.
        self.suffering = Suffering()  # What the doors show to clients, on purpose.

    # Looking up

    def find(self, path: str) -> Queue | Topic | Subscription | None:
        """The entity of that name, whatever its case; `topic/Subscriptions/name` for a subscription."""
        key = path.lower()
        found = self._entities.get(key)
        if found is None and SUBSCRIPTIONS in key:
            topic_name, _, name = key.rpartition(SUBSCRIPTIONS)
            topic = self._entities.get(topic_name)
            return topic.subscription(name) if isinstance(topic, Topic) else None
        return found

    def entity(self, path: str) -> Queue | Topic | Subscription:
        """The entity of that name, or the fault that it does not exist."""
        found = self.find(path)
        if found is None:
            self.check_readable(path)
            raise BusError(Fault.ENTITY_NOT_FOUND, f"The messaging entity '{path}' could not be found.")
        return found

    def check_readable(self, path: str) -> None:
        """Refuse what is there but cannot be read, in a way that clients retry: it is not absent."""
        key = path.lower()
        reason = self.unavailable.get(key) or self.unavailable.get(key.partition(SUBSCRIPTIONS)[0])
        if reason is not None:
            raise BusError(
                Fault.STORE_UNAVAILABLE, f"The messaging entity '{path}' is not available: {reason}", definite=True
            )

    def knows(self, path: str) -> bool:
        """Whether there is such an entity, even if it cannot be read."""
        return self.find(path) is not None or path.lower() in self.unavailable

    def is_placed(self, number: int, index: int) -> bool:
        """Whether an entity, or a fragment of one, of that number lies on that store."""
        known = self._by_id.get(number)
        return known is not None and known.fragments[number - known.id].store_index == index

    def queue(self, path: str) -> Queue:
        """The queue of that name."""
        found = self.entity(path)
        if not isinstance(found, Queue):
            raise BusError(
                Fault.ENTITY_NOT_FOUND, f"The messaging entity '{path}' could not be found among the queues."
            )
        return found

    def topic(self, path: str) -> Topic:
        """The topic of that name."""
        found = self.entity(path)
        if not isinstance(found, Topic):
            raise BusError(
                Fault.ENTITY_NOT_FOUND, f"The messaging entity '{path}' could not be found among the topics."
            )
        return found

    def queues(self) -> list[Queue]:
        """All queues, by name."""
        return [entity for _, entity in sorted(self._entities.items()) if isinstance(entity, Queue)]

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [entity for _, entity in sorted(self._entities.items()) if isinstance(entity, Topic)]

    def entities(self) -> list[AnyEntity]:
        """Everything with a number, subscriptions included."""
        return [entity for number, entity in self._by_id.items() if entity.id == number]

    def entities_by_store(self) -> Counter[int]:
        """How many entities, or fragments of partitioned ones, each store holds."""
        return Counter(fragment.store_index for entity in self.entities() for fragment in entity.fragments)

    async def look_again(self) -> bool:
        """Have a look at what others may have changed; whether a second try makes sense."""
        return False

    def rules_for(self, path: str) -> list[AuthorizationRule]:
        """The policies that can grant something on a path: the namespace's and the entity's own (or its topic's)."""
        entity = self.find(path)
        if isinstance(entity, Subscription):
            entity = entity.topic
        if entity is None and (hybrid := self.hybrids.above(path)) is not None:
            return [*self.rules, *hybrid.description.authorization_rules]
        return [*self.rules, *(entity.description.authorization_rules if entity is not None else ())]

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

    def store_lost(self, index: int, error: BusError) -> None:
        """A store takes no more commands: who waits for it, or holds a session there, is told."""
        for feed in self._feeds_on(index):
            feed.lost(error)

    def store_returned(self, index: int, held: Sequence[Held]) -> None:
        """A store takes commands again: tell it what its entities are called, and wake who still waits."""
        self.introduce(index)
        for feed in self._feeds_on(index):
            feed.returned()

    def _feeds_on(self, index: int) -> list[Feed]:
        mailboxes = [mailbox for entity in self.entities() for mailbox in entity.mailboxes.values()]
        return [feed for mailbox in mailboxes for feed in mailbox.feeds_on(index)]

    def _feed(self, number: int) -> Feed | None:
        """The feed of a queue that somebody has asked for; hints about others interest nobody."""
        entity = self._by_id.get(number >> 2)
        mailbox = entity.mailboxes.get(number & 3) if entity is not None else None
        return None if mailbox is None else mailbox.feed_of(number)

    def remember_refusal(self, code: str, text: str, entity: str, tracking_id: str) -> None:
        """Keep what was refused for a while, to be found by the tracking id that the client was told."""
        short = text[:REFUSAL_CHARS_MAX]
        self.refusals.append(Refusal(self.clock.now_ms(), code, short, entity[:REFUSAL_CHARS_MAX], tracking_id))

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
        number, store_index = mailbox.journaled_at()
        note = Note(operation, number, outcome, message_id, size, count, origin.connection, tracking_id)
        self._notes.append((store_index, note))

    def note_connection(self, operation: str, outcome: str, origin: Origin) -> None:
        """Keep an entry about a connection, which concerns no entity; it is in the first store's journal."""
        if self.stores:
            self._notes.append((0, Note(operation, 0, outcome, connection=origin.connection)))

    def note_relayed(
        self, hybrid: HybridConnection, operation: str, outcome: str, origin: Origin, *, size: int = 0, tracking_id: str
    ) -> None:
        """Keep an entry about a hybrid connection, which is on no store: the one that it was given at its making."""
        if hybrid.id not in self._introduced:
            self._introduced.add(hybrid.id)
            name = EntityName(hybrid.path, "hybrid")
            self.stores[hybrid.store_index].submit(Introduce(queue=0, names={hybrid.id: name}))
        note = Note(operation, hybrid.id * 4, outcome, "", size, 1, origin.connection, tracking_id)
        self._notes.append((hybrid.store_index, note))

    def note_fault(self, name: str, change: str, index: int) -> None:
        """Keep an entry about a fault on purpose, which concerns no entity."""
        self._notes.append((index, Note("fault", 0, f"{name} {change}", "", 0, 1, "", "")))

    def introduce(self, index: int) -> None:
        """Tell a store what its entities are called, in case it was made before anybody asked that."""
        names = {
            fragment.entity: self._name(entity, fragment.index)
            for entity in self.entities()
            for fragment in entity.fragments
            if fragment.store_index == index
        }
        if names:
            self.stores[index].submit(Introduce(queue=0, names=names))

    def _name(self, entity: AnyEntity, fragment: int) -> EntityName:
        """What a store keeps of an entity, so that it can be made again without a catalog."""
        return name_of(entity, fragment)

    def forget_hybrid(self, hybrid: HybridConnection) -> None:
        """A hybrid connection is gone; its name goes when the journal speaks of it no more."""
        self._introduced.discard(hybrid.id)
        self.stores[hybrid.store_index].submit(Introduce(queue=0, gone=[hybrid.id]))

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
