"""What a new primary needs, decided from what waits in the backlog, what it has, and what somebody described. Pure.

A diverted message says where it goes and whether it has a session. Whether that was a queue or a topic, and how it was
set, only a description says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinbus.client.descriptions import Description
from twinbus.client.diverting import MEANT_FOR, PATH, SESSION_ID, MeantFor
from twinbus.client.messages import Message
from twinbus.model.entity import QueueDescription
from twinbus.model.rule import RuleDescription
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.replaced import Replaced


class Described(NamedTuple):
    """An entity as somebody described it, and the rules of a subscription; None for the usual one."""

    description: Description
    rules: list[RuleDescription] | None = None

    @property
    def path(self) -> str:
        """Where it is."""
        return path_of(self.description)


class There(NamedTuple):
    """An entity that the new primary has."""

    description: Description
    subscriptions: int = 0


@dataclass(slots=True)
class Waiting:
    """The messages of one destination in the backlog."""

    path: str
    count: int = 0
    with_session: int = 0

    def __str__(self) -> str:
        sessions = ", with sessions" if self.with_session == self.count else ""
        return f"'{self.path}' {self.count:,}{sessions}"


@dataclass(slots=True)
class Seen:
    """What a look into the backlog found."""

    queues: int = 0
    waiting: dict[str, Waiting] = field(default_factory=dict)  # By path, in lower case.
    meant_for: Counter[MeantFor] = field(default_factory=Counter)
    unreadable: int = 0  # They do not say where they go: the syphon makes dead letters of them.

    @property
    def count(self) -> int:
        """How many messages wait."""
        return sum(each.count for each in self.waiting.values()) + self.unreadable

    def add(self, message: Message) -> None:
        """One message of a backlog queue."""
        path, meant_for = message.properties.get(PATH), message.properties.get(MEANT_FOR)
        if not isinstance(path, str) or not path:
            self.unreadable += 1
            return
        waiting = self.waiting.setdefault(path.lower(), Waiting(path))
        waiting.count += 1
        waiting.with_session += SESSION_ID in message.properties
        if isinstance(meant_for, str):
            self.meant_for[MeantFor.parse(meant_for)] += 1

    def replaced(self, lost: Replaced) -> tuple[Replaced, ...]:
        """The lost primary under every id that clients knew at its address: it may have been made anew before."""
        ids = {each.id for each in self.meant_for if each.reached_at == lost.reached_at and each.id}
        return tuple(lost._replace(id=each) for each in sorted({lost.id, *ids} - {""})) or (lost,)

    def for_others(self, replaced: Sequence[Replaced], own_id: str) -> dict[str, int]:
        """How many are meant for other namespaces, by their ids; they stay where they are."""
        found: Counter[str] = Counter()
        for meant_for, count in self.meant_for.items():
            is_ours = meant_for.id in ("", own_id) or any(lost.was_meant(meant_for) for lost in replaced)
            if not is_ours and own_id:
                found[meant_for.id] += count
        return dict(found)


@dataclass(slots=True)
class Plan:
    """What is to be made, and what people should know before it is."""

    create: list[Described] = field(default_factory=list)  # In this order, as somebody described them.
    guess: list[QueueDescription] = field(default_factory=list)  # Made as plain queues, since nobody described them.
    stay: list[str] = field(default_factory=list)  # They are there, and are left as they are.
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # With one of these nothing is done.


def plan(seen: Seen, described: Iterable[Described], there: Mapping[str, There]) -> Plan:
    """What the new primary needs; `there` are its entities by path, in lower case."""
    made = Plan()
    wanted = {each.path.lower(): each for each in described if backlog.primary_of(each.path) is None}
    made.stay = [each.path for path, each in wanted.items() if path in there]
    made.create = in_order([each for path, each in wanted.items() if path not in there])
    new = [each.description for each in made.create]
    subscribed = {each.topic.lower() for each in new if isinstance(each, SubscriptionDescription)}
    for path, waiting in seen.waiting.items():
        entity = there[path].description if path in there else None
        if entity is None and path in wanted:
            entity = wanted[path].description
        if entity is None:
            made.guess.append(QueueDescription(name=waiting.path, requires_session=_all_have_sessions(waiting)))
            made.remarks.append(_guessed(waiting))
            continue
        if path in there and path not in wanted:
            made.stay.append(waiting.path)
        if isinstance(entity, TopicDescription):
            if path not in subscribed and not (path in there and there[path].subscriptions):
                text = f"The topic '{waiting.path}' has no subscription: its {waiting.count:,} messages would vanish."
                made.problems.append(text)
        elif isinstance(entity, QueueDescription) and entity.requires_session and not _all_have_sessions(waiting):
            left = waiting.count - waiting.with_session
            text = f"'{waiting.path}' requires sessions, and {left:,} messages have none: they will be dead letters."
            made.remarks.append(text)
    return made


def in_order(wanted: Sequence[Described]) -> list[Described]:
    """What is forwarded to comes before what forwards, and a topic before its subscriptions."""
    left, ordered = list(wanted), list[Described]()
    while left:
        names = {each.path.lower() for each in left}
        ready = [each for each in left if not (_needs(each.description) & (names - {each.path.lower()}))]
        ordered += ready or left  # In a circle the namespace says what is wrong.
        left = [each for each in left if each not in ordered]
    return ordered


def path_of(description: Description) -> str:
    """Where an entity is."""
    return description.path if isinstance(description, SubscriptionDescription) else description.name


def _needs(description: Description) -> set[str]:
    """The entities that must be there before this one."""
    found = {getattr(description, name, None) for name in ("forward_to", "forward_dead_letters_to", "topic")}
    return {each.lower() for each in found if each}


def _all_have_sessions(waiting: Waiting) -> bool:
    return waiting.with_session == waiting.count


def _guessed(waiting: Waiting) -> str:
    sessions = "with sessions, as all its messages have one" if _all_have_sessions(waiting) else "without sessions"
    if 0 < waiting.with_session < waiting.count:
        sessions += f", as {waiting.count - waiting.with_session:,} of its {waiting.count:,} messages have none"
    return (
        f"'{waiting.path}' is described nowhere: it becomes a plain queue {sessions}. If it was a topic, describe it."
    )
