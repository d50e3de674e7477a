"""Links of the SDK that carry messages opaque, many at a time, and know the outcome of each.

The SDK connects, proves who we are, attaches and reads frames. What its links do with transfers, dispositions and
credit is replaced on each link: its own decode every message, forget the types in it, send one after the other, and
do not wait for the answer to a settlement. Where messages go is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

from azure.servicebus._pyamqp.error import AMQPError
from azure.servicebus._pyamqp.outcomes import Accepted, Modified, Rejected, Released
from azure.servicebus._pyamqp.performatives import DispositionFrame
from azure.servicebus.aio import _async_utils

from twinbus.client.endpoint import within
from twinbus.client.errors import CONNECTION_LOST, LINK_CLOSED, UNREACHABLE, ClientError, of_several
from twinbus.client.requests import refusal
from twinbus.model.logged import EventLog
from twinbus.model.message import Outcome
from twinbus.pair.sdk.client_errors import MISTAKES, as_client_error, refused, text

_log = EventLog(__name__)

WINDOW = 100  # Transfers of a link that wait for their outcome.
LISTEN_S = 5.0  # How long one look for frames waits; between two of them tokens are renewed.
IDLE_S = 60  # A peer that says nothing at all for so long is gone.
CLOSE_S = 2.0
_FRAMES = 1000
_DEAD_LETTER = b"com.microsoft:dead-letter"
_ALREADY = "amqp:illegal-state"
_OK, _NOTHING = 200, (202, 204)

# Not typed there.
_authentication: Any = _async_utils.create_authentication

_Fate = asyncio.Future[ClientError | None]


class SdkLink(ABC):
    """One link of the SDK on a connection of its own, which is listened to as long as it is open."""

    def __init__(self, handler: Any, path: str, timeout_s: float) -> None:
        """`handler` is a sender or receiver of the SDK that was not opened."""
        self.path = path
        self.error: ClientError | None = None
        self._handler = handler
        self._timeout_s = timeout_s
        self._link: Any = None
        self._pending: dict[int, _Fate] = {}  # What waits for an outcome, by delivery.
        self._waiters: set[asyncio.Future[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._requesting = asyncio.Lock()
        self._may_listen = asyncio.Event()
        self._may_listen.set()
        self._loop = asyncio.get_running_loop()

    async def open(self, extra_s: float = 0.0) -> None:
        """Connect and attach; a ClientError that is definite, as nothing was sent, says why not."""
        try:
            await within(self._timeout_s + extra_s, self._open(), f"attaching to '{self.path}'")
        except BaseException as problem:
            self.error = ClientError(LINK_CLOSED, f"the link to '{self.path}' was given up")
            await _break_off(self._handler)
            if isinstance(problem, ClientError):
                raise problem.but(definite=True) from problem
            raise

    async def _open(self) -> None:
        amqp = await connected(self._handler)
        try:
            while not await amqp.client_ready_async():
                await asyncio.sleep(0)
        except MISTAKES:
            raise
        except Exception as problem:
            raise as_client_error(problem, UNREACHABLE) from problem
        self._handler._running = True
        self._link = amqp._link
        self._take_over(self._link)
        self._listening = asyncio.create_task(self._listen(amqp))

    def _take_over(self, link: Any) -> None:
        """What comes for the link is for us from now on."""
        link._incoming_disposition = self._disposed
        link._incoming_flow = self._flowed

    @property
    def message_bytes_max(self) -> int | None:
        """The largest message that the peer takes; None if it does not say."""
        return self._link.remote_max_message_size or None

    def check(self) -> None:
        """Raises why the link is gone, if it is; what was to be done now has certainly not happened."""
        if self.error is not None:
            raise self.error.but(definite=True)

    # Listening

    async def _listen(self, amqp: Any) -> None:
        try:
            while True:
                await self._may_listen.wait()
                if self._link.get_state().name != "ATTACHED":
                    raise ClientError(CONNECTION_LOST, f"the link to '{self.path}' was detached")
                await amqp.auth_complete_async()
                await amqp._connection.listen(wait=LISTEN_S, batch=_FRAMES)
        except Exception as problem:
            if isinstance(problem, MISTAKES):
                _log.exception("sdk.link.failed", "the link to '{entity}' failed", entity=self.path)
            self._lose(as_client_error(problem, CONNECTION_LOST))
        finally:
            if self.error is not None and self.error.condition == LINK_CLOSED:
                with suppress(Exception):
                    async with asyncio.timeout(CLOSE_S):
                        await self._handler.close()
            await _break_off(self._handler)

    def _lose(self, error: ClientError) -> None:
        """The link is gone: what is on its way may have arrived."""
        if self.error is None:
            self.error = error
        pending, self._pending = self._pending, {}
        for fate in pending.values():
            _decide(fate, self.error.but(definite=False))
        self._changed()

    async def close(self) -> None:
        """Detach and disconnect."""
        if self._listening is not None:
            self._lose(ClientError(LINK_CLOSED, f"the link to '{self.path}' was closed"))
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _until(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until something came that makes it so, or the time is over; raises if the link is lost meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    self.check()
                    waiter: asyncio.Future[None] = self._loop.create_future()
                    self._waiters.add(waiter)
                    try:
                        await waiter
                    finally:
                        self._waiters.discard(waiter)

    def _changed(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    @abstractmethod
    async def _flowed(self, frame: Any) -> None:
        """The SDK hands a flow on."""

    @abstractmethod
    async def _disposed(self, frame: Any) -> None:
        """The SDK hands on what the peer says of deliveries."""

    def _settled(self, frame: Any, expected: Callable[[int], str]) -> None:
        """The peer decided on deliveries of ours."""
        first, last, state = frame[1], frame[1] if frame[2] is None else frame[2], frame[4]
        for number in [number for number in self._pending if first <= number <= last]:
            _decide(self._pending.pop(number), refused(state, expected(number)))
        self._changed()

    # Requests

    async def ask(self, operation: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the entity's management node; None if the answer is that there is nothing."""
        return await within(self._timeout_s, self._ask(operation, body), f"'{operation}' on '{self.path}'")

    async def _ask(self, operation: str, body: dict[str, Any]) -> dict[str, Any] | None:
        async with self._requesting:
            self.check()
            # The SDK's requests look for their answer themselves: one that somebody else has read they notice late.
            self._may_listen.clear()
            try:
                answer: dict[str, Any] | None = await self._handler._mgmt_request_response(
                    f"com.microsoft:{operation}".encode(), body, _answer, timeout=self._timeout_s
                )
            except (ClientError, *MISTAKES):
                raise
            except Exception as problem:
                # The link says better than its socket why it is gone.
                gone = self._link._error or problem
                raise as_client_error(gone, CONNECTION_LOST).but(definite=False) from problem
            finally:
                self._may_listen.set()
            return answer


