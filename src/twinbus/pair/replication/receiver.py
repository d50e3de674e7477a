"""A receiver that reads one or two namespaces as one stream, with what the ledger knows already taken out.

It does what the SDK's receiver does, and hands out the SDK's messages. What is done with each copy is decided by
`ledger`; each namespace's own receiver is in `namespace_receiver`, held copies are looked after by `held_copies`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twinbus.model.logged import EventLog
from twinbus.pair import tracing
from twinbus.pair.errors import LedgerError
from twinbus.pair.ledger.decisions import Copy, Decision, Key, State
from twinbus.pair.ledger.ledger import LedgerCore, handed, remember
from twinbus.pair.replication.held_copies import Arrival, Holding, decisions_on
from twinbus.pair.replication.namespace_receiver import CLOSE_S, NamespaceReceiver
from twinbus.pair.route.failures import Failure
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk import received as receiving_sdk
from twinbus.pair.sdk.received import ServiceBusReceivedMessage

_log = EventLog(__name__)

WAIT_S = 60.0  # The SDK's own, where neither the call nor the receiver says.
LONG_S = 3600.0
GRACE_S = 0.3
AGAIN_MAX = 1000
_PASSING = (Failure.TIMEOUT, Failure.TRANSIENT)


class ReplicatedReceiving:
    """What a receiver of the SDK does, over one or two namespaces and a ledger."""

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
        before_first: Callable[[ReplicatedReceiving], Awaitable[None]] | None = None,
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
        self.sources = [NamespaceReceiver(name, make, self._arrived.set, sessions) for name, make in makers]
        self._ready: deque[Arrival] = deque()  # Held once, and now claimed for us.
        self._judging: dict[asyncio.Future[list[Arrival]], list[Arrival]] = {}  # What waits for the ledger's answer.
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
        await self.open()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        begun = False
        while True:
            self._arrived.clear()
            found = await self._take(count)
            if found:
                return found
            self._check_open()
            if begun and all(source.problem is not None for source in self.sources):
                raise self._problem()
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                # A fetch ends with the time that it was given, and may bring something at its last moment; what cannot
                # be given back is waited for, however long it takes.
                await asyncio.gather(*(source.idle(None if self._deletes else GRACE_S) for source in self.sources))
                return await self._take(count)
            self._fetch(count, remaining_s, first=not begun)
            begun = True
            rests = [source.rests_until - loop.time() for source in self.sources if source.problem is not None]
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
        resting = all(source.problem is not None for source in self.sources)
        if not self._deletes:
            for source in self.sources:
                source.fetch(count, wait_s, at_once=resting and first)
        elif not any(source.is_fetching for source in self.sources):
            # What cannot be given back is fetched from one namespace at a time, and no more than was asked for.
            self._turn += 1
            self.sources[self._turn % len(self.sources)].fetch(count, wait_s, at_once=resting and first)

    def _problem(self) -> Exception:
        first, *others = [source.problem for source in self.sources if source.problem is not None]
        for source, problem in zip(self.sources[1:], others, strict=False):
            first.add_note(f"{source.namespace}: {problem}")
        return first

    async def _take(self, count: int) -> list[ServiceBusReceivedMessage]:
        """What has arrived and may be handed out."""
        if not self._deletes:  # What is deleted already must reach the caller, even now.
            self._check_open()
        taken: list[Arrival] = []
        while len(taken) < count and self._ready:
            arrival = self._ready.popleft()
            if not receiving_sdk.lock_expired(arrival.message):
                taken.append(arrival)
        try:
            while len(taken) < count and (arrivals := self._arrivals(count - len(taken))):
                taken += await self._judged(arrivals, aside=taken)
        except BaseException:
            if not self._closed:
                self._ready.extendleft(reversed(taken))  # For the next one who asks.
            raise
        return [self._hand_out(arrival) for arrival in taken]

    async def _judged(
        self, arrivals: list[Arrival], *, aside: Sequence[Arrival] = (), deferred: bool = False
    ) -> list[Arrival]:
        """Those that may be handed out; the others are held or settled. `aside` are those that wait for these.

        Who gives up waiting leaves them to the next one who asks: the ledger may have marked them already.
        """
        judging = asyncio.ensure_future(self._judge(arrivals, deferred))
        self._judging[judging] = [*aside, *arrivals]
        judging.add_done_callback(self._judging.pop)
        try:
            return await asyncio.shield(judging)
        except asyncio.CancelledError:
            judging.add_done_callback(lambda _: self._leave(judging, deferred))
            raise

    async def _judge(self, arrivals: list[Arrival], deferred: bool) -> list[Arrival]:
        try:
            decisions = await decisions_on(arrivals, self._ledger, State.DONE if self._deletes else None)
        except LedgerError:
            self._put_back(arrivals, deferred)
            raise
        if not self._deletes:
            self._check_open()
        out = []
        for arrival, decision in zip(arrivals, decisions, strict=True):
            if decision is Decision.HAND_OUT:
                out.append(arrival)
            elif decision is not Decision.HOLD:
                self._dispose(arrival, decision)
            elif deferred:
                self._put_back([arrival], deferred)
            else:
                self._holding.hold(arrival)
        return out

    def _leave(self, judging: asyncio.Future[list[Arrival]], deferred: bool) -> None:
        """Nobody waits for these any more."""
        if judging.cancelled() or judging.exception() is not None or self._closed:
            return
        if deferred:
            self._put_back(judging.result(), deferred)
        else:
            self._ready.extend(judging.result())
            self._arrived.set()

    def _put_back(self, arrivals: list[Arrival], deferred: bool) -> None:
        """For the next one who asks; a deferred message is deferred again. When it is closed, that is seen to."""
        for arrival in reversed(arrivals) if not self._closed else ():
            if deferred:
                self._settle_apart(arrival, lambda r, message=arrival.message: r.abandon_message(message))  # type: ignore[misc]
            else:
                arrival.source.messages.appendleft(arrival.message)

    def _arrivals(self, count: int) -> list[Arrival]:
        """Copies from all sources in turn; those whose lock has run out meanwhile come again by themselves."""
        found: list[Arrival] = []
        while len(found) < count and any(source.messages for source in self.sources):
            for source in self.sources:
                if source.messages and len(found) < count:
                    message = source.messages.popleft()
                    if self._deletes or not receiving_sdk.lock_expired(message):
                        found.append(self._arrival(source, message))
        return found

    def _arrival(self, source: NamespaceReceiver, message: Any) -> Arrival:
        tag = self._ledger.tag.of(*sdk.fields_of(message))
        if tag is None:
            self._ledger.counts["untagged"] += 1
        key = None if tag is None else Key(self.scope, tag)
        return Arrival(source, message, key, Copy(source.namespace, message.sequence_number))

    def _hand_out(self, arrival: Arrival) -> ServiceBusReceivedMessage:
        if arrival.key is not None:
            remember(arrival.message, arrival.key, arrival.copy)
        self._handed_out(arrival.message)
        message: ServiceBusReceivedMessage = arrival.message
        return message

    def _dispose(self, arrival: Arrival, decision: Decision) -> None:
        """The work is done: the copy is settled, as the first one was, and nobody waits for that."""
        self.counts[decision.name.lower()] += 1
        if decision is Decision.DEAD_LETTER:
            reason, text = self._again.pop(arrival.copy, (None, None))
            self._settle_apart(arrival, lambda r: r.dead_letter_message(arrival.message, reason, text))
        else:
            self._settle_apart(arrival, lambda r: r.complete_message(arrival.message))

    def _settle_apart(self, arrival: Arrival, work: Callable[[Any], Awaitable[None]]) -> None:
        if self._deletes:
            return

        async def settle() -> None:
            try:
                await arrival.source.call(work)
            except Exception as error:
                # It comes again, and is settled then.
                _log.info(
                    "receive.unsettled",
                    "a second copy from {namespace} could not be settled: {error}",
                    namespace=arrival.source.namespace,
                    error=error,
                )

        task = asyncio.get_running_loop().create_task(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Settling

    @tracing.settles("complete")
    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """The work is done: marked in the ledger first, then settled at the broker."""
        await self._mark(message, State.DONE)
        await self._settle(message, lambda receiver: receiver.complete_message(message))

    @tracing.settles("dead_letter")
    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Nobody is to work on it: the ledger counts it as done, the copy goes to its dead-letter queue."""
        found = handed(message)
        await self._mark(message, State.DEAD_LETTERED)
        if found is not None:
            self._again[found[1]] = (reason, error_description)
            while len(self._again) > AGAIN_MAX:
                del self._again[next(iter(self._again))]
        if await self._settle(message, lambda r: r.dead_letter_message(message, reason, error_description)) and found:
            self._again.pop(found[1], None)

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
        until = await self._source(message).call(lambda r: r.renew_message_lock(message, timeout=timeout, **kwargs))
        found = handed(message)
        if found is not None:
            await asyncio.wrap_future(self._ledger.extend(*found, receiving_sdk.locked_for_s(message) or 0.0))
        return until

    async def _mark(self, message: ServiceBusReceivedMessage, state: State) -> None:
        self._check_open()
        found = handed(message)
        if found is not None:
            await asyncio.wrap_future(self._ledger.mark(*found, state))

    async def _settle(self, message: ServiceBusReceivedMessage, work: Callable[[Any], Awaitable[None]]) -> bool:
        """Tell the broker; whether it has heard it. A copy whose lock is lost comes again, and is judged then."""
        source = self._source(message)
        try:
            await source.call(work)
        except Exception as error:
            if not self._goes_on or not (
                receiving_sdk.is_lock_lost(error, message) or sdk.failure_of(error) in _PASSING
            ):
                raise
            self.counts["settled_later"] += 1
            _log.info(
                "receive.unsettled",
                "a message from {namespace} could not be settled, and comes again: {error}",
                namespace=source.namespace,
                error=error,
            )
            return False
        return True

    # What else the SDK's receiver does

    async def receive_deferred_messages(
        self,
        sequence_numbers: int | list[int],
        *,
        namespace: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were put aside under these numbers, in one namespace or in any: a number may be in both."""
        await self.open()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        sources = [source for source in self.sources if namespace in (None, source.namespace)]
        if not sources:
            raise ValueError(f"There is no namespace {namespace!r}: {', '.join(s.namespace for s in self.sources)}.")
        found: list[Arrival] = []
        problems: list[Exception] = []
        for number, source in ((number, source) for number in numbers for source in sources):
            try:
                brought = await source.call(
                    lambda r, n=number: r.receive_deferred_messages(n, timeout=timeout, **kwargs)  # type: ignore[misc]
                )
            except Exception as error:
                problems.append(error)
            else:
                found += [self._arrival(source, message) for message in brought]
        if problems and not found:
            # That one namespace has no such message says nothing where the other could not be asked.
            raise next((each for each in problems if not receiving_sdk.is_not_found(each)), problems[0])
        return [self._hand_out(arrival) for arrival in await self._judged(found, deferred=True)]

    def namespace_of(self, message: ServiceBusReceivedMessage) -> str:
        """The namespace that a message was handed out from: with its number, it is known for ever."""
        return self._source(message).namespace

    async def peek_messages(self, max_message_count: int = 1, **kwargs: Any) -> list[ServiceBusReceivedMessage]:
        """A look at both namespaces; copies of one message are shown once."""
        await self.open()
        found: dict[str, ServiceBusReceivedMessage] = {}
        problems: list[Exception] = []
        for source in self.sources:
            try:
                peeked = await source.call(lambda r: r.peek_messages(max_message_count, **kwargs))
            except Exception as error:
                problems.append(error)
                continue
            for message in peeked:
                tag = self._ledger.tag.of(*sdk.fields_of(message))
                found.setdefault(tag or f"{source.namespace} {message.sequence_number}", message)
        if len(problems) == len(self.sources):
            raise problems[0]
        return list(found.values())[:max_message_count]

    @property
    def session(self) -> Any:
        """The session of both namespaces, locked and renewed together; None without sessions."""
        return (
            receiving_sdk.PairedSession([source.receiver.session for source in self.sources])
            if self.is_session
            else None
        )

    # Iteration, and the end

    async def following(self) -> ServiceBusReceivedMessage | None:
        """The next message; None when none arrives within the receiver's max_wait_time."""
        while True:
            found = await self._receive(1, LONG_S if self._max_wait_s is None else self._max_wait_s)
            if found:
                return found[0]
            if self._max_wait_s is not None:
                return None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    async def close(self) -> None:
        """Let go of everything; what was not handed out goes back to its queue."""
        if self._closed:
            return
        self._closed = True
        unseen = {id(arrival.message): arrival for judged in self._judging.values() for arrival in judged}
        unseen |= {id(arrival.message): arrival for arrival in await self._holding.close()}
        for arrival in unseen.values():
            arrival.source.messages.append(arrival.message)  # The source gives it back as it closes.
        if self._tasks:
            _, unfinished = await asyncio.wait(set(self._tasks), timeout=CLOSE_S)
            for task in unfinished:
                task.cancel()
        await asyncio.gather(*(source.close() for source in self.sources), return_exceptions=True)

    async def open(self) -> None:
        """Open what must be open before anything can be received."""
        self._check_open()
        if self._before_first is not None:
            await self._before_first(self)
            self._before_first = None

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("The receiver has been closed. Please use the client to create a new one.")

    def _source(self, message: ServiceBusReceivedMessage) -> NamespaceReceiver:
        receiver = receiving_sdk.receiver_of(message)
        for source in self.sources:
            if source.brought(receiver):
                return source
        raise ValueError("The message was not handed out by this receiver.")
