"""When a client of a pair is broken in a way that no retry mends. Pure; what was heard and when is handed in.

A namespace that is away, hangs or was replaced says nothing about the client: whatever stood against it is forgotten.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Sign(Enum):
    """What a look at a namespace, or a connection to it, says of the client."""

    TAKEN = "the credential was taken"
    REFUSED = "the credential was refused"
    GARBLED = "what it says is no AMQP"
    REPLACED = "another namespace has its place"
    SILENT = "no answer, or one that says nothing of the client"


class Breach(Enum):
    """What no retry mends."""

    CREDENTIAL = "its credential is refused"
    PROTOCOL = "it breaks the protocol"


class _Rule(NamedTuple):
    counts: Sign
    ended_by: frozenset[Sign]


RULES = {
    Breach.CREDENTIAL: _Rule(Sign.REFUSED, frozenset({Sign.TAKEN, Sign.REPLACED, Sign.SILENT})),
    # Every new connection has its token taken before it breaks the protocol again.
    Breach.PROTOCOL: _Rule(Sign.GARBLED, frozenset({Sign.REPLACED, Sign.SILENT})),
}
# So often in a row, over at least so long: a broker that starts, or a key that is being changed, is not meant. It must
# be short enough for both clients to be marked within five seconds of the first.
TIMES = 3
OVER_S = 2.5
FORGOTTEN_S = 10.0  # Signs that are further apart have nothing to do with each other.


class _Signs(NamedTuple):
    first: float
    last: float
    times: int


class Soundness:
    """One client, as far as its namespace's answers show it."""

    def __init__(self) -> None:
        self._against: dict[Breach, _Signs] = {}

    def heard(self, sign: Sign, now: float) -> Breach | None:
        """Take a sign down; what the client is broken by, if that is certain now."""
        for breach, rule in RULES.items():
            known = self._against.get(breach)
            if known is not None and (sign in rule.ended_by or now - known.last > FORGOTTEN_S):
                del self._against[breach]
                known = None
            if sign is rule.counts:
                known = known._replace(last=now, times=known.times + 1) if known else _Signs(now, now, 1)
                self._against[breach] = known
                if known.times >= TIMES and now - known.first >= OVER_S:
                    return breach
        return None
