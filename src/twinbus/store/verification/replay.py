"""What must be in the queues if the journal is true: each copy that was stored and has not ended, by queue and number.

A number is used once in each queue, so the order in which operations are told does not matter, and rows of several
writers can be read one after the other. What was trimmed cannot be told; how far that goes is an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from twinbus.store.journal import Group, JournalRow, groups

_MADE = frozenset({"send", "copy", "schedule"})
_ENDED = frozenset({"cancel", "receive_delete", "complete", "forward", "delete", "drop", "damaged"})
_MOVED = {"deadletter": 1, "transfer_deadletter": 2, "ttl_expire": 1}  # To this sub-queue, under the same number.


class Replay:
    """The copies that a journal tells of."""

    def __init__(self, topics: Iterable[int], since_ms: int | None, is_complete: bool) -> None:
        """`topics` are queues in which a send makes no copy.

        Of what was made up to `since_ms` the end may have been trimmed. A complete journal tells of all copies.
        """
        self._topics = frozenset(topics)
        self._since_ms = since_ms
        self._is_complete = is_complete
        self.there: dict[int, set[int]] = defaultdict(set)
        self._ended: dict[int, set[int]] = defaultdict(set)  # The journal does not tell how these came.
        self._unsure: dict[int, set[int]] = defaultdict(set)
        self._first: dict[int, int] = {}  # In a main queue every later number was made after it.
        self._sums: dict[int, int] = defaultdict(int)  # Of numbers and ids of what is there.

    def take(self, row: JournalRow) -> None:
        """One commit; raises DamagedRowError."""
        is_sure = self._since_ms is None or row.at_ms > self._since_ms
        for group in groups(row):
            operation, queue = group.operation, group.queue
            if operation in _MADE:
                if group.numbers != 0 and not (operation == "send" and (group.outcome or queue in self._topics)):
                    self._make(queue, numbers_of(group), group.ids, is_sure, True)
            elif operation == "activate":
                numbers = numbers_of(group)
                self._end(queue, [int(str(group.outcome))], group.ids)
                self._make(queue, numbers, group.ids, is_sure, True)
            elif operation in _ENDED or (operation == "ttl_expire" and group.outcome == "removed"):
                self._end(queue, numbers_of(group), group.ids)
            elif operation in _MOVED:
                numbers = numbers_of(group)
                self._end(queue, numbers, group.ids)
                self._make((queue & ~3) + _MOVED[operation], numbers, group.ids, is_sure, False)

    def _make(self, queue: int, numbers: Sequence[int], ids: Sequence[str], is_sure: bool, is_new: bool) -> None:
        if not is_sure:
            self._unsure[queue].update(numbers)
            return
        if is_new and queue & 3 == 0:
            self._first[queue] = min(self._first.get(queue, numbers[0]), min(numbers))
        ended = self._ended.get(queue)
        if ended:
            known = [(number, named) for number, named in zip(numbers, ids, strict=True) if number not in ended]
            ended.difference_update(numbers)
            numbers, ids = [number for number, _ in known], [named for _, named in known]
        self.there[queue].update(numbers)
        self._sums[queue] += sum(map(hash, zip(numbers, ids, strict=True)))

    def _end(self, queue: int, numbers: Sequence[int], ids: Sequence[str]) -> None:
        there = self.there[queue]
        for number, named in zip(numbers, ids, strict=True):
            if number in there:
                there.discard(number)
                self._sums[queue] -= hash((number, named))
            else:
                self._ended[queue].add(number)

    def missing(self, queue: int, found: set[int]) -> set[int]:
        """What must be in a queue and is not."""
        return self.there.get(queue, set()) - found

    def unexplained(self, queue: int, found: set[int]) -> set[int]:
        """What is in a queue and must not be: it has ended, or nobody stored it."""
        more = found - self.there.get(queue, set()) - self._unsure.get(queue, set())
        if self._is_complete or not more:
            return more
        first = self._first.get(queue)
        ended = self._ended.get(queue, set())
        return {number for number in more if number in ended or (first is not None and number >= first)}

    def agrees(self, queue: int, messages: Iterable[tuple[int, str]]) -> bool:
        """Whether numbers and message ids are those that were journaled, as far as the journal tells of them."""
        there = self.there.get(queue, set())
        return self._sums.get(queue, 0) == sum(hash(message) for message in messages if message[0] in there)


def numbers_of(group: Group) -> Sequence[int]:
    """The numbers of a group, one for each id."""
    numbers = group.numbers
    return numbers if isinstance(numbers, list) else range(numbers, numbers + len(group.ids))


def made_in(row: JournalRow, queue: int) -> Iterable[tuple[int, str]]:
    """Numbers and ids of what a commit stored in a queue, or moved to it."""
    for group in groups(row):
        into = group.queue
        if group.operation in _MOVED and group.outcome != "removed":
            into = (into & ~3) + _MOVED[group.operation]
        elif group.operation not in _MADE and group.operation != "activate":
            continue
        if into == queue and group.numbers != 0 and (group.operation != "send" or not group.outcome):
            yield from zip(numbers_of(group), group.ids, strict=True)