class SendLink(SdkLink):
    """A link that sends encoded messages."""

    def __init__(self, handler: Any, path: str, timeout_s: float) -> None:
        super().__init__(handler, path, timeout_s)
        self._turn = asyncio.Lock()  # A message in several frames is not interrupted by another.
        self._tags = itertools.count(1)

    async def send(self, payloads: Sequence[bytes], message_format: int = 0) -> None:
        """Return when all are accepted; otherwise raise a ClientError that knows which are not."""
        self.check()
        fates: list[_Fate] = []
        failed: dict[int, ClientError] = {}
        try:
            for payload in payloads:
                fates.append(await self._transfer(payload, message_format))
        except ClientError as error:
            failed = dict.fromkeys(range(len(fates), len(payloads)), error)
        for position, fate in enumerate(fates):
            if (decided := await fate) is not None:
                failed[position] = decided
        if failed:
            raise of_several(failed, len(payloads))

    async def leave(self) -> None:
        """Close it when nobody waits for an outcome any more."""
        with suppress(ClientError):
            await self._until(lambda: all(fate.done() for fate in self._pending.values()), self._timeout_s)
        await self.close()

    async def _transfer(self, payload: bytes, message_format: int) -> _Fate:
        async with self._turn:
            await self._until(self._has_room)
            self.check()
            link, session = self._link, self._link._session
            fate = self._pending[session.next_outgoing_id] = self._loop.create_future()
            frame = {
                "handle": link.handle,
                "delivery_tag": next(self._tags).to_bytes(4, "big"),
                "message_format": message_format,
                "settled": False,
                "more": False,
                "rcv_settle_mode": None,
                "state": None,
                "resume": None,
                "aborted": None,
                "batchable": None,
                "payload": payload,
            }
            link.delivery_count += 1
            link.current_link_credit -= 1
            try:
                await session._outgoing_transfer(SimpleNamespace(frame=frame, transfer_state=None), None)
            except BaseException as problem:
                # A part of it may be on the wire, and nothing can follow it.
                self._pending = {number: other for number, other in self._pending.items() if other is not fate}
                self._lose(as_client_error(problem, CONNECTION_LOST))
                if self._listening is not None:
                    self._listening.cancel()
                if isinstance(problem, Exception):
                    raise as_client_error(problem, CONNECTION_LOST).but(definite=True) from problem
                raise
            return fate

    def _has_room(self) -> bool:
        link = self._link
        return link.current_link_credit > 0 and link._session.remote_incoming_window > 0 and len(self._pending) < WINDOW

    async def _flowed(self, frame: Any) -> None:
        if frame[4] is not None:  # The flow is about this link, not only about its session.
            self._link.current_link_credit = (frame[5] or 0) + (frame[6] or 0) - self._link.delivery_count
        self._changed()

    async def _disposed(self, frame: Any) -> None:
        if frame[0]:  # The role of who says it: a receiver.
            self._settled(frame, lambda _: "accepted")


