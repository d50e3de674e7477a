"""A namespace that several gateways change: what the others did to its entities and policies is taken over.

The catalog says what changed and waits for the others; what the changes mean is told here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from twinbus.entities.entity import AnyEntity
from twinbus.entities.namespace import Namespace
from twinbus.entities.policies import Change, Decide
from twinbus.entities.ports import CatalogPort
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.model import limits
from twinbus.model.address import SubQueue
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.policies import Decision
from twinbus.model.security import AuthorizationRule
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.description import RuleDescription
from twinbus.store.catalog import EntityRow
from twinbus.store.commands import Drop, Hints, QueueSettings
from twinbus.store.quarantine import Held


class CatalogChanges(NamedTuple):
    """What other gateways made of the catalog."""

    meta: dict[str, str]
    rows: list[EntityRow]  # Those that are new or changed.
    ids: set[int]  # Of all entities that exist.


class SharedCatalogPort(CatalogPort, Protocol):
    """A catalog that others change too."""

    async def spread(self) -> None:
        """Wait until the other gateways have taken over what was changed here."""
        ...

    async def refresh(self) -> None:
        """Take over what the catalog holds now."""
        ...

    async def unmade(self, held: list[list[Held]]) -> list[list[Held]]:
        """Without what some gateway is just making, the entities that each store holds."""
        ...

    async def dropping(self) -> dict[int, int]:
        """What was removed and is perhaps still in its store."""
        ...

    async def share_use(self, used: Mapping[int, int]) -> dict[int, int]:
        """Tell when entities were last used here; when they were last used through any gateway."""
        ...


class SharedNamespace(Namespace):
    """A namespace on a catalog that others change too. A change is answered when all gateways know of it."""

    _catalog: SharedCatalogPort
    is_shared = True

    def __init__(self, *wiring: Any) -> None:
        super().__init__(*wiring)
        self._returned: dict[int, Sequence[Held]] = {}  # By store: what it held, until that was sorted out.

    # What the others did

    def hinted(self, hints: Hints) -> None:
        """A commit, here or through another gateway, may have made something possible."""
        super().hinted(hints)
        # A queue of which no session is named was found changed by a poll, or had too many of them to be named.
        for number in hints.ready - hints.sessions.keys():
            if feed := self._feed(number):
                feed.wake_any_session()

    def take_over(self, changes: CatalogChanges) -> None:
        """Make memory as the catalog is: links of what is gone are told, and changed rights hold at once."""
        gone = [entity for entity in self.entities() if entity.id not in changes.ids]
        for entity in sorted(gone, key=lambda entity: not isinstance(entity, Subscription)):
            if isinstance(entity, Topic):
                entity.end()
            if isinstance(entity, Queue | Topic | Subscription):
                self._hide(entity)
        self.hybrids.keep_only(changes.ids)
        for broken in [each for each in self.quarantine.unreadable.values() if each.row.id not in changes.ids]:
            self._forget_unreadable(broken.row.name)
        changed = []
        for row in sorted(changes.rows):
            restored = self._read(row)
            if restored is None:
                continue
            known = self._by_id.get(row.id)
            if known is None:
                self._adopt(restored)
            else:
                changed.append(known)
                self._replace(known, restored)
        for entity in changed:
            for tell in self.on_changed:
                tell(entity)
        if self.take_policies(changes.meta) or changed:
            for tell_rules in self.on_rules_changed:
                tell_rules()

    def _replace(self, known: AnyEntity, restored: AnyEntity) -> None:
        known.description = restored.description
        if isinstance(known, Subscription) and isinstance(restored, Subscription):
            known.set_rules(restored.rules)
            known.topic.rules_changed()

    async def look_again(self) -> bool:
        """Somebody asks for what is not known here: another gateway may have made it a moment ago."""
        await self._catalog.refresh()
        return True

    # What is done here, told to the others before it is answered

    async def create_queue(self, description: QueueDescription) -> Queue:
        """Create a queue, on all gateways."""
        queue = await super().create_queue(description)
        await self._catalog.spread()
        return queue

    async def create_topic(self, description: TopicDescription) -> Topic:
        """Create a topic, on all gateways."""
        topic = await super().create_topic(description)
        await self._catalog.spread()
        return topic

    async def create_subscription(
        self, description: SubscriptionDescription, rules: Sequence[RuleDescription] | None = None
    ) -> Subscription:
        """Create a subscription, on all gateways."""
        subscription = await super().create_subscription(description, rules)
        await self._catalog.spread()
        return subscription

    async def update_queue(self, description: QueueDescription) -> Queue:
        """Change a queue, on all gateways."""
        queue = await super().update_queue(description)
        await self._catalog.spread()
        return queue

    async def update_topic(self, description: TopicDescription) -> Topic:
        """Change a topic, on all gateways."""
        topic = await super().update_topic(description)
        await self._catalog.spread()
        return topic

    async def update_subscription(self, description: SubscriptionDescription) -> Subscription:
        """Change a subscription, on all gateways."""
        subscription = await super().update_subscription(description)
        await self._catalog.spread()
        return subscription

    async def put_rule(
        self, subscription: Subscription, rule: RuleDescription, *, must_exist: bool = False
    ) -> RuleDescription:
        """Add or replace a rule; it holds for the next message through any gateway."""
        placed = await super().put_rule(subscription, rule, must_exist=must_exist)
        await self._catalog.spread()
        return placed

    async def remove_rule(self, subscription: Subscription, name: str) -> None:
        """Take a rule away, on all gateways."""
        await super().remove_rule(subscription, name)
        await self._catalog.spread()

    async def delete_entity(self, path: str) -> None:
        """Remove an entity, on all gateways."""
        await super().delete_entity(path)
        await self._catalog.spread()

    async def set_rules(self, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the namespace's policies, on all gateways."""
        await super().set_rules(rules)
        await self._catalog.spread()

    async def change_policies(self, change: Change) -> None:
        """Change the namespace's policies, on all gateways."""
        await super().change_policies(change)
        await self._catalog.spread()

    async def follow_settings(self, decide: Decide) -> Decision:
        """Make the namespace's policies what the settings say, on all gateways."""
        decision = await super().follow_settings(decide)
        await self._catalog.spread()
        return decision

    # What must not be decided by one alone

    async def _make(self, entity: Queue | Topic | Subscription, settings: QueueSettings) -> None:
        try:
            await super()._make(entity, settings)
        except BusError as error:
            if error.fault is Fault.ENTITY_EXISTS:  # Another gateway was quicker with the name.
                for fragment in entity.fragments:
                    fragment.store.submit(Drop(queue=fragment.number(SubQueue.MAIN)))
            raise

    def store_returned(self, index: int, held: Sequence[Held]) -> None:
        """What this gateway does not know, another may be making or deleting: `sort_out_strangers` finds out."""
        deleted = self.quarantine.being_deleted
        mine = [each for each in held if each.is_aside or each.entity in deleted or self.is_placed(each.entity, index)]
        if len(mine) < len(held):
            self._returned[index] = held
        super().store_returned(index, mine)

    async def sort_out_strangers(self) -> None:
        """Set aside what a store that has returned holds, that nobody is making or deleting, and the catalog has not.

        In this order: what a store held before, and nobody was making then, must be in the catalog now.
        """
        for index, held in list(self._returned.items()):
            [made] = await self._catalog.unmade([list(held)])
            deleted = await self._catalog.dropping()
            await self._catalog.refresh()
            if self._returned.get(index) is held:
                del self._returned[index]
                self.quarantine.sort_out(index, [each for each in made if each.entity not in deleted])

    async def take_up(self, row: EntityRow, parts: Mapping[int, int], *, undefer: bool = False) -> None:
        """Make an entity of what stores hold, on all gateways."""
        await super().take_up(row, parts, undefer=undefer)
        await self._catalog.spread()

    async def delete_idle(self) -> None:
        """Remove what AutoDeleteOnIdle has passed for on all gateways."""
        now_ms = self.clock.now_ms()
        await self.sort_out_strangers()
        await self.forget_deleted()
        mortal = [e for e in self.entities() if e.description.auto_delete_on_idle_ms < limits.UNLIMITED_MS]
        if not mortal:
            return
        here = {
            entity.id: now_ms if self._is_linked(entity) else max(entity.accessed_at_ms, self.started_at_ms)
            for entity in mortal
        }
        anywhere = await self._catalog.share_use(here)
        for entity in mortal:
            entity.accessed_at_ms = max(entity.accessed_at_ms, anywhere.get(entity.id, now_ms))
        try:
            await super().delete_idle()
        except BusError as error:
            if error.fault is not Fault.ENTITY_NOT_FOUND:  # Another gateway was quicker.
                raise
