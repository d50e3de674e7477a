"""Faults on purpose: what a namespace that was started for it can be made to suffer, and what it suffers now.

Only the words and the state are here. The doors look at the state and behave accordingly; when a disturbance begins
and ends is the process' business.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from twinbus.model.errors import BusError, Fault


class Disturbance(Enum):
    """What can go wrong on purpose; the values are the names that operators use."""

    NAMESPACE_DOWN = "namespace-down"
    BLACKHOLED = "blackholed"
    THROTTLED = "throttled"
    ANSWERS_LOST = "answers-lost"
    VISIBILITY_DELAYED = "visibility-delayed"
    STORE_DOWN = "store-down"
    STORE_FULL = "store-full"
    STORE_SLOW = "store-slow"


class DisturbanceFacts(NamedTuple):
    """What a disturbance means and needs."""

    meaning: str
    of_a_store: bool = False
    delays: bool = False


FACTS: dict[Disturbance, DisturbanceFacts] = {
    Disturbance.NAMESPACE_DOWN: DisturbanceFacts("Connections are cut, and so is whoever connects."),
    Disturbance.BLACKHOLED: DisturbanceFacts("Connections stay and are taken, and nothing is read or answered."),
    Disturbance.THROTTLED: DisturbanceFacts("Sends and requests are refused as server-busy."),
    Disturbance.ANSWERS_LOST: DisturbanceFacts("Sends are stored, and instead of an answer the connection is cut."),
    Disturbance.VISIBILITY_DELAYED: DisturbanceFacts("What is sent can be received only after a delay.", delays=True),
    Disturbance.STORE_DOWN: DisturbanceFacts("A messaging store is taken down.", of_a_store=True),
    Disturbance.STORE_FULL: DisturbanceFacts("A messaging store takes no messages, as if full.", of_a_store=True),
    Disturbance.STORE_SLOW: DisturbanceFacts("Each commit of a store is delayed.", of_a_store=True, delays=True),
}


@dataclass(slots=True)
class Suffering:
    """What a namespace suffers at its doors; nothing, unless somebody wants it."""

    is_down: bool = False
    is_blackholed: bool = False
    is_throttled: bool = False
    loses_answers: bool = False
    visible_after_ms: int = 0

    def check_not_throttled(self) -> None:
        """Raise the refusal of a namespace that is made to be busy."""
        if self.is_throttled:
            raise BusError(Fault.SERVER_BUSY, "The namespace is throttled on purpose; retry in ten seconds.")
