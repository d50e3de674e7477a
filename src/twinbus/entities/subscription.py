"""One subscription of a topic: a queue that only its topic feeds, with the rules that choose what it gets.

Which rules match is decided by the topic, over all its subscriptions at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.entities.entity import MEGABYTE, Entity
from twinbus.entities.fragments import Fragment
from twinbus.entities.ports import StorePort
from twinbus.entities.queue import deliveries_of
from twinbus.model.errors import BusError, Fault
from twinbus.model.topic import SubscriptionDescription
from twinbus.rules.description import RuleDescription
from twinbus.rules.matching import CompiledRule, compile_rule
from twinbus.store.commands import QueueSettings

if TYPE_CHECKING:
    from twinbus.entities.topic import Topic


class Subscription(Entity[SubscriptionDescription]):
    """A subscription that exists."""

    kind = "Subscription"

    # A rule's action may give a copy another session, and the copy stays in its message's fragment.
    sessions_stay = False

    def __init__(
        self,
        entity: int,
        description: SubscriptionDescription,
        topic: Topic,
        store_index: int,
        store: StorePort,
        fragments: tuple[Fragment, ...] | None = None,
    ) -> None:
        super().__init__(entity, description, store_index, store, fragments)
        self.topic = topic
        self._rules: dict[str, CompiledRule] = {}

    @property
    def path(self) -> str:
        return self.description.path

    @property
    def told_ttl_ceiling_ms(self) -> int | None:
        """All copies of a message share its record, which tells the topic's time to live."""
        return self.ttl_ceiling_ms

    @property
    def requires_session(self) -> bool:
        return self.description.requires_session

    @property
    def rules(self) -> list[RuleDescription]:
        """The rules, in the order in which they were made."""
        return [rule.description for rule in self._rules.values()]

    @property
    def compiled_rules(self) -> list[CompiledRule]:
        """The rules, ready for work."""
        return list(self._rules.values())

    def rule(self, name: str) -> RuleDescription:
        """The rule of that name, whatever its case."""
        found = self._rules.get(name.lower())
        if found is None:
            raise BusError(
                Fault.ENTITY_NOT_FOUND, f"The messaging entity '{self.path}/Rules/{name}' could not be found."
            )
        return found.description

    def has_rule(self, name: str) -> bool:
        """Whether there is a rule of that name."""
        return name.lower() in self._rules

    def set_rules(self, rules: list[RuleDescription]) -> None:
        """Give a new subscription its rules; one that breaks a limit or is not in the language is refused."""
        compiled = {rule.name.lower(): compile_rule(rule) for rule in rules}
        if len(compiled) != len(rules):
            raise BusError(Fault.ENTITY_EXISTS, "Two rules of the subscription have the same name.")
        self._rules = compiled

    def place_rule(self, name: str, rule: CompiledRule | None) -> CompiledRule | None:
        """Add, replace or, with None, take away a rule; returns the one that was there."""
        before = self._rules.get(name.lower())
        if rule is None:
            self._rules.pop(name.lower(), None)
        else:
            self._rules[name.lower()] = rule
        self.topic.rules_changed()
        return before

    def settings(self) -> QueueSettings:
        """What the store needs to know."""
        return QueueSettings(
            lock_duration_ms=self.description.lock_duration_ms,
            max_delivery_count=deliveries_of(self.description),
            dead_letter_on_expiry=self.description.dead_letter_on_expiration,
            requires_session=self.description.requires_session,
            max_size_bytes=self.topic.description.max_size_mb * MEGABYTE,
        )

    def check_may_send(self) -> None:
        """Nobody sends to a subscription."""
        raise BusError(Fault.NOT_ALLOWED, f"Send to the topic '{self.topic.path}', not to its subscription.")
