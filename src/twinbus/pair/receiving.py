"""A receiver that reads one or two namespaces as one stream, with what the ledger knows already taken out.

It has the SDK's methods and hands out the SDK's messages. What is done with each copy is decided by `ledger`; each
namespace's own receiver is in a `receiving_lane`, held copies are looked after by `receiving_holding`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from twinbus.model.logged import EventLog
from twinbus.pair import receiving_sdk, sdk, tracing
from twinbus.pair.errors import LedgerError
from twinbus.pair.failures import Failure
from twinbus.pair.ledger import Copy, Decision, Key, State
from twinbus.pair.ledger_keeping import LedgerCore
from twinbus.pair.ledger_storage import Claim
from twinbus.pair.receiving_holding import Arrival, Holding
from twinbus.pair.receiving_lane import Lane

_log = EventLog(__name__)

WAIT_S = 60.0  # The SDK's own, where neither the call nor the receiver says.
LONG_S = 3600.0
GRACE_S = 0.3
AGAIN_MAX = 1000
_PASSING = (Failure.TIMEOUT, Failure.TRANSIENT)


class ReplicatedReceiver:
    """`azure.servicebus.aio.ServiceBusReceiver` over one or two namespaces, and a ledger."""

    def __init__(
        self,
        ledger: LedgerCore,
        scope: str,
        makers: Sequence[tuple[str, Callable[[], Any]]],
        *,
        deletes: bool = False,
        max_wait_time: float | None = None,
        goes_on: bool = True,
        sessions: bool = False,
        handed_out: Callable[[Any], None] | None = None,
        before_first: Callable[[ReplicatedReceiver], Awaitable[None]] | None = None,
    ) -> None:
        """`makers` are namespaces by name, each with what makes the SDK's receiver for it.

        With `deletes` copies cannot be settled. With `goes_on` a lost lock is no error. `before_first` opens what must
        be open before anything can be received.
        """
        self.scope = scope
        self.counts: Counter[str] = Counter()
        self.is_session = sessions
        self._ledger = ledger
        self._deletes = deletes
        self._goes_on = goes_on
        self._max_wait_s = max_wait_time
        self._handed_out = handed_out or (lambda message: None)
        self._before_first = before_first
        self._arrived = asyncio.Event()
        self.lanes = [Lane(name, make, self._arrived.set, sessions) for name, make in makers]
        self._ready: deque[Arrival] = deque()  # Held once, and now claimed for us.
        self._holding = Holding(ledger, self._ready, self._arrived.set, self._dispose)
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: dict[Copy, tuple[str | None, str | None]] = {}
        self._turn = -1
        self._closed = False

    # Receiving

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that nobody has worked on, at most so many, from whichever namespace has them."""
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError("The max_wait_time must be greater than 0.")
        if max_message_count is not None and max_message_count <= 0:
            raise ValueError("The max_message_count must be greater than 0")
        wait_s = max_wait_time if max_wait_time is not None else self._max_wait_s
        return await self._receive(max_message_count or 1, WAIT_S if wait_s is None else wait_s)

    async def _receive(self, count: int, wait_s: float) -> list[ServiceBusReceivedMessage]:
        self._check_open()
        if self._before_first is not None:
            await self._before_first(self)
            self._before_first = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        begun = False
        while True:
            self._arrived.clear()
            found = await self._take(count)
            if found:
                return found
            if begun and all(lane.problem is not None for lane in self.lanes):
                raise self._problem()
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                # A fetch ends with the time that it was given, and may bring something at its last moment; what cannot
                # be given back is waited for, however long it takes.
                await asyncio.gather(*(lane.idle(None if self._deletes else GRACE_S) for lane in self.lanes))
                return await self._take(count)
            self._fetch(count, remaining_s, first=not begun)
            begun = True
            rests = [lane.rests_until - loop.time() for lane in self.lanes if lane.problem is not None]
            try:
                async with asyncio.timeout(max(min([remaining_s, *(rest for rest in rests if rest > 0)]), 0.01)):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    def _fetch(self, count: int, wait_s: float, first: bool) -> None:
        if self._holding.is_full:
            return
        if self.is_session:
            # Asked for several, the SDK gives back what arrives between two calls, and may have a later one first.
            count = 1
        resting = all(lane.problem is not None for lane in self.lanes)
        if not self._deletes:
            for lane in self.lanes:
                lane.fetch(count, wait_s, at_once=resting and first)
        elif not any(lane.is_fetching for lane in self.lanes):
            # What cannot be given back is fetched from one namespace at a time, and no more than was asked for.
            self._turn += 1
            self.lanes[self._turn % len(self.lanes)].fetch(count, wait_s, at_once=resting and first)

    def _problem(self) -> Exception:
        first, *others = [lane.problem for lane in self.lanes if lane.problem is not None]
        for lane, problem in zip(self.lanes[1:], others, strict=False):
            first.add_note(f"{lane.namespace}: {problem}")
        return first

    async def _take(self, count: int) -> list[ServiceBusReceivedMessage]:
        """What has arrived and may be handed out."""
        out: list[ServiceBusReceivedMessage] = []
        while len(out) < count and self._ready:
            arrival = self._ready.popleft()
            if not receiving_sdk.lock_expired(arrival.message):
                out.append(self._hand_out(arrival))
        while len(out) < count and (arrivals := self._arrivals(count - len(out))):
            claims = [
                Claim(
                    arrival.key,
                    arrival.copy,
                    self._ledger.lease_of(receiving_sdk.locked_for_s(arrival.message)),
                    State.DONE if self._deletes else None,
                )
                for arrival in arrivals
                if arrival.key is not None
            ]
            try:
                answers = await asyncio.gather(*(asyncio.wrap_future(future) for future in self._ledger.claim(claims)))
            except LedgerError:
                for arrival in reversed(arrivals):
                    arrival.lane.messages.appendleft(arrival.message)  # For the next one who asks.
                raise
            decisions = iter([answer.decision for answer in answers])
            for arrival in arrivals:
                decision = Decision.HAND_OUT if arrival.key is None else next(decisions)
                if decision is Decision.HAND_OUT:
                    out.append(self._hand_out(arrival))
                elif decision is Decision.HOLD:
                    self._holding.hold(arrival)
                else:
                    self._dispose(arrival, decision)
        return out

    def _arrivals(self, count: int) -> list[Arrival]:
        """Copies from all lanes in turn; those whose lock has run out meanwhile come again by themselves."""
        found: list[Arrival] = []
        while len(found) < count and any(lane.messages for lane in self.lanes):
            for lane in self.lanes:
                if lane.messages and len(found) < count:
                    message = lane.messages.popleft()
                    if self._deletes or not receiving_sdk.lock_expired(message):
                        found.append(self._arrival(lane, message))
        return found

    def _arrival(self, lane: Lane, message: Any) -> Arrival:
        tag = self._ledger.tag.of(*receiving_sdk.fields_of(message))
        if tag is None:
            self._ledger.counts["untagged"] += 1
        key = None if tag is None else Key(self.scope, tag)
        return Arrival(lane, message, key, Copy(lane.namespace, message.sequence_number))

    def _hand_out(self, arrival: Arrival) -> ServiceBusReceivedMessage:
        if arrival.key is not None:
            receiving_sdk.remember(arrival.message, arrival.key, arrival.copy)
        self._handed_out(arrival.message)
        message: ServiceBusReceivedMessage = arrival.message
        return message

    def _dispose(self, arrival: Arrival, decision: Decision) -> None:
        """The work is done: the copy is settled, as the first one was, and nobody waits for that."""
        self.counts[decision.name.lower()] += 1
        if self._deletes:
            return

        async def settle() -> None:
            try:
                if decision is Decision.DEAD_LETTER:
                    reason, text = self._again.pop(arrival.copy, (None, None))
                    await arrival.lane.call(lambda r: r.dead_letter_message(arrival.message, reason, text))
                else:
                    await arrival.lane.call(lambda r: r.complete_message(arrival.message))
            except Exception as error:
                # It comes again, and is settled then.
                _log.info(
                    "receive.unsettled",
                    "a second copy from {namespace} could not be settled: {error}",
                    namespace=arrival.lane.namespace,
                    error=error,
                )

        task = asyncio.get_running_loop().create_task(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Settling

    @tracing.settles("complete")
    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """The work is done: marked in the ledger first, then told to the broker."""
        await self._mark(message, State.DONE)
        await self._settle(message, lambda receiver: receiver.complete_message(message))

    @tracing.settles("dead_letter")
    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Nobody is to work on it: the ledger counts it as done, the copy goes to its dead-letter queue."""
        handed = receiving_sdk.handed(message)
        await self._mark(message, State.DEAD_LETTERED)
        if handed is not None:
            self._again[handed[1]] = (reason, error_description)
            while len(self._again) > AGAIN_MAX:
                del self._again[next(iter(self._again))]
        if await self._settle(message, lambda r: r.dead_letter_message(message, reason, error_description)) and handed:
            self._again.pop(handed[1], None)

    @tracing.settles("abandon")
    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give it back; the same copy is handed out again."""
        await self._settle(message, lambda receiver: receiver.abandon_message(message))

    @tracing.settles("defer")
    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Put it aside under its number; its other copies are not needed any more."""
        if await self._settle(message, lambda receiver: receiver.defer_message(message)):
            await self._mark(message, State.DEFERRED)

    async def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Lock it for longer, and let its claim hold for longer."""
        until = await self._lane(message).call(lambda r: r.renew_message_lock(message, timeout=timeout, **kwargs))
        handed = receiving_sdk.handed(message)
        if handed is not None:
            await asyncio.wrap_future(self._ledger.extend(*handed, receiving_sdk.locked_for_s(message) or 0.0))
        return until

    async def _mark(self, message: ServiceBusReceivedMessage, state: State) -> None:
        self._check_open()
        handed = receiving_sdk.handed(message)
        if handed is not None:
            await asyncio.wrap_future(self._ledger.mark(*handed, state))

    async def _settle(self, message: ServiceBusReceivedMessage, work: Callable[[Any], Awaitable[None]]) -> bool:
        """Tell the broker; whether it has heard it. A copy whose lock is lost comes again, and is judged then."""
        lane = self._lane(message)
        try:
            await lane.call(work)
        except Exception as error:
            if not self._goes_on or not (
                receiving_sdk.is_lock_lost(error, message) or sdk.failure_of(error) in _PASSING
            ):
                raise
            self.counts["settled_later"] += 1
            _log.info(
                "receive.unsettled",
                "a message from {namespace} could not be settled, and comes again: {error}",
                namespace=lane.namespace,
                error=error,
            )
            return False
        return True

    # What else the SDK's receiver does

    async def receive_deferred_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were put aside, from whichever namespace has them under these numbers."""
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        found: list[ServiceBusReceivedMessage] = []
        problem: Exception | None = None
        for number in numbers:
            for lane in self.lanes:
                try:
                    brought = await lane.call(
                        lambda r, n=number: r.receive_deferred_messages(n, timeout=timeout, **kwargs)  # type: ignore[misc]
                    )
                except Exception as error:
                    problem = error
                    continue
                lane.messages.extend(brought)
        found = await self._take(max(len(numbers), 1))
        if numbers and not found and problem is not None:
            raise problem
        return found

    async def peek_messages(self, max_message_count: int = 1, **kwargs: Any) -> list[ServiceBusReceivedMessage]:
        """A look at both namespaces; copies of one message are shown once."""
        found: dict[str, ServiceBusReceivedMessage] = {}
        problems: list[Exception] = []
        for lane in self.lanes:
            try:
                peeked = await lane.call(lambda r: r.peek_messages(max_message_count, **kwargs))
            except Exception as error:
                problems.append(error)
                continue
            for message in peeked:
                tag = self._ledger.tag.of(*receiving_sdk.fields_of(message))
                found.setdefault(tag or f"{lane.namespace} {message.sequence_number}", message)
        if len(problems) == len(self.lanes):
            raise problems[0]
        return list(found.values())[:max_message_count]

    @property
    def session(self) -> Any:
        """The session of both namespaces, locked and renewed together; None without sessions."""
        return receiving_sdk.PairedSession([lane.receiver.session for lane in self.lanes]) if self.is_session else None

    # Iteration, and the end

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        return self

    async def __anext__(self) -> ServiceBusReceivedMessage:
        """The next message; the end comes when none arrives within the receiver's max_wait_time."""
        while True:
            found = await self._receive(1, LONG_S if self._max_wait_s is None else self._max_wait_s)
            if found:
                return found[0]
            if self._max_wait_s is not None:
                raise StopAsyncIteration

    async def close(self) -> None:
        """Let go of everything; what was held goes back to its queue."""
        if self._closed:
            return
        self._closed = True
        await self._holding.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(lane.close() for lane in self.lanes), return_exceptions=True)

    async def __aenter__(self) -> ReplicatedReceiver:
        self._check_open()
        if self._before_first is not None:
            await self._before_first(self)
            self._before_first = None
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The receiver has been closed. Please use the client to create a new one.")

    def _lane(self, message: ServiceBusReceivedMessage) -> Lane:
        receiver = receiving_sdk.receiver_of(message)
        for lane in self.lanes:
            if lane.brought(receiver):
                return lane
        raise ValueError("The message was not handed out by this receiver.")