class Arrived(NamedTuple):
    """A message as it came."""

    delivery: int
    payload: bytes


_STATES: dict[Outcome, tuple[str, Any]] = {
    Outcome.COMPLETE: ("accepted", Accepted()),
    Outcome.ABANDON: ("modified", Modified(True, False, None)),
    Outcome.RELEASE: ("released", Released()),
}


class ReceiveLink(SdkLink):
    """A link that fetches encoded messages under lock: what it is asked for, nothing more."""

    def __init__(self, handler: Any, path: str, timeout_s: float) -> None:
        super().__init__(handler, path, timeout_s)
        self.session_id: str | None = None
        self._parts: list[bytes] = []
        self._first = 0  # The delivery that the parts belong to.
        self._buffer: deque[Arrived] = deque()
        self._held: set[int] = set()
        self._expected: dict[int, str] = {}
        self._asking = asyncio.Lock()
        self._is_draining = False

    def _take_over(self, link: Any) -> None:
        super()._take_over(link)
        link._incoming_transfer = self._transferred
        session = getattr(self._handler, "session", None)
        self.session_id = None if session is None else session.session_id

    async def receive(self, max_count: int, timeout_s: float | None = None) -> list[Arrived]:
        """At least one message if there is one within the time, and at most `max_count`; else an empty list."""
        async with self._asking:
            missing = max_count - len(self._buffer)
            if missing > 0:
                self.check()
                await self._grant(missing)
                await self._until(lambda: bool(self._buffer), timeout_s)
                await self._drain()
            return [self._buffer.popleft() for _ in range(min(max_count, len(self._buffer)))]

    async def _grant(self, credit: int, drain: bool = False) -> None:
        self._is_draining = drain
        self._link.current_link_credit = credit
        try:
            await self._link._outgoing_flow(drain=drain)  # `flow` counts in another way in each release.
        except MISTAKES:
            raise
        except Exception as problem:
            raise as_client_error(problem, CONNECTION_LOST) from problem

    async def _drain(self) -> None:
        """Take back the credit that is left, and wait until the peer has sent what was on its way."""
        if self._link.current_link_credit > 0 and self.error is None:
            await self._grant(self._link.current_link_credit, drain=True)
            drained = self._until(lambda: not self._is_draining or bool(self.error))
            await within(self._timeout_s, drained, f"draining the link to '{self.path}'")

    async def settle(
        self,
        messages: Sequence[Arrived],
        outcome: Outcome = Outcome.COMPLETE,
        *,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        """Return when the peer has confirmed it; a ClientError knows which it did not."""
        self.check()
        if outcome is Outcome.DEAD_LETTER:
            info = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
            name, state = "rejected", Rejected(AMQPError(condition=_DEAD_LETTER, description=description, info=info))
        else:
            name, state = _STATES[outcome]
        fates: dict[int, _Fate] = {}
        failed: dict[int, ClientError] = {}
        for position, (delivery, _) in enumerate(messages):
            if delivery in self._held:
                self._held.discard(delivery)
                self._expected[delivery] = name
                fates[position] = self._pending[delivery] = self._loop.create_future()
            else:
                failed[position] = ClientError(_ALREADY, "the message is settled already, or was not received here")
        try:
            for first, last in _runs([messages[position].delivery for position in fates]):
                frame = DispositionFrame(
                    role=self._link.role, first=first, last=last, settled=False, state=state, batchable=None
                )
                await self._link._session._outgoing_disposition(frame)
        except MISTAKES:
            raise
        except Exception as problem:
            raise as_client_error(problem, CONNECTION_LOST).but(definite=False) from problem
        if fates:
            await within(self._timeout_s, asyncio.wait(fates.values()), f"settling messages of '{self.path}'")
        failed |= {position: error for position, fate in fates.items() if (error := fate.result()) is not None}
        if failed:
            raise of_several(failed, len(messages))

    async def close(self) -> None:
        """Detach. Messages that nobody took are given back first, so that nothing stays locked."""
        if self.error is None:
            with suppress(ClientError):
                await self._drain()
                unused = list(self._buffer)
                self._buffer.clear()
                await self.settle(unused, Outcome.RELEASE)
        await super().close()

    def _lose(self, error: ClientError) -> None:
        self._buffer.clear()
        super()._lose(error)

    # What the SDK hands on

    async def _transferred(self, frame: Any) -> None:
        if not self._parts:
            self._first = frame[1]
        self._parts.append(bytes(frame[11]))
        if frame[5]:  # More of it follows.
            return
        payload, self._parts = b"".join(self._parts), []
        self._link.delivery_count += 1
        self._link.current_link_credit -= 1
        self._held.add(self._first)
        self._buffer.append(Arrived(self._first, payload))
        if self._link.current_link_credit <= 0:
            self._is_draining = False  # Nothing is left to be given back.
        self._changed()

    async def _flowed(self, frame: Any) -> None:
        if frame[4] is not None and self._is_draining and not frame[6]:
            self._link.delivery_count = frame[5]
            self._link.current_link_credit = 0
            self._is_draining = False
        self._changed()

    async def _disposed(self, frame: Any) -> None:
        if not frame[0] and frame[3]:  # A sender says it, and it is final.
            self._settled(frame, lambda number: self._expected.pop(number))


async def connected(handler: Any) -> Any:
    """The AMQP client of a sender or receiver that was not opened, connected and not yet attached."""
    try:
        handler._create_handler(await _authentication(handler))
        amqp = handler._handler
        amqp._idle_timeout = IDLE_S
        await amqp.open_async()
    except (ClientError, *MISTAKES):
        raise
    except Exception as problem:
        raise as_client_error(problem, UNREACHABLE) from problem
    keeping_alive, amqp._keep_alive_thread = amqp._keep_alive_thread, None
    if keeping_alive is not None:
        keeping_alive.cancel()  # It looks for frames now and then; we always do.
    _let_writes_interrupt(amqp._connection._transport)
    return amqp


async def properties_of(handler: Any, timeout_s: float) -> dict[str, Any]:
    """What the peer says of itself when a connection is opened, which is closed again."""

    async def look() -> dict[str, Any]:
        connection = (await connected(handler))._connection
        try:
            while connection.state.name != "OPENED":
                await connection.listen(wait=LISTEN_S)
        except Exception as problem:
            raise as_client_error(problem, UNREACHABLE) from problem
        found = connection._remote_properties or {}
        await handler.close()
        return {text(key): value for key, value in found.items()}

    try:
        return await within(timeout_s, look(), "opening a connection")
    finally:
        await _break_off(handler)


async def _break_off(handler: Any) -> None:
    """Let go of the socket, whatever is still in it."""
    connection = getattr(handler._handler, "_connection", None)
    if connection is None:
        return
    writer = getattr(connection._transport, "writer", None)
    if writer is not None:
        writer.transport.abort()
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_S):
            await connection._transport.close()


