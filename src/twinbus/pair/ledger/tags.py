"""The tag that all copies of one message share: its MessageId, its subject, or a property of the application.

One definition for the ledger, and for those who merge or reconcile later. How a message of the SDK is taken apart is
left to `sdk`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

PROPERTY = "property:"


class Kind(Enum):
    """What of a message is its tag."""

    MESSAGE_ID = "message_id"
    SUBJECT = "subject"
    PROPERTY = "property"


@dataclass(frozen=True, slots=True)
class Tag:
    """Where the tag of a message is found."""

    kind: Kind = Kind.MESSAGE_ID
    name: str = ""  # Of the application's property.

    @classmethod
    def parse(cls, text: str | Tag) -> Tag:
        """`message_id`, `subject` or `property:NAME`."""
        if isinstance(text, Tag):
            return text
        if text.startswith(PROPERTY) and len(text) > len(PROPERTY):
            return cls(Kind.PROPERTY, text.removeprefix(PROPERTY))
        if text in (Kind.MESSAGE_ID.value, Kind.SUBJECT.value):
            return cls(Kind(text))
        raise ValueError(f"A tag is message_id, subject or property:NAME, not {text!r}.")

    def __str__(self) -> str:
        return f"{PROPERTY}{self.name}" if self.kind is Kind.PROPERTY else self.kind.value

    def of(self, message_id: Any, subject: Any, properties: Mapping[Any, Any] | None) -> str | None:
        """The tag of a message with these fields; None if it has none, so that nothing can be said about its copies."""
        if self.kind is Kind.MESSAGE_ID:
            return as_text(message_id)
        if self.kind is Kind.SUBJECT:
            return as_text(subject)
        found = properties or {}
        # The SDK gives the names of received properties as bytes.
        return as_text(found.get(self.name, found.get(self.name.encode())))


def as_text(value: Any) -> str | None:
    """A field as the ledger keeps it; the SDK gives some as bytes. An empty one is none."""
    if value is None:
        return None
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)) or None
