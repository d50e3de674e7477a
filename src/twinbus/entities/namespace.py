"""Changes of the namespace: entities and their rules made, updated and removed, durable before they are visible.

Looking things up, and waking whoever waits, is `registry`'s part; policies are `policies`' part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from twinbus.entities import everywhere
from twinbus.entities.chains import with_destinations
from twinbus.entities.entity import AnyEntity
from twinbus.entities.forwarding import Forwarding
from twinbus.entities.fragments import call_all
from twinbus.entities.hybrid import KIND as HYBRID
from twinbus.entities.hybrid import HybridConnections
from twinbus.entities.making import Fragments, Maker, row_of
from twinbus.entities.placing import Loads, Places, places_for_new
from twinbus.entities.policies import Guarded
from twinbus.entities.ports import CatalogPort, RecordReader, StorePort
from twinbus.entities.quarantine import Quarantine, Unreadable
from twinbus.entities.queue import Queue, settings_of
from twinbus.entities.registry import SUBSCRIPTIONS
from twinbus.entities.replaced import make_again, settings_for
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.model import limits
from twinbus.model.clock import Clock
from twinbus.model.entity import QueueDescription, check_queue, check_update
from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.model.topic import (
    RULES_MAX,
    SUBSCRIPTIONS_MAX,
    SubscriptionDescription,
    TopicDescription,
    check_subscription,
    check_subscription_update,
    check_topic,
    check_topic_update,
)
from twinbus.rules.description import RuleDescription, default_rule
from twinbus.rules.matching import CompiledRule, compile_rule
from twinbus.rules.view import no_ids
from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Drop, EntityName, Introduce, QueueSettings
from twinbus.store.quarantine import Held, SetAside, Witness

_log = EventLog(__name__)

CREATED_KEY = "created-at-ms"


class Namespace(Guarded):
    """A namespace that can be administered."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        stores: Sequence[StorePort],
        catalog: CatalogPort,
        reader: RecordReader,
        new_id: Callable[[], UUID] = no_ids,
    ) -> None:
        super().__init__(name, clock, stores, catalog)
        self.hybrids = HybridConnections(catalog, clock, len(stores), self._names)
        self.reader = reader
        self._maker = Maker(stores, reader, clock, new_id)
        self.hybrids.on_deleted.append(self.forget_hybrid)
        self.forwarding = Forwarding(self.find, reader, clock)
        self.on_changed.append(self.forwarding.refresh)
        self.on_deleted.append(self.forwarding.end)
        self.quarantine = Quarantine(self)
        self._deleted_late: list[int] = []
        self._witnessing: dict[int, int] = {}  # By store: the change that it is being told of.
        self._loads = Loads(len(stores))
        self._reserved: dict[str, Places] = {}  # Names whose creation or deletion is under way, and their stores.

    # Starting

    def load(
        self, meta: dict[str, str], rows: Iterable[EntityRow], being_deleted: Mapping[int, int] | None = None
    ) -> None:
        """Take over what the catalog holds, at start; `being_deleted` has what stores were not told to drop yet."""
        self.quarantine.being_deleted.update(being_deleted or {})
        self.take_policies(meta)
        self.created_at_ms = int(meta.get(CREATED_KEY, self.started_at_ms))
        # Topics come before their subscriptions, because a number is given out once and they came first.
        for row in sorted(rows):
            if (read := self._read(row)) is not None:
                self._adopt(read)

    def _read(self, row: EntityRow) -> Queue | Topic | Subscription | None:
        """The entity of a row. One that cannot be read stays as it is, and so does what its stores hold."""
        try:
            if row.problem:
                raise BusError(Fault.INTERNAL, row.problem)
            self._forget_unreadable(row.name)
            if row.kind == HYBRID:
                self.hybrids.adopt(row)
                return None
            return self._maker.restored(row, self.topic)
        except BusError as error:
            reason = error.text
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = f"The catalog's row cannot be read: {type(error).__name__}: {error}"
        self.quarantine.unreadable[row.name.lower()] = Unreadable(row, reason)
        self.unavailable[row.name.lower()] = reason
        _log.error(
            "catalog.row.unreadable",
            "the catalog's row of '{entity}' cannot be read, so that the entity is not available: {error}",
            entity=row.name,
            error=reason,
        )
        return None

    def _forget_unreadable(self, name: str) -> None:
        self.quarantine.unreadable.pop(name.lower(), None)
        self.unavailable.pop(name.lower(), None)

    async def keep_creation_date(self) -> None:
        """Remember when the namespace was created, at its first start."""
        await self._catalog.set_meta(CREATED_KEY, str(self.created_at_ms))

    def _adopt(self, entity: Queue | Topic | Subscription) -> None:
        self._by_id.update((fragment.entity, entity) for fragment in entity.fragments)
        self.quarantine.forget(fragment.entity for fragment in entity.fragments)
        self._loads.add(entity.places)
        if isinstance(entity, Subscription):
            entity.topic.adopt(entity)
        else:
            self._entities[entity.path.lower()] = entity
        if isinstance(entity, Topic):
            entity.begin()
        else:
            self.forwarding.refresh(entity)

    def store_returned(self, index: int, held: Sequence[Held]) -> None:
        """A store takes commands again; what could not be forwarded to it goes on."""
        self.sort_out(index, held)
        super().store_returned(index, held)
        self.forwarding.retry_all()

    def sort_out(self, index: int, held: Sequence[Held]) -> None:
        """A store was opened: make what an operator said may be missing, set aside what the catalog does not know."""
        make_again(self.entities(), index, held)
        self.quarantine.sort_out(index, held)
        self._witness(index)

    def finish_deletion(self, index: int, number: int) -> None:
        """Have a store drop what was deleted while it was not there."""

        def told(command: Drop) -> None:
            gone = command.error is None or command.error.fault in (Fault.ENTITY_DELETED, Fault.ENTITY_NOT_FOUND)
            if gone:
                self.quarantine.being_deleted.pop(number, None)
                self._deleted_late.append(number)

        self.stores[index].submit(Drop(queue=number * 4, done=told))

    async def forget_deleted(self) -> None:
        """The catalog need not remember any longer what was dropped late; the broker calls this now and then."""
        if self._deleted_late:
            late = list(self._deleted_late)
            await self._catalog.dropped(late)
            self._deleted_late = self._deleted_late[len(late) :]

    def _witness(self, index: int | None = None) -> None:
        """Tell stores how far the catalog is, so that an older one is recognised; one change at a time to each."""
        generation = self._catalog.generation
        for number, store in enumerate(self.stores) if index is None else [(index, self.stores[index])]:
            if number not in self._witnessing and store.is_available:
                self._witnessing[number] = generation
                store.submit(Witness(queue=0, generation=generation, done=partial(self._witnessed, number)))

    def _witnessed(self, index: int, command: Witness) -> None:
        del self._witnessing[index]
        if command.error is None and command.generation < self._catalog.generation:
            self._witness(index)

    async def take_up(self, row: EntityRow, parts: Mapping[int, int], *, undefer: bool = False) -> None:
        """Make an entity of what stores hold under these numbers; with `undefer`, deferred messages become active."""
        if self.find(row.name) is not None or row.name.lower() in self._reserved:
            raise BusError(
                Fault.ENTITY_EXISTS,
                f"There is an entity '{row.name}' now: choose another name, or have the messages moved there.",
            )
        self.hybrids.check_free(row.name)
        entity = self._maker.restored(row, self.topic)
        if isinstance(entity, Queue):
            check_queue(entity.description)
        broken = self.quarantine.unreadable.get(row.name.lower())
        if broken is not None and broken.row.id != row.id:
            await self._catalog.remove(broken.row.id)
        self._hold(row.name.lower(), entity.places)
        try:
            await self._catalog.take_up(row)
            self._forget_unreadable(row.name)
            answers = await call_all(
                (self.stores[index], SetAside(queue=0, entities=[number], aside=False, undefer=undefer))
                for number, index in parts.items()
            )
            self._adopt(entity)
            for answer in answers:
                if isinstance(answer, BusError):
                    raise answer
            await everywhere.configure(entity, settings_for(entity))
            self._introduce_one(entity)
        finally:
            self._release(row.name)

    def _name(self, entity: AnyEntity, fragment: int) -> EntityName:
        """With its description, as the catalog has it."""
        rules = entity.rules if isinstance(entity, Subscription) else ()
        document = row_of(entity, entity.description, rules).document
        return everywhere.name_of(entity, fragment)._replace(document=document)

    def _introduce_one(self, entity: AnyEntity) -> None:
        """Tell its stores how it is described now, and all stores how far the catalog is."""
        for fragment in entity.fragments:
            fragment.store.submit(Introduce(queue=0, names={fragment.entity: self._name(entity, fragment.index)}))
        self._witness()

    def placed_on(self, index: int) -> dict[int, str]:
        """What lies on a store, by number."""
        return {
            fragment.entity: entity.path
            for entity in self.entities()
            for fragment in entity.fragments
            if fragment.store_index == index
        }

    @property
    def is_changing(self) -> bool:
        """Whether an entity is being made or removed, so that catalog and stores disagree about it for a moment."""
        return bool(self._reserved)

    # Making

    async def create_queue(self, description: QueueDescription) -> Queue:
        """Create a queue: durable in its store first, then in the catalog, then visible."""
        check_queue(description)
        description = with_destinations(description, self.find)
        dated = replace(description, created_at_ms=self.clock.now_ms(), updated_at_ms=self.clock.now_ms())
        places = self._reserve(description.name, description.partitioned)
        try:
            queue = self._maker.queue(dated, await self._new_fragments(places))
            await self._make(queue, settings_of(dated))
            return queue
        finally:
            self._release(description.name)

    async def create_topic(self, description: TopicDescription) -> Topic:
        """Create a topic without subscriptions."""
        check_topic(description)
        dated = replace(description, created_at_ms=self.clock.now_ms(), updated_at_ms=self.clock.now_ms())
        places = self._reserve(description.name, description.partitioned)
        try:
            topic = self._maker.topic(dated, await self._new_fragments(places))
            await self._make(topic, topic.settings())
            return topic
        finally:
            self._release(description.name)

    async def create_subscription(
        self, description: SubscriptionDescription, rules: Sequence[RuleDescription] | None = None
    ) -> Subscription:
        """Create a subscription on its topic's store; without rules it has the one that takes everything."""
        check_subscription(description)
        topic = self.topic(description.topic)
        if len(topic.subscriptions()) >= SUBSCRIPTIONS_MAX:
            raise BusError(Fault.QUOTA_EXCEEDED, f"A topic has at most {SUBSCRIPTIONS_MAX} subscriptions.")
        now_ms = self.clock.now_ms()
        dated = with_destinations(
            replace(description, topic=topic.path, created_at_ms=now_ms, updated_at_ms=now_ms), self.find
        )
        places = self._reserve(dated.path, topic.is_partitioned, topic.places)
        try:
            subscription = self._maker.subscription(dated, topic, await self._new_fragments(places))
            made = [default_rule(now_ms)] if rules is None else [_dated(rule, now_ms) for rule in rules]
            subscription.set_rules(made)
            await self._make(subscription, subscription.settings())
            return subscription
        finally:
            self._release(dated.path)

    def _reserve(self, path: str, partitioned: bool, places: Places | None = None) -> Places:
        """Keep a name free while it is being made; returns the stores for it, those with the least on them."""
        key = path.lower()
        if self.find(key) is not None or key in self._reserved or key in self.unavailable:
            raise BusError(Fault.ENTITY_EXISTS, f"The messaging entity '{path}' already exists.")
        self.hybrids.check_free(path)
        if len(self._entities) >= limits.ENTITIES_MAX:
            raise BusError(Fault.QUOTA_EXCEEDED, f"A namespace has at most {limits.ENTITIES_MAX} entities.")
        if places is None:
            if partitioned:
                self._check_partitioned_count()
            places = places_for_new(self.stores, self._loads, partitioned)
        self._hold(key, places)
        return places

    def _hold(self, key: str, places: Places) -> None:
        self._reserved[key] = places
        self._loads.add(places)

    def _release(self, path: str) -> None:
        self._loads.take(self._reserved.pop(path.lower()))

    def _names(self) -> list[str]:
        return [*self._entities, *self._reserved]

    def _check_partitioned_count(self) -> None:
        most = limits.PARTITIONED_ENTITIES_MAX
        making = [key for key, places in self._reserved.items() if len(places) > 1 and SUBSCRIPTIONS not in key]
        if sum(entity.is_partitioned for entity in self._entities.values()) + len(making) >= most:
            raise BusError(Fault.QUOTA_EXCEEDED, f"A namespace has at most {most} partitioned entities.")

    async def _new_fragments(self, places: Places) -> Fragments:
        """Places with numbers that are never given out twice, not even after a crash."""
        fragments = self._maker.fragments(await self._catalog.take_ids(len(places)), places)
        self.quarantine.being_made.update(fragment.entity for fragment in fragments)
        return fragments

    async def _make(self, entity: Queue | Topic | Subscription, settings: QueueSettings) -> None:
        try:
            await everywhere.make(entity, settings)
            failpoint("entity.create.before_catalog")
            await self._save(entity, entity.description, entity.rules if isinstance(entity, Subscription) else ())
            failpoint("entity.create.after_catalog")
            self._adopt(entity)
        finally:
            self.quarantine.being_made.difference_update(fragment.entity for fragment in entity.fragments)
        self._introduce_one(entity)

    async def _save(
        self,
        entity: AnyEntity,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        rules: Sequence[RuleDescription] = (),
    ) -> None:
        await self._catalog.put(row_of(entity, description, rules))

    # Changing

    async def update_queue(self, description: QueueDescription) -> Queue:
        """Replace a queue's description; its locks are dropped, as they are volatile."""
        queue = self.queue(description.name)
        check_update(queue.description, description)
        description = with_destinations(description, self.find, queue.description)
        everywhere.check_reachable(queue)
        created = queue.description.created_at_ms
        changed = replace(description, name=queue.name, created_at_ms=created, updated_at_ms=self.clock.now_ms())
        await self._save(queue, changed)
        queue.description = changed
        await self._configure(queue, settings_of(changed))
        return queue

    async def update_topic(self, description: TopicDescription) -> Topic:
        """Replace a topic's description."""
        topic = self.topic(description.name)
        check_topic_update(topic.description, description)
        everywhere.check_reachable(topic)
        created = topic.description.created_at_ms
        changed = replace(description, name=topic.path, created_at_ms=created, updated_at_ms=self.clock.now_ms())
        await self._save(topic, changed)
        topic.description = changed
        await self._configure(topic, topic.settings())
        return topic

    async def update_subscription(self, description: SubscriptionDescription) -> Subscription:
        """Replace a subscription's description; its rules stay."""
        subscription = self.subscription(description.path)
        old = subscription.description
        check_subscription_update(old, description)
        description = with_destinations(description, self.find, old)
        everywhere.check_reachable(subscription)
        dated = replace(description, created_at_ms=old.created_at_ms, updated_at_ms=self.clock.now_ms())
        # In memory first: description and rules share a row, and each change must save what the others made of it.
        subscription.description = replace(dated, topic=old.topic, name=old.name)
        try:
            await self._save(subscription, subscription.description, subscription.rules)
        except BaseException:
            subscription.description = old
            raise
        await self._configure(subscription, subscription.settings())
        return subscription

    def subscription(self, path: str) -> Subscription:
        """The subscription of that address."""
        found = self.entity(path)
        if not isinstance(found, Subscription):
            raise BusError(Fault.ENTITY_NOT_FOUND, f"The messaging entity '{path}' could not be found.")
        return found

    async def _configure(self, entity: AnyEntity, settings: QueueSettings) -> None:
        await everywhere.configure(entity, settings)
        self._introduce_one(entity)
        for tell in self.on_changed:
            tell(entity)
        for tell_rules in self.on_rules_changed:
            tell_rules()

    async def put_rule(
        self, subscription: Subscription, rule: RuleDescription, *, must_exist: bool = False
    ) -> RuleDescription:
        """Add a rule, or replace one; it holds for the next message."""
        if must_exist:
            created_at_ms = subscription.rule(rule.name).created_at_ms
        elif subscription.has_rule(rule.name):
            raise BusError(Fault.ENTITY_EXISTS, f"The rule '{rule.name}' already exists.")
        elif len(subscription.rules) >= RULES_MAX:
            raise BusError(Fault.QUOTA_EXCEEDED, f"A subscription has at most {RULES_MAX} rules.")
        else:
            created_at_ms = self.clock.now_ms()
        placed = replace(rule, created_at_ms=created_at_ms)
        await self._change_rule(subscription, rule.name, compile_rule(placed))
        return placed

    async def remove_rule(self, subscription: Subscription, name: str) -> None:
        """Take a rule away; without any, the subscription gets nothing."""
        subscription.rule(name)
        await self._change_rule(subscription, name, None)

    async def _change_rule(self, subscription: Subscription, name: str, rule: CompiledRule | None) -> None:
        """In memory first, so that changes at the same time do not save each other away; undone if it fails."""
        everywhere.check_reachable(subscription)
        before = subscription.place_rule(name, rule)
        try:
            await self._save(subscription, subscription.description, subscription.rules)
        except BaseException:
            subscription.place_rule(name, before)
            raise
        self._introduce_one(subscription)

    # Removing

    async def delete_entity(self, path: str) -> None:
        """Remove an entity and everything in it, a topic with its subscriptions: invisible, forgotten, then freed."""
        entity = self.entity(path)
        everywhere.check_reachable(entity)
        gone: list[Queue | Topic | Subscription] = [entity]
        if isinstance(entity, Topic):
            if any(key.startswith(f"{entity.path.lower()}/") for key in self._reserved):
                raise BusError(Fault.SERVER_BUSY, f"A subscription of '{entity.path}' is being made or removed; retry.")
            gone = [*entity.subscriptions(), entity]
            entity.end()
        self._hold(entity.path.lower(), entity.places)
        problem: BusError | None = None
        try:
            for part in gone:
                self._hide(part)
            for part in gone:
                problem = await self._remove(part) or problem
            self._witness()
            if problem is not None:
                raise problem
        finally:
            self._release(entity.path)

    async def _remove(self, entity: AnyEntity) -> BusError | None:
        """Forgotten by the catalog, which remembers that its stores are to drop it until they have; why one has not."""
        parts = {fragment.entity: fragment.store_index for fragment in entity.fragments}
        await self._catalog.remove(entity.id, parts)
        failpoint("entity.delete.before_stores")
        problem = await everywhere.drop(entity)
        failpoint("entity.delete.after_stores")
        if problem is not None:
            self.quarantine.being_deleted.update(parts)
            return problem
        try:
            await self._catalog.dropped(parts)
        except BusError:
            self._deleted_late.extend(parts)  # It is gone; that the catalog need not remember it is told later.
        return None

    async def delete_all(self) -> None:
        """Remove every entity. One that cannot be removed now is an error, and the others are gone."""
        problem: BusError | None = None
        everything: list[Queue | Topic] = [*self.queues(), *self.topics()]
        for entity in everything:
            try:
                if self.find(entity.path) is entity:
                    await self.delete_entity(entity.path)
            except BusError as error:
                problem = error
        for hybrid in self.hybrids.all():
            await self.hybrids.delete(hybrid.path)
        if problem is not None:
            raise problem

    def _hide(self, entity: Queue | Topic | Subscription) -> None:
        for fragment in entity.fragments:
            del self._by_id[fragment.entity]
        self._loads.take(entity.places)
        if isinstance(entity, Subscription):
            entity.topic.forget(entity)
        else:
            del self._entities[entity.path.lower()]
        for tell in self.on_deleted:
            tell(entity)

    async def delete_idle(self) -> None:
        """Remove what AutoDeleteOnIdle has passed for without a link, an operation or a change."""
        await self.forget_deleted()
        now_ms = self.clock.now_ms()
        for entity in self.entities():
            last_ms = max(entity.accessed_at_ms, entity.description.updated_at_ms, self.started_at_ms)
            if not self._is_linked(entity) and now_ms - last_ms >= entity.description.auto_delete_on_idle_ms:
                await self.delete_entity(entity.path)

    def _is_linked(self, entity: AnyEntity) -> bool:
        return entity.links > 0 or (isinstance(entity, Topic) and any(s.links for s in entity.subscriptions()))


def _dated(rule: RuleDescription, now_ms: int) -> RuleDescription:
    return replace(rule, created_at_ms=now_ms)