def _let_writes_interrupt(transport: Any) -> None:
    """The SDK reads and writes under one lock: who waits for a frame would hold up everybody who wants to send."""
    read, write = transport.receive_frame, transport.write
    reading: set[asyncio.Future[Any]] = set()

    async def receive_frame(timeout: float | None = None, **kwargs: Any) -> Any:
        frame = asyncio.ensure_future(read(timeout=timeout, **kwargs))
        reading.add(frame)
        try:
            await asyncio.wait({frame})
        finally:
            reading.discard(frame)
            frame.cancel()
        return (None, None) if frame.cancelled() else frame.result()  # The former is what a time-out gives.

    async def write_first(data: bytes) -> None:
        for frame in reading:
            frame.cancel()
        await write(data)

    transport.receive_frame, transport.write = receive_frame, write_first


def _answer(status: int, message: Any, description: Any, **_: Any) -> dict[str, Any] | None:
    """The body of an answer; what it refuses is a ClientError."""
    if status in _NOTHING:
        return None
    if status != _OK:
        condition = (message.application_properties or {}).get(b"errorCondition")
        raise refusal(status, text(description) or f"status {status}", text(condition) or None)
    return {text(key): value for key, value in (message.value or {}).items()}


def _decide(fate: _Fate, error: ClientError | None) -> None:
    if not fate.done():  # Who waited for it may have given up.
        fate.set_result(error)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers, each run by its first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
