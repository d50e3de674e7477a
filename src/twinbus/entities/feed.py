"""Feeds the receivers of one queue: who has demand, who waits for a hint, who waits for a session.

Each receiver has at most one acquire under way. What the store hands out goes to `Receiver.deliver`; how it gets onto
the wire, and what a receiver's demand is, the gateway knows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from twinbus.entities.ports import StorePort
from twinbus.model.errors import BusError
from twinbus.model.message import Delivered, Origin, Outcome, ReceiveMode, SessionGrant, Settlement
from twinbus.store.commands import ACQUIRE_BYTES_MAX, AcceptSession, Acquire, ReleaseSession, Settle

ACQUIRE_MAX = 256


class Bounds(NamedTuple):
    """What one acquire may bring, beside how many messages."""

    max_bytes: int = ACQUIRE_BYTES_MAX
    frame_bytes: int = 0  # The demand is of frames, of which a message takes one for every so many bytes.


UNBOUNDED = Bounds()
# A hint wakes only this many of the waiting receivers; the others are woken in turn while messages last.
WAKE_AT_ONCE = 16


class Receiver(Protocol):
    """A link that takes messages from a queue."""

    mode: ReceiveMode
    owner: int
    holder: int
    session: str | None
    origin: Origin

    @property
    def bounds(self) -> Bounds:
        """What one acquire may bring."""
        ...

    def demand(self) -> int:
        """How many messages it can take now."""
        ...

    def deliver(self, messages: list[Delivered]) -> None:
        """Take messages; called after every acquire, with an empty list if there was nothing."""
        ...

    def failed(self, error: BusError) -> None:
        """The queue cannot serve it any more."""
        ...


class SessionRequest:
    """A link's wish for a session, until it is granted, refused or withdrawn."""

    __slots__ = ("asking", "done", "holder", "origin", "owner", "session", "withdrawn")

    def __init__(
        self,
        session: str | None,
        owner: int,
        holder: int,
        origin: Origin,
        done: Callable[[SessionGrant | None, BusError | None], None],
    ) -> None:
        self.session = session
        self.owner = owner
        self.holder = holder
        self.origin = origin
        self.done = done
        self.asking = False  # The store is being asked.
        self.withdrawn = False


