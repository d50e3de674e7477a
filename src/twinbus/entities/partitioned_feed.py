"""Feeds the receivers of a partitioned queue from all its fragments: fairly, and never more than a receiver can take.

A receiver's demand is divided among the fragments that may have something, so that no lock ticks for a message that
nobody has room for. Inside a session a receiver is served by the feed of the one fragment where the session lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from twinbus.entities.feed import ACQUIRE_MAX, WAKE_AT_ONCE, Feed, Receiver, SessionRequest
from twinbus.entities.fragments import Fragment, FragmentPort
from twinbus.entities.partitions import fragment_of, fragment_of_token
from twinbus.entities.ports import StorePort
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin
from twinbus.store.commands import AcceptSession, Acquire


class PartitionedFeed(Feed):
    """The receivers of one queue of a partitioned entity."""

    def __init__(self, fragments: Sequence[Fragment], sub_queue: int) -> None:
        self.ports: list[StorePort] = [FragmentPort(fragment) for fragment in fragments]
        super().__init__(fragments[0].number(sub_queue), self.ports[0])
        self.parts = [
            _FragmentFeed(self, fragment.index, fragment.number(sub_queue), self.ports[fragment.index])
            for fragment in fragments
        ]
        self._asked: dict[Receiver, dict[int, Acquire]] = {}  # What is under way, by fragment.
        # Fragments that may have messages, the one that was asked longest ago first.
        self._ready: dict[int, None] = dict.fromkeys(range(len(fragments)))
        self._hints = [0] * len(fragments)  # So that an answer older than a hint does not silence it.
        self._down: set[int] = set()  # Fragments that failed, until they are hinted at or their store is back.
        self._todo: dict[SessionRequest, list[int]] = {}  # Fragments that each wish for a session has yet to ask.
        self._first_session = 0
        self._granted: dict[int, int] = {}  # By link: the fragment of the session that it was granted.
        self._seats: dict[Receiver, int] = {}
        self._holds: dict[str, int] = {}  # Where the sessions lie that are held through this feed.

    @property
    def is_idle(self) -> bool:
        """Whether nobody is here."""
        busy = self._waiting or self._asked or self._todo or self._watchers
        return not busy and all(part.is_idle for part in self.parts)

    def is_busy(self, receiver: Receiver) -> bool:
        """Whether some fragment is being asked for this receiver."""
        seat = self._seats.get(receiver)
        return receiver in self._asked if seat is None else self.parts[seat].is_busy(receiver)

    def asked_for(self, receiver: Receiver) -> int:
        """How much of its demand is being asked for."""
        seat = self._seats.get(receiver)
        if seat is not None:
            return self.parts[seat].asked_for(receiver)
        return sum(command.limit for command in self._asked.get(receiver, {}).values())

    # Messages outside of sessions

    def pull(self, receiver: Receiver) -> None:
        """The receiver's demand may have grown."""
        seat = self._seats.get(receiver)
        if seat is not None:
            self.parts[seat].pull(receiver)
            return
        self._admit_returned()
        if not any(port.is_available for port in self.ports):
            self._waiting.pop(receiver, None)
            if receiver not in self._asked:
                receiver.failed(_unavailable())
            return
        self._ask(receiver)

    def _admit_returned(self) -> None:
        for index in [each for each in self._down if self.ports[each].is_available]:
            self._down.discard(index)
            self._ready[index] = None

    def _ask(self, receiver: Receiver) -> bool:
        """Divide what the receiver still wants among the fragments; False if there is nobody to ask, or no need."""
        if receiver in self._gone:
            return False
        asked = self._asked.get(receiver, {})
        wanted = min(receiver.demand(), ACQUIRE_MAX) - sum(command.limit for command in asked.values())
        self._waiting.pop(receiver, None)
        if wanted <= 0:
            return False
        chosen = [index for index in self._ready if index not in asked and self.ports[index].is_available][:wanted]
        if not chosen:
            self._waiting[receiver] = None
            return False
        asked = self._asked.setdefault(receiver, asked)
        share, more = divmod(wanted, len(chosen))
        bounds = receiver.bounds
        for position, index in enumerate(chosen):
            del self._ready[index]
            self._ready[index] = None
            asked[index] = command = Acquire(
                queue=self.parts[index].queue,
                origin=receiver.origin,
                limit=share + (position < more),
                mode=receiver.mode,
                owner=receiver.owner,
                holder=receiver.holder,
                max_bytes=bounds.max_bytes // len(chosen),
                frame_bytes=bounds.frame_bytes,
                done=partial(self._answered, receiver, index, self._hints[index]),
            )
            self.ports[index].submit(command)
        return True

    def _answered(self, receiver: Receiver, index: int, hints: int, command: Acquire) -> None:
        asked = self._asked[receiver]
        del asked[index]
        if not asked:
            del self._asked[receiver]
        if receiver in self._gone:
            if not asked:
                self._gone.discard(receiver)
            self.parts[index].give_back(command.result, receiver.origin)
            return
        error = command.error
        if error is not None and error.fault is not Fault.STORE_UNAVAILABLE:
            receiver.failed(error)
            return
        had_more = error is None and (len(command.result) >= command.limit or command.truncated)
        if error is not None:
            self._ready.pop(index, None)
            self._down.add(index)
        elif not had_more and hints == self._hints[index]:
            self._ready.pop(index, None)
        if command.result:
            receiver.deliver(command.result)
        self._ask(receiver)
        if not command.result and receiver not in self._asked:
            if len(self._down) == len(self.parts):
                self._waiting.pop(receiver, None)
                receiver.failed(error or _unavailable())
            else:
                receiver.deliver(command.result)  # That there is nothing is an answer too.
        if had_more and self._waiting:
            self._ask(next(iter(self._waiting)))

    def give_back(self, messages: list[Delivered], origin: Origin) -> None:
        """Return locked messages that could not be handed over."""
        by_fragment: dict[int | None, list[Delivered]] = {}
        for message in messages:
            by_fragment.setdefault(fragment_of_token(message.token), []).append(message)
        for index, returned in by_fragment.items():
            if index is not None:
                self.parts[index].give_back(returned, origin)

    def leave(self, receiver: Receiver, gives_session_back: bool = True) -> None:
        """The receiver is gone."""
        self._waiting.pop(receiver, None)
        if receiver in self._asked:
            self._gone.add(receiver)
            for command in self._asked[receiver].values():
                command.withdrawn = True
        seat = self._seats.pop(receiver, None)
        if seat is not None:
            if receiver.session is not None and self._holds.get(receiver.session) == seat:
                del self._holds[receiver.session]
            self.parts[seat].leave(receiver, gives_session_back)

    def hinted(self, index: int) -> None:
        """Messages of a fragment may have become available."""
        self._hints[index] += 1
        self._down.discard(index)
        self._admit_returned()
        self._ready.setdefault(index, None)
        self._tell_watchers()
        woken = 0
        for receiver in list(self._waiting):
            woken += self._ask(receiver)
            if woken == WAKE_AT_ONCE:
                break

    def wake(self) -> None:
        """Messages may have become available in any fragment."""
        for part in self.parts:
            part.wake()

    def lost(self, error: BusError) -> None:
        """All stores of the queue are gone."""
        for part in self.parts:
            part.lost(error)

    def fragment_lost(self, error: BusError) -> None:
        """A fragment's store is gone: nobody need be told before it is the last."""
        if any(port.is_available for port in self.ports):
            return
        waiting, self._waiting = [*self._waiting], {}
        for receiver in waiting:
            if receiver not in self._asked:
                receiver.failed(error)
        for request in [each for each in self._todo if not each.asking]:
            del self._todo[request]
            request.done(None, error)
        self._tell_watchers()

    # Sessions

    def home_of(self, session: str) -> int:
        """The fragment of a session: where it is held, else where its messages go."""
        held = self._holds.get(session)
        return fragment_of(session) if held is None else held

    def request_session(self, request: SessionRequest) -> None:
        """Ask for a session: a named one where it lies, any other in one fragment after the other."""
        if request.session is not None:
            self._todo[request] = [fragment_of(request.session)]
        else:
            count = len(self.parts)
            self._first_session = (self._first_session + 1) % count
            order = [(self._first_session + step) % count for step in range(count)]
            self._todo[request] = [index for index in order if self.ports[index].is_available] or order[:1]
        self._ask_for_session(request)

    def _ask_for_session(self, request: SessionRequest) -> None:
        index = self._todo[request].pop(0)
        request.asking = True
        self.ports[index].submit(
            AcceptSession(
                queue=self.parts[index].queue,
                origin=request.origin,
                session=request.session,
                owner=request.owner,
                holder=request.holder,
                done=partial(self._session_offered, request, index),
            )
        )

    def _session_offered(self, request: SessionRequest, index: int, command: AcceptSession) -> None:
        grant, error = command.result, command.error
        request.asking = False
        if request.withdrawn:
            if grant is not None:
                self.parts[index].release_session(grant.session_id, request.holder, request.origin)
            return
        if error is not None and error.fault is Fault.STORE_UNAVAILABLE and request.session is None:
            # The others are asked; only when none is left is this the answer.
            error = None if self._todo[request] or any(port.is_available for port in self.ports) else error
        if grant is None and error is None:
            if self._todo[request]:
                self._ask_for_session(request)
            return  # It waits: who was here already keeps its place.
        del self._todo[request]
        if grant is not None:
            self._granted[request.holder] = self._holds[grant.session_id] = index
        request.done(grant, error)

    def withdraw(self, request: SessionRequest) -> None:
        """The link no longer waits for a session."""
        request.withdrawn = True
        self._todo.pop(request, None)

    def seat(self, receiver: Receiver) -> None:
        """A receiver begins to serve the session that it was granted."""
        if receiver.session is not None:
            index = self._granted.pop(receiver.holder, self.home_of(receiver.session))
            self._seats[receiver] = index
            self.parts[index].seat(receiver)

    def release_session(self, session: str, holder: int, origin: Origin) -> None:
        """Give a session back."""
        self.parts[self.home_of(session)].release_session(session, holder, origin)

    def sessions_free(self, index: int, count: int) -> None:
        """Sessions of a fragment may be free: so many of those who wait ask there, and who is asking will."""
        for request in [each for each in self._todo if each.session is None]:
            todo = self._todo[request]
            if index not in todo:
                todo.append(index)
            if not request.asking and count > 0:
                count -= 1
                self._ask_for_session(request)


class _FragmentFeed(Feed):
    """What a fragment's store hints at concerns those who wait for any fragment; who holds a session here is here."""

    def __init__(self, whole: PartitionedFeed, index: int, queue: int, port: StorePort) -> None:
        super().__init__(queue, port)
        self._whole = whole
        self._index = index

    def wake(self) -> None:
        self._whole.hinted(self._index)

    def wake_sessions(self, sessions: set[str]) -> None:
        self._whole.sessions_free(self._index, self.wake_seated(sessions))

    def wake_any_session(self) -> None:
        self.wake_seated(set(self._sessions))
        self._whole.sessions_free(self._index, WAKE_AT_ONCE)

    def returned(self) -> None:
        self._whole.hinted(self._index)
        self._whole.sessions_free(self._index, WAKE_AT_ONCE)

    def lost(self, error: BusError) -> None:
        super().lost(error)
        self._whole.fragment_lost(error)


def _unavailable() -> BusError:
    return BusError(Fault.STORE_UNAVAILABLE, "None of the entity's messaging stores is available.")
