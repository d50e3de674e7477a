"""Two namespaces that hold the same messages: the modes, the roles, and the names of entities.

Pure: sending and receiving is left to `sender` and `receiver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

SUBSCRIPTIONS = "/subscriptions/"


class Mode(Enum):
    """How messages come to be in two namespaces."""

    ACTIVE = "active"  # Each message is sent to both.
    PASSIVE = "passive"  # To one of them; to the other only when the first seems to be down.

    @classmethod
    def parse(cls, text: str | Mode) -> Mode:
        """A mode by its name."""
        try:
            return text if isinstance(text, Mode) else cls(text)
        except ValueError:
            raise ValueError(f"The mode is active or passive, not {text!r}.") from None


@dataclass(slots=True)
class Roles:
    """Which of the two namespaces (0, 1) is the active one, for each entity that a client sends to."""

    first: int = 0
    _active: dict[str, int] = field(default_factory=dict)

    def active(self, path: str) -> int:
        """Where a message for an entity is sent first."""
        return self._active.get(path.lower(), self.first)

    def sent_to_backup(self, path: str, backup: int) -> bool:
        """The backup took what the active one did not; whether the roles change by that.

        Another send may have changed them meanwhile.
        """
        if self.active(path) == backup:
            return False
        self._active[path.lower()] = backup
        return True

    def swapped(self) -> dict[str, int]:
        """The entities whose roles are not as they were at first."""
        return {path: active for path, active in self._active.items() if active != self.first}


class Names:
    """What an entity of the first namespace is called in the second; the same, unless the map says otherwise."""

    def __init__(self, entities: Mapping[str, str] | None = None) -> None:
        self._entities = {name.lower(): other for name, other in (entities or {}).items()}

    def entity(self, name: str, namespace: int) -> str:
        """A queue's or topic's name in one of the two namespaces."""
        return name if namespace == 0 else self._entities.get(name.lower(), name)

    def subscription(self, topic: str, name: str, namespace: int) -> tuple[str, str]:
        """A subscription's topic and name; a pair may be mapped as `topic/subscriptions/name`."""
        if namespace == 0:
            return topic, name
        mapped = self._entities.get(f"{topic}{SUBSCRIPTIONS}{name}".lower())
        if mapped is not None and SUBSCRIPTIONS in mapped.lower():
            position = mapped.lower().index(SUBSCRIPTIONS)
            return mapped[:position], mapped[position + len(SUBSCRIPTIONS) :]
        return self.entity(topic, 1), name

    def place(self, name: str, subscription: str | None, namespace: int) -> tuple[str, str | None]:
        """A queue's name, or a topic's with a subscription's."""
        if subscription is None:
            return self.entity(name, namespace), None
        return self.subscription(name, subscription, namespace)

    def path(self, path: str, namespace: int) -> str:
        """An entity's path in one of the two namespaces, a subscription's included."""
        position = path.lower().find(SUBSCRIPTIONS)
        if position < 0:
            return self.entity(path, namespace)
        topic, name = self.subscription(path[:position], path[position + len(SUBSCRIPTIONS) :], namespace)
        return f"{topic}{SUBSCRIPTIONS}{name}"


def scope_of(name: str, subscription: str | None = None, sub_queue: str | None = None) -> str:
    """The consumer scope of a receiver: whose work a mark in the ledger is about."""
    path = name if subscription is None else f"{name}{SUBSCRIPTIONS}{subscription}"
    return (path if sub_queue is None else f"{path}/${sub_queue}").lower()