class Feed:
    """The receivers of one queue (a main queue or a dead-letter queue)."""

    def __init__(self, queue: int, store: StorePort) -> None:
        self.queue = queue
        self._store = store
        self._waiting: dict[Receiver, None] = {}  # In the order in which they are to be served.
        self._busy: dict[Receiver, Acquire] = {}
        self._gone: set[Receiver] = set()  # Left while an acquire was under way.
        self._sessions: dict[str, Receiver] = {}
        self._acceptors: dict[SessionRequest, None] = {}  # In the order in which they came.
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here, so that the feed can be forgotten."""
        return not (self._waiting or self._busy or self._sessions or self._acceptors or self._watchers)

    def is_busy(self, receiver: Receiver) -> bool:
        """Whether an acquire for this receiver is under way."""
        return receiver in self._busy

    def asked_for(self, receiver: Receiver) -> int:
        """How much of its demand is being asked for."""
        command = self._busy.get(receiver)
        return 0 if command is None else command.limit

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have somebody called when there may be something new to see, or the store is gone; he takes nothing."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Call him no more."""
        self._watchers.pop(watcher, None)

    def _tell_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def pull(self, receiver: Receiver) -> None:
        """The receiver's demand may have grown: ask the store, unless it is being asked already."""
        if receiver in self._busy:
            return
        self._waiting.pop(receiver, None)
        limit = min(receiver.demand(), ACQUIRE_MAX)
        if limit <= 0:
            return
        bounds = receiver.bounds
        self._busy[receiver] = command = Acquire(
            queue=self.queue,
            origin=receiver.origin,
            limit=limit,
            mode=receiver.mode,
            owner=receiver.owner,
            session=receiver.session,
            holder=receiver.holder,
            max_bytes=bounds.max_bytes,
            frame_bytes=bounds.frame_bytes,
            done=partial(self._acquired, receiver),
        )
        self._store.submit(command)

    def _acquired(self, receiver: Receiver, command: Acquire) -> None:
        del self._busy[receiver]
        if receiver in self._gone:
            self._gone.discard(receiver)
            self.give_back(command.result, receiver.origin)
            return
        if command.error is not None:
            receiver.failed(command.error)
            return
        receiver.deliver(command.result)
        if len(command.result) < command.limit and not command.truncated:
            # The queue had no more: wait for a hint. Whoever comes later waits behind.
            if receiver.demand() > 0 and receiver not in self._busy:
                self._waiting[receiver] = None
        else:
            self.pull(receiver)
            if receiver.session is None and self._waiting:
                self.pull(next(iter(self._waiting)))

    def wait(self, receiver: Receiver) -> None:
        """Serve the receiver with the next hint, and not before."""
        self._waiting[receiver] = None

    def give_back(self, messages: list[Delivered], origin: Origin) -> None:
        """Return locked messages that could not be handed over; no delivery is counted."""
        settlements = [Settlement(m.token, Outcome.RELEASE) for m in messages if m.token]
        if settlements:
            self._store.submit(Settle(queue=self.queue, origin=origin, settlements=settlements))

    def leave(self, receiver: Receiver, gives_session_back: bool = True) -> None:
        """The receiver is gone; its locks stay until they expire or its connection breaks off."""
        self._waiting.pop(receiver, None)
        if receiver in self._busy:
            self._busy[receiver].withdrawn = True  # If the store has not come to it yet, nothing is taken for nobody.
            self._gone.add(receiver)
        if receiver.session is not None and self._sessions.get(receiver.session) is receiver:
            del self._sessions[receiver.session]
            if gives_session_back:
                self.release_session(receiver.session, receiver.holder, receiver.origin)

    def wake(self) -> None:
        """Messages may have become available."""
        if self._watchers:
            self._tell_watchers()
        woken = 0
        for receiver in list(self._waiting):
            if receiver.session is None:
                self.pull(receiver)
                woken += receiver in self._busy  # One whose demand is gone uses up no share of the hint.
                if woken == WAKE_AT_ONCE:
                    break

    # Sessions

    def request_session(self, request: SessionRequest) -> None:
        """Ask for a session; `request.done` is told when it is granted or refused. A wish for any session may wait."""
        request.asking = True
        self._store.submit(
            AcceptSession(
                queue=self.queue,
                origin=request.origin,
                session=request.session,
                owner=request.owner,
                holder=request.holder,
                done=partial(self._session_answered, request),
            )
        )

    def _session_answered(self, request: SessionRequest, command: AcceptSession) -> None:
        grant = command.result
        request.asking = False
        if request.withdrawn:
            if grant is not None:
                self.release_session(grant.session_id, request.holder, request.origin)
        elif command.error is not None or grant is not None:
            self._acceptors.pop(request, None)
            request.done(grant, command.error)
        else:
            self._acceptors[request] = None  # Who was here already keeps its place.

    def withdraw(self, request: SessionRequest) -> None:
        """The link no longer waits for a session."""
        request.withdrawn = True
        self._acceptors.pop(request, None)

    def seat(self, receiver: Receiver) -> None:
        """A receiver begins to serve the session that it was granted."""
        if receiver.session is not None:
            self._sessions[receiver.session] = receiver

    def release_session(self, session: str, holder: int, origin: Origin) -> None:
        """Give a session back to whoever wants it next."""
        self._store.submit(ReleaseSession(queue=self.queue, origin=origin, session=session, holder=holder))

    def wake_sessions(self, sessions: set[str]) -> None:
        """These sessions may have messages, or may be free."""
        free = self.wake_seated(sessions)
        idle = [request for request in self._acceptors if not request.asking]
        for request in idle[:free]:
            self.request_session(request)

    def wake_any_session(self) -> None:
        """Any session may have messages, or may be free: somebody else did something, and it is not known what."""
        self.wake_seated(set(self._sessions))
        idle = [request for request in self._acceptors if not request.asking]
        for request in idle[:WAKE_AT_ONCE]:
            self.request_session(request)

    def wake_seated(self, sessions: set[str]) -> int:
        """Serve those who hold one of these sessions; how many of the sessions nobody here holds."""
        free = 0
        for session in sessions:
            receiver = self._sessions.get(session)
            if receiver is None:
                free += 1
            elif receiver in self._waiting:
                self.pull(receiver)
        return free

    def session_lost(self, session: str, holder: int, error: BusError) -> None:
        """The lock of a session ended without the link's doing."""
        receiver = self._sessions.get(session)
        if receiver is not None and receiver.holder == holder:
            del self._sessions[session]
            self._waiting.pop(receiver, None)
            receiver.failed(error)

    def returned(self) -> None:
        """The queue's store is back."""
        self.wake()

    def lost(self, error: BusError) -> None:
        """The queue's store is gone, and all locks and sessions with it: everyone who waits or holds one is told."""
        told = dict.fromkeys([*self._waiting, *self._sessions.values()])
        requests = [request for request in self._acceptors if not request.asking]
        self._waiting.clear()
        self._sessions.clear()
        for receiver in told:
            receiver.failed(error)
        for request in requests:
            self._acceptors.pop(request, None)
            request.done(None, error)
        self._tell_watchers()
