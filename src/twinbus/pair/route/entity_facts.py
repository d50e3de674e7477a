"""What the primary last said of each entity, for the time in which it cannot be asked.

What it would refuse is refused while sends are diverted, too: nobody could bring it home. What is not known is not
refused. Plain values only, so that they can be written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.client import messages
from twinbus.client.errors import ClientError

TOO_LARGE = "amqp:link:message-size-exceeded"
NOT_ALLOWED = "amqp:not-allowed"


@dataclass(slots=True)
class EntityFacts:
    """One entity of the primary; None for what is not known."""

    message_bytes_max: int | None = None
    batch_bytes_max: int | None = None
    requires_session: bool | None = None
    partitioned: bool | None = None
    by_id: bool | None = None  # Partitioned, and a message without a key goes where its id leads.

    def refusal(self, payload: bytes, path: str) -> ClientError | None:
        """Why the primary would not take an encoded message, in its own words; None if nothing is known against it."""
        if (limit := self.message_bytes_max) is not None and len(payload) > limit:
            return too_large(len(payload), limit)
        try:
            session_id = messages.check(payload)
        except ClientError as problem:
            return problem
        if self.requires_session and session_id is None:
            return ClientError(NOT_ALLOWED, f"'{path}' requires sessions; the message has no session id.")
        return None

    def refused(self, condition: str, text: str, payloads: Sequence[bytes]) -> None:
        """Learn from what the primary refused: a message without a session, because it has none."""
        if condition != NOT_ALLOWED or "session" not in text.lower():
            return
        if any(messages.read(payload).session_id is None for payload in payloads):
            self.requires_session = True


def too_large(size: int, limit: int) -> ClientError:
    """As a broker says it."""
    return ClientError(TOO_LARGE, f"The message has {size} bytes; at most {limit} are allowed.")
