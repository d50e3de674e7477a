"""How people name what is in a namespace: a queue or topic, a subscription of a topic, a rule of a subscription.

`orders`, `orders:audit` and `orders:audit:big` in short, or the whole paths that the service uses. No name contains a
colon, so that nobody has to be asked what is meant; whether there is such a thing is for the namespace to say.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.cli.running import PromptError

SUBSCRIPTIONS, RULES = "Subscriptions", "Rules"
DEAD_LETTER_QUEUE = "$DeadLetterQueue"


class Address(NamedTuple):
    """A name, taken apart. What is not meant is empty."""

    entity: str  # The queue or topic.
    subscription: str = ""
    rule: str = ""

    @property
    def path(self) -> str:
        """The path of the queue, topic or subscription."""
        return f"{self.entity}/{SUBSCRIPTIONS}/{self.subscription}" if self.subscription else self.entity

    @property
    def short(self) -> str:
        """As people type it."""
        return ":".join(filter(None, self))


def parse_address(text: str) -> Address:
    """The address that a text names; a PromptError if it cannot be one."""
    parts = text.strip("/").split(":")
    if len(parts) == 1:
        parts = _in_path(parts[0])
    if len(parts) > 3 or not all(parts):
        raise PromptError(
            f"'{text}' names nothing: write QUEUE, TOPIC, TOPIC:SUBSCRIPTION or TOPIC:SUBSCRIPTION:RULE, or a whole "
            f"path such as TOPIC/{SUBSCRIPTIONS}/SUBSCRIPTION."
        )
    return Address(*parts)


def _in_path(path: str) -> list[str]:
    """The names in a whole path, between the service's keywords."""
    segments = path.split("/")
    keywords = [segment.lower() for segment in segments]
    if SUBSCRIPTIONS.lower() not in keywords[1:]:
        return [path]
    at = keywords.index(SUBSCRIPTIONS.lower(), 1)
    topic, below = "/".join(segments[:at]), segments[at + 1 :]
    if len(below) == 3 and below[1].lower() == RULES.lower():
        return [topic, below[0], below[2]]
    return [topic, *below] if len(below) == 1 else [topic, ""]


def path_of(text: str, dead_letters: bool = False) -> str:
    """The path of a queue, topic or subscription, or of its dead-letter queue."""
    address = parse_address(text)
    if address.rule:
        raise PromptError(f"'{text}' is a rule: messages are in its subscription, '{address.entity}:{address[1]}'.")
    return f"{address.path}/{DEAD_LETTER_QUEUE}" if dead_letters else address.path
