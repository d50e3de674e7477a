"""A message as rules see it: its system properties, its application properties, and a source of new ids.

Which system properties there are stands in one table here; reading them out of a message is left to the entities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.rules.errors import FilterError
from twinbus.rules.limits import STEPS_MAX

Properties = Mapping[str, Any]


class Form(Enum):
    """What a system property holds; instants and durations are integers of milliseconds."""

    TEXT = "text"
    KEY = "key"  # A text of bounded length.
    INTEGER = "integer"
    INSTANT = "instant"
    DURATION = "duration"


class SystemProperty(NamedTuple):
    """One system property: the name under which a view holds it, and whether an action may change it."""

    name: str
    form: Form
    settable: bool


_TABLE = (
    SystemProperty("ContentType", Form.TEXT, True),
    SystemProperty("CorrelationId", Form.TEXT, True),
    SystemProperty("DeadLetterSource", Form.TEXT, False),
    SystemProperty("DeliveryCount", Form.INTEGER, False),
    SystemProperty("EnqueuedSequenceNumber", Form.INTEGER, False),
    SystemProperty("EnqueuedTimeUtc", Form.INSTANT, False),
    SystemProperty("ExpiresAtUtc", Form.INSTANT, False),
    SystemProperty("Label", Form.TEXT, True),
    SystemProperty("MessageId", Form.KEY, True),
    SystemProperty("PartitionKey", Form.KEY, True),
    SystemProperty("ReplyTo", Form.TEXT, True),
    SystemProperty("ReplyToSessionId", Form.KEY, True),
    SystemProperty("ScheduledEnqueueTimeUtc", Form.INSTANT, True),
    SystemProperty("SequenceNumber", Form.INTEGER, False),
    SystemProperty("SessionId", Form.KEY, True),
    SystemProperty("Size", Form.INTEGER, False),
    SystemProperty("TimeToLive", Form.DURATION, True),
    SystemProperty("To", Form.TEXT, True),
    SystemProperty("ViaPartitionKey", Form.KEY, True),
)

# The names that newer clients have for the same properties.
SYSTEM_ALIASES = {
    "Subject": "Label",
    "EnqueuedTime": "EnqueuedTimeUtc",
    "ExpiresAt": "ExpiresAtUtc",
    "ScheduledEnqueueTime": "ScheduledEnqueueTimeUtc",
    "TransactionPartitionKey": "ViaPartitionKey",
}

_BY_NAME = {entry.name.lower(): entry for entry in _TABLE}
_BY_NAME.update({alias.lower(): _BY_NAME[name.lower()] for alias, name in SYSTEM_ALIASES.items()})

SYSTEM_NAMES = frozenset(entry.name for entry in _TABLE)


def system_property(name: str) -> SystemProperty | None:
    """The system property of a name in any case and in either generation's spelling, or None."""
    return _BY_NAME.get(name.lower())


def folded(properties: Properties) -> dict[str, Any]:
    """The properties by their names in lower case; of two names that differ in case only, the first counts."""
    by_name: dict[str, Any] = {}
    for name, value in properties.items():
        by_name.setdefault(name.lower(), value)
    return by_name


def no_ids() -> UUID:
    """For whoever has no source of randomness."""
    raise FilterError("newid() is not available here.")


class MessageView:
    """The properties of one message, each group read when a rule first asks for it and only once.

    `system` holds values by the names of the table above and may leave out what the message does not have;
    `user` holds the application properties in any case. Either may be a function that reads them.
    """

    __slots__ = ("_system", "_user", "new_id", "steps", "system", "user")

    # By lower-case name. Both attributes are set by __getattr__ at first use, and plain afterwards.
    system: Properties
    user: dict[str, Any]

    def __init__(
        self,
        system: Properties | Callable[[], Properties],
        user: Properties | Callable[[], Properties],
        new_id: Callable[[], UUID] = no_ids,
    ) -> None:
        self._system = system
        self._user = user
        self.new_id = new_id
        self.steps = STEPS_MAX

    def __getattr__(self, name: str) -> Any:
        if name == "user":
            self.user = folded(self.application_properties)
            return self.user
        if name == "system":
            self.system = self._system() if callable(self._system) else self._system
            return self.system
        raise AttributeError(name)

    @property
    def application_properties(self) -> Properties:
        """The application properties under the names that the sender gave them."""
        if callable(self._user):
            self._user = self._user()
        return self._user

    def spend(self, steps: int) -> None:
        """Count work whose amount the text of a rule does not bound."""
        self.steps -= steps
        if self.steps < 0:
            raise FilterError(f"The rule takes more than {STEPS_MAX} steps for this message.")
