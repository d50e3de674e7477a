"""Which of two endpoints is active, and when a request may be issued again: decided here, done by `calling`.

Only a relay that is out of reach, or fails by itself, brings the other one in; what a service answers is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})  # RFC 9110, 9.2.2.
# The relay's own statuses after which a listener may have had the request.
INDEFINITE_STATUSES = frozenset({500, 504})


class Outcome(Enum):
    """What came of one try."""

    ANSWERED = "the service answered, whatever it said"
    NOT_DELIVERED = "the relay failed, and the service certainly has not had the request"
    UNKNOWN = "the relay failed, and the service may have had the request"


def outcome_of(status: int, has_via: bool) -> Outcome:
    """What a response means: Via says that a listener sent it, and relays themselves send only errors."""
    if has_via or status < 400:
        return Outcome.ANSWERED
    return Outcome.UNKNOWN if status in INDEFINITE_STATUSES else Outcome.NOT_DELIVERED


def may_reissue(outcome: Outcome, method: str, reissue: bool | None) -> bool:
    """Whether a failed request goes to the other relay; `reissue` is the caller's word, None for none."""
    if outcome is Outcome.ANSWERED:
        return False
    if outcome is Outcome.NOT_DELIVERED:
        return True
    return method.upper() in IDEMPOTENT if reissue is None else reissue


@dataclass(frozen=True, slots=True)
class Roles:
    """Which of the two is active, 0 or 1."""

    active: int

    @property
    def backup(self) -> int:
        """The other one."""
        return 1 - self.active

    def after(self, tried: int, outcome: Outcome) -> Roles:
        """Roles swap when the one that was not active has answered; if both failed they stay as they are."""
        return Roles(tried) if outcome is Outcome.ANSWERED else self
