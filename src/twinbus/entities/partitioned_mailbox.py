"""One queue of a partitioned entity with everything a receiver can ask of it: each request goes to its fragments.

Numbers and tokens say which fragment is meant, a session lies in one, everything else is asked of all. Fragments whose
store is down are left out of what is asked of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from twinbus.entities.feed import Feed
from twinbus.entities.fragments import Fragment
from twinbus.entities.mailbox import PEEK_BYTES_MAX, Answers, Mailbox, Settled
from twinbus.entities.partitioned_feed import PartitionedFeed
from twinbus.entities.partitions import (
    FRAGMENTS,
    NUMBER_BITS,
    fragment_of_number,
    fragment_of_token,
)
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin, ReceiveMode, Settlement

T = TypeVar("T")


class PartitionedMailbox(Mailbox):
    """A queue of a partitioned entity as receivers see it."""

    feed: PartitionedFeed

    def __init__(self, fragments: Sequence[Fragment], sub_queue: int, sessions_stay: bool) -> None:
        """`sessions_stay`: a session's messages are all in its own fragment."""
        feed = PartitionedFeed(fragments, sub_queue)
        first = fragments[0]
        super().__init__(first.number(sub_queue), feed.ports[0], first.store_index, feed)
        self._sessions_stay = sessions_stay
        self._base = first.number(sub_queue)
        self.parts = [
            Mailbox(fragment.number(sub_queue), port, fragment.store_index, part)
            for fragment, port, part in zip(fragments, feed.ports, feed.parts, strict=True)
        ]

    def feed_of(self, number: int) -> Feed:
        return self.feed.parts[(number - self._base) >> 2]

    def journaled_at(self) -> tuple[int, int]:
        part = next(iter(self._reachable()), self.parts[0])
        return part.number, part.store_index

    def feeds_on(self, store_index: int) -> list[Feed]:
        return [part.feed for part in self.parts if part.store_index == store_index]

    def places(self, session: str | None) -> list[tuple[int, Mailbox]]:
        if session is not None and self._sessions_stay:
            home = self.feed.home_of(session)
            return [(home, self.parts[home])]
        there = [index for index, port in enumerate(self.feed.ports) if port.is_available]
        return [(index, self.parts[index]) for index in there or [0]]

    # Settling

    def complete(self, tokens: list[bytes], origin: Origin, done: Settled) -> None:
        lots = _by_fragment(tokens, fragment_of_token)
        for index, positions in lots.items():
            told = partial(_tell, done, positions if len(lots) > 1 else None)
            if index is None:
                told([_lock_lost()] * len(positions))
            else:
                self.parts[index].complete([tokens[each] for each in positions], origin, told)

    def settle(self, settlements: list[Settlement], origin: Origin, done: Settled) -> None:
        lots = _by_fragment(settlements, _fragment_of_settlement)
        for index, positions in lots.items():
            told = partial(_tell, done, positions if len(lots) > 1 else None)
            if index is None:
                told([_lock_lost()] * len(positions))
            else:
                self.parts[index].settle([settlements[each] for each in positions], origin, told)

    async def settle_all(self, settlements: list[Settlement], origin: Origin) -> None:
        """Settle and wait. Each fragment settles its own, even if another fails; raises the first fault."""
        problem: BusError | None = None
        for index, positions in _by_fragment(settlements, _fragment_of_settlement).items():
            try:
                await self._part(index, _lock_lost).settle_all([settlements[each] for each in positions], origin)
            except BusError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    # Reading and holding

    async def inspect(self, tokens: list[bytes], origin: Origin) -> list[Delivered | None]:
        found: list[Delivered | None] = [None] * len(tokens)
        for index, positions in _by_fragment(tokens, fragment_of_token).items():
            if index is not None:
                answers = await self.parts[index].inspect([tokens[each] for each in positions], origin)
                for position, message in zip(positions, answers, strict=True):
                    found[position] = message
        return found

    async def renew(self, tokens: list[bytes], origin: Origin) -> list[int]:
        expirations = [0] * len(tokens)
        for index, positions in _by_fragment(tokens, fragment_of_token).items():
            part = self._part(index, _lock_lost)
            for position, expiry in zip(
                positions, await part.renew([tokens[each] for each in positions], origin), strict=True
            ):
                expirations[position] = expiry
        return expirations

    async def peek(
        self,
        start: int,
        limit: int,
        session: str | None,
        origin: Origin,
        max_bytes: int = PEEK_BYTES_MAX,
        *,
        active_only: bool = False,
    ) -> list[Delivered]:
        """Look in one fragment after the other, so that going on behind the last number sees everything once."""
        first = max(start, 0) >> NUMBER_BITS
        found: list[Delivered] = []
        for index in range(first, FRAGMENTS):
            if session is not None and self._sessions_stay:
                if index != self.feed.home_of(session):
                    continue
            elif not self.feed.ports[index].is_available:
                continue
            at = max(start, index << NUMBER_BITS)
            while len(found) < limit and max_bytes > 0:
                # A page may end early because of its bytes: the fragment is through when nothing comes.
                part, rest = self.parts[index], limit - len(found)
                page = await part.peek(at, rest, session, origin, max_bytes, active_only=active_only)
                if not page:
                    break
                found += page
                max_bytes -= sum(len(message.record) for message in page)
                at = page[-1].sequence_number + 1
            else:
                break
        return found

    async def receive_deferred(
        self, numbers: list[int], mode: ReceiveMode, owner: int, session: str | None, origin: Origin
    ) -> list[Delivered]:
        """Take deferred messages by number. If a fragment refuses, what others had locked is given back."""
        found: dict[int, Delivered] = {}
        try:
            for index, positions in _by_fragment(numbers, fragment_of_number).items():
                asked = [numbers[each] for each in positions]
                part = self._part(index, _not_found)
                for message in await part.receive_deferred(asked, mode, owner, session, origin):
                    found[message.sequence_number] = message
        except BusError:
            self.feed.give_back(list(found.values()), origin)
            raise
        return [found[number] for number in dict.fromkeys(numbers) if number in found]

    async def cancel_scheduled(self, numbers: list[int], origin: Origin) -> None:
        """Remove scheduled messages by number; in each fragment all or none."""
        lots = _by_fragment(numbers, fragment_of_number)
        parts = [(self._part(index, _not_found), positions) for index, positions in lots.items()]
        for part, positions in parts:
            await part.cancel_scheduled([numbers[each] for each in positions], origin)

    async def delete_batch(self, limit: int, before_ms: int, origin: Origin, *, every_state: bool = False) -> int:
        """Remove from one fragment after the other. Nothing left in reach, while a store is not, is no end."""
        total = 0
        reachable = self._reachable()
        for part in reachable:
            if total < limit:
                total += await part.delete_batch(limit - total, before_ms, origin, every_state=every_state)
        if total == 0 and len(reachable) < len(self.parts):
            count = len(self.parts) - len(reachable)
            raise BusError(Fault.STORE_UNAVAILABLE, f"{count} fragments are on stores that are not available.")
        return total

    # Sessions

    async def renew_session(self, session: str, origin: Origin) -> int:
        return await self._home_of(session).renew_session(session, origin)

    async def get_session_state(self, session: str, origin: Origin) -> bytes | None:
        return await self._home_of(session).get_session_state(session, origin)

    async def set_session_state(self, session: str, state: bytes | None, origin: Origin) -> None:
        await self._home_of(session).set_session_state(session, state, origin)

    async def list_sessions(self, updated_after_ms: int | None, skip: int, limit: int, origin: Origin) -> list[str]:
        """Session ids of all fragments, in order: each fragment tells its first, as many as the page may need."""
        found: set[str] = set()
        for part in self._reachable():
            found.update(await part.list_sessions(updated_after_ms, 0, skip + limit, origin))
        return sorted(found)[skip : skip + limit]

    # Finding the fragment

    def _part(self, index: int | None, refusal: Callable[[], BusError]) -> Mailbox:
        if index is None:
            raise refusal()
        return self.parts[index]

    def _home_of(self, session: str) -> Mailbox:
        return self.parts[self.feed.home_of(session)]

    def _reachable(self) -> list[Mailbox]:
        return [part for part, port in zip(self.parts, self.feed.ports, strict=True) if port.is_available]


def _by_fragment(items: Sequence[T], fragment: Callable[[T], int | None]) -> dict[int | None, list[int]]:
    """The positions of the items of each fragment; those of no fragment are under None."""
    lots: dict[int | None, list[int]] = {}
    for position, item in enumerate(items):
        lots.setdefault(fragment(item), []).append(position)
    return lots


def _fragment_of_settlement(settlement: Settlement) -> int | None:
    return fragment_of_token(settlement.token)


def _tell(done: Settled, positions: list[int] | None, answers: Answers, which: Sequence[int] | None = None) -> None:
    done(answers) if positions is None else done(answers, positions)


def _lock_lost() -> BusError:
    return BusError(Fault.LOCK_LOST, "The lock is not known here: it has expired, or was never given out.")


def _not_found() -> BusError:
    return BusError(Fault.MESSAGE_NOT_FOUND, "No message of this entity has such a sequence number.")
