"""Which of two endpoints is active, and when a request may be issued again: decided here, done by `calling`.

Only a relay that is out of reach, or fails by itself, brings the other one in; what a service answers is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

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


class Tried(NamedTuple):
    """One try of a call, at one of the two."""

    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Roles:
    """Which of the two is active, 0 or 1."""

    active: int

    @property
    def backup(self) -> int:
        """The other one."""
        return 1 - self.active

    def after(self, tries: Sequence[Tried]) -> Roles:
        """The roles after a call, which may have been tried at both.

        They swap when the second has answered, and when the active one failed and the call could not be issued again:
        the next one need not fail, too. If both failed they stay as they are.
        """
        first, second = tries[0], tries[1] if len(tries) > 1 else None
        if first.outcome is Outcome.ANSWERED:
            return self
        if second is not None:
            return Roles(second.number) if second.outcome is Outcome.ANSWERED else self
        # Calls that were under way together fail together; only the first of them is news.
        return Roles(1 - first.number) if first.number == self.active else self
