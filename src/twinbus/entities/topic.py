"""One topic: each message goes to the subscriptions whose rules choose it, in one transaction, its body stored once.

Scheduled messages wait in the topic's own queue; when their time comes the topic itself receives and publishes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from twinbus.entities.entity import MEGABYTE, Entity, Sent
from twinbus.entities.feed import ACQUIRE_MAX, UNBOUNDED
from twinbus.entities.fragments import Fragment
from twinbus.entities.ports import RecordReader, StorePort
from twinbus.entities.subscription import Subscription
from twinbus.model.address import SubQueue
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Incoming, Origin, ReceiveMode
from twinbus.model.topic import TopicDescription
from twinbus.rules.actions import Changes
from twinbus.rules.errors import ActionError
from twinbus.rules.index import TopicRules
from twinbus.rules.matching import Matches, RuleFailure
from twinbus.rules.view import MessageView
from twinbus.store.commands import Copy, Publication, Publish, QueueSettings, Transfer

TOPIC = Origin("", "topic")
LONGEST_TOLD_MS = 2**32 - 1  # In the header of a message.


class Topic(Entity[TopicDescription]):
    """A topic that exists; for its own queue of scheduled messages it is the one receiver."""

    kind = "Topic"
    mode = ReceiveMode.PEEK_LOCK
    owner = 0
    holder = 0
    session: str | None = None
    origin = TOPIC
    bounds = UNBOUNDED

    def __init__(
        self,
        entity: int,
        description: TopicDescription,
        store_index: int,
        store: StorePort,
        reader: RecordReader,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        super().__init__(entity, description, store_index, store)
        self._reader = reader
        self._clock = clock
        self._new_id = new_id
        self._subscriptions: dict[str, Subscription] = {}
        self._rules: TopicRules[Subscription] | None = None  # Made when first needed after a change.

    @property
    def path(self) -> str:
        return self.description.name

    def settings(self) -> QueueSettings:
        """What the store needs to know."""
        description = self.description
        return QueueSettings(
            duplicate_window_ms=description.duplicate_window_ms if description.requires_duplicate_detection else 0,
            max_size_bytes=description.max_size_mb * MEGABYTE,
            keyed_duplicates=description.partitioned,
            max_delivery_count=2**31 - 1,  # Publishing a scheduled message is tried until it succeeds.
        )

    def check_may_receive(self) -> None:
        """Nobody receives from a topic."""
        raise BusError(Fault.NOT_ALLOWED, f"'{self.path}' is a topic: receive from one of its subscriptions.")

    # Subscriptions

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, by name."""
        return [self._subscriptions[key] for key in sorted(self._subscriptions)]

    def subscription(self, name: str) -> Subscription | None:
        """The subscription of that name, whatever its case."""
        return self._subscriptions.get(name.lower())

    def adopt(self, subscription: Subscription) -> None:
        """A subscription was made."""
        self._subscriptions[subscription.description.name.lower()] = subscription
        self.rules_changed()

    def forget(self, subscription: Subscription) -> None:
        """A subscription is gone."""
        self._subscriptions.pop(subscription.description.name.lower(), None)
        self.rules_changed()

    def rules_changed(self) -> None:
        """Rules are looked at anew with the next message."""
        self._rules = None

    # Publishing

    def send(self, units: list[list[Incoming]], origin: Origin, done: Sent) -> None:
        """Publish units of messages."""

        def finished(command: Publish) -> None:
            done(command.result if command.error is None else [command.error] * len(units))

        publications = [[self._publication(message) for message in unit] for unit in units]
        self.store.submit(Publish(queue=self.number(), origin=origin, units=publications, done=finished))

    def arrival(
        self, fragment: Fragment, messages: list[Incoming], transfers: list[Transfer], origin: Origin
    ) -> Publish:
        """What publishes messages that come from other queues."""
        units = [[self._publication_in(fragment, message)] for message in messages]
        return Publish(queue=fragment.number(SubQueue.MAIN), origin=origin, units=units, transfers=transfers)

    async def send_unit(self, messages: list[Incoming], origin: Origin) -> list[int]:
        """Publish one unit and wait."""
        unit = [self._publication(message) for message in messages]
        command = await self.store.call(Publish(queue=self.number(), origin=origin, units=[unit]))
        result = command.result[0]
        if isinstance(result, BusError):
            raise result
        return result

    def _publication(self, message: Incoming) -> Publication:
        if message.due_at_ms is not None and message.due_at_ms > self._clock.now_ms():
            return Publication(message, [])
        if self._rules is None:
            self._rules = TopicRules({s: s.compiled_rules for s in self._subscriptions.values()})
        record = message.record
        view = MessageView(
            partial(self._reader.system_properties, record), partial(self._reader.user_properties, record), self._new_id
        )
        copies: list[Copy] = []
        for subscription, matches in self._rules.match(view).items():
            copies += self._copies(subscription, message, matches)
        return Publication(message, copies)

    def _copies(self, subscription: Subscription, message: Incoming, matches: Matches) -> list[Copy]:
        """One copy for all rules without an action, one for each rule with one, and the failures as dead letters."""
        number = subscription.number()
        ttl_ms = _shorter(message.ttl_ms, subscription.ttl_ceiling_ms)
        plain = Copy(number, message.message_id, message.session_id, ttl_ms)
        copies = [plain] if matches.plain else []
        failures = list(matches.errors)
        for changed in matches.with_action:
            try:
                copies.append(self._changed(plain, message, changed.changes, subscription.ttl_ceiling_ms))
            except BusError as error:  # No message can carry what the action made.
                text = f"Rule '{changed.rule_name}': {error.text}"
                failures.append(RuleFailure(changed.rule_name, ActionError.reason, text))
        if failures and subscription.description.dead_letter_on_filter_errors:
            failure = failures[0]
            dead = subscription.number(SubQueue.DEAD_LETTER)
            copies.append(plain._replace(queue=dead, reason=failure.reason, description=failure.description[:4096]))
        return copies

    def _changed(self, plain: Copy, message: Incoming, changes: Changes, ttl_ceiling_ms: int | None) -> Copy:
        system = dict(changes.system)
        if not system.get("MessageId", True):
            del system["MessageId"]  # Clients cannot settle a message without one.
        ttl_ms = plain.ttl_ms
        if "TimeToLive" in system:
            ttl_ms = system["TimeToLive"] = _shorter(
                system["TimeToLive"], _shorter(self.ttl_ceiling_ms, ttl_ceiling_ms)
            )
        changed = self._reader.change(message.record, changes.user, changes.removed, system)
        return plain._replace(
            overlay=changed.overlay,
            record=changed.record,
            message_id=system.get("MessageId", message.message_id),
            session_id=system.get("SessionId", message.session_id),
            ttl_ms=ttl_ms,
        )

    # The receiver of scheduled messages whose time has come

    def begin(self) -> None:
        """Wait for scheduled messages."""
        self.mailbox().feed.pull(self)

    def end(self) -> None:
        """The topic is gone."""
        self.mailbox().feed.leave(self)

    def demand(self) -> int:
        """It takes as many as there are."""
        return ACQUIRE_MAX

    def deliver(self, messages: list[Delivered]) -> None:
        """Publish what waited; the lock on it is completed with the copies."""
        self._publish_due(messages, self.fragments[0])

    def _publish_due(self, messages: list[Delivered], fragment: Fragment) -> None:
        units = []
        transfers = []
        for m in messages:
            ttl_ms = self._reader.ttl_ms(m.record)
            if ttl_ms == LONGEST_TOLD_MS:  # The topic's own ceiling may be longer than a header can tell.
                ttl_ms = self.ttl_ceiling_ms or ttl_ms
            incoming = Incoming(m.record, m.message_id, m.session_id, _shorter(ttl_ms, self.ttl_ceiling_ms))
            units.append([self._publication_in(fragment, incoming)])
            transfers.append(Transfer(fragment.number(SubQueue.MAIN), m.sequence_number, m.token))
        if units:
            queue = fragment.number(SubQueue.MAIN)
            fragment.store.submit(Publish(queue=queue, origin=TOPIC, units=units, transfers=transfers))

    def _publication_in(self, fragment: Fragment, message: Incoming) -> Publication:
        return self._publication(message)

    def failed(self, error: BusError) -> None:
        """Waiting goes on: the messages are safe, and the next hint tries again."""
        self.mailbox().feed.wait(self)


def _shorter(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)
