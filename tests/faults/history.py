"""What a client saw, and what it therefore knows: for each message, the places where it may be now.

Knows nothing of brokers and connections; the load tells it what happened, the tests ask it what must be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum

from twinbus.model.message import Outcome


class Place(Enum):
    """Where a message can be."""

    QUEUE = "queue"
    DEFERRED = "deferred"
    DEAD = "dead-letter queue"
    NOWHERE = "nowhere"


Places = frozenset[Place]
IN_QUEUE: Places = frozenset({Place.QUEUE})
DESTINATION = {
    Outcome.COMPLETE: Place.NOWHERE,
    Outcome.ABANDON: Place.QUEUE,
    Outcome.DEFER: Place.DEFERRED,
    Outcome.DEAD_LETTER: Place.DEAD,
}


class History:
    """The history of one queue. Every contradiction is kept in `problems`, in words."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._fate: dict[str, Places] = {}
        self._delivery_count: dict[str, int] = {}  # At the last delivery.

    @property
    def waiting(self) -> int:
        """How many messages are certainly in the queue, or may be."""
        return self.counts["attempted"] - self.counts["gone"]

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self.queue}: {text}")

    def _allow(self, message_id: str, places: Iterable[Place]) -> None:
        before, after = self._fate.get(message_id, IN_QUEUE), frozenset(places)
        self._fate[message_id] = after
        self.counts["gone"] += (Place.QUEUE not in after) - (Place.QUEUE not in before)

    # Sending

    def attempted(self, message_id: str) -> None:
        """It is being sent, perhaps again; until the answer comes, or a receiver has it, nobody knows."""
        self.counts["attempted"] += message_id not in self._fate
        if message_id not in self._delivery_count:
            self._allow(message_id, {Place.QUEUE, Place.NOWHERE})

    def acknowledged(self, message_id: str) -> None:
        """The broker has accepted it. Whoever received it in the meantime knows more than this."""
        self.counts["acknowledged"] += 1
        if message_id not in self._delivery_count:
            self._allow(message_id, IN_QUEUE)

    def not_sent(self, message_id: str, definite: bool) -> None:
        """No acknowledgement came; with `definite`, it certainly was not stored."""
        self.counts["sends refused" if definite else "sends unknown"] += 1
        if definite and message_id not in self._delivery_count:
            self._allow(message_id, {Place.NOWHERE})

    # Receiving

    def received(self, message_id: str, delivery_count: int) -> None:
        """It was handed out from the queue under a lock."""
        self.counts["received"] += 1
        self._check_in_queue(message_id)
        before = self._delivery_count.get(message_id)
        if before is not None and delivery_count < before + 1:
            self._problem(f"{message_id} came again with delivery count {delivery_count} after {before}")
        self._delivery_count[message_id] = delivery_count
        self._allow(message_id, IN_QUEUE)

    def deleted(self, message_id: str) -> None:
        """It was handed out and removed."""
        self.counts["deleted"] += 1
        self._check_in_queue(message_id)
        self._delivery_count[message_id] = 0
        self._allow(message_id, {Place.NOWHERE})

    def _check_in_queue(self, message_id: str) -> None:
        fate = self._fate.get(message_id)
        if fate is None:
            self._problem(f"{message_id} was received, but never sent")
        elif Place.QUEUE not in fate:
            self._problem(f"{message_id} was received, but must be {_words(fate)}")

    # Settling

    def settling(self, message_id: str, outcome: Outcome) -> None:
        """Its receiver's decision is on its way."""
        self._allow(message_id, {Place.QUEUE, DESTINATION[outcome]})

    def settled(self, message_id: str, outcome: Outcome) -> None:
        """The broker has confirmed the decision."""
        self.counts[outcome.value] += 1
        if outcome is not Outcome.ABANDON:  # Another receiver may already have it, and more is known from there.
            self._allow(message_id, {DESTINATION[outcome]})

    def not_settled(self, message_id: str, refusal: str | None = None) -> None:
        """No confirmation came. A refusal is a problem, since no lock in these tests expires."""
        self.counts["settlements unknown"] += 1
        if refusal is not None:
            self._problem(f"{message_id} could not be settled: {refusal}")

    # Judging

    def known(self, message_id: str) -> Places:
        """Where a message may be; nowhere, if it was never sent."""
        return self._fate.get(message_id, frozenset({Place.NOWHERE}))

    def seen(self) -> set[str]:
        """What was received at least once."""
        return set(self._delivery_count)

    def surely_in_queue(self) -> set[str]:
        return {message_id for message_id, fate in self._fate.items() if fate == IN_QUEUE}

    def judge(self, found: Mapping[Place, Iterable[str]]) -> list[str]:
        """Compare with what was found at the end; every contradiction, the earlier ones included."""
        places: defaultdict[str, list[Place]] = defaultdict(list)
        for place, message_ids in found.items():
            for message_id in message_ids:
                places[message_id].append(place)
        for message_id in self._fate.keys() | places.keys():
            here = places.get(message_id, [Place.NOWHERE])
            if len(here) > 1:
                self._problem(f"{message_id} is there {len(here)} times: {_words(here)}")
            elif here[0] not in self.known(message_id):
                self._problem(f"{message_id} is {here[0].value}, but must be {_words(self.known(message_id))}")
        return self.problems


class SessionHistory(History):
    """Also knows the order within each session: the numbers that a session's sender gave its messages."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self._floor: dict[str, int] = {}  # The lowest number that the present holder has not passed yet.

    def taken(self, session: str) -> None:
        """A receiver took the session: it starts with the oldest message again."""
        self._floor[session] = 0

    def in_session(self, session: str, number: int) -> None:
        """The holder received a message; nothing that is certainly in the queue may be left out before it."""
        if number < self._floor[session]:
            self._problem(f"session {session}: {number} came after {self._floor[session] - 1}")
        for earlier in range(self._floor[session], number):
            if self.known(session_message_id(session, earlier)) == IN_QUEUE:
                self._problem(f"session {session}: {number} came before {earlier}")
        self._floor[session] = number + 1


def session_message_id(session: str, number: int) -> str:
    return f"{session}:{number}"


def _words(places: Iterable[Place]) -> str:
    return " or ".join(sorted(place.value for place in places))
