"""An end to every attempt, where the SDK has none.

Its blocking client reads from a new connection without any limit (TLS, SASL), so a link is opened in a thread. Releases
before 7.15 do not know `try_timeout`, and wait for ever for a link; a client remembers its `try_timeout` all the same.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
from collections.abc import Awaitable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus import TransportType
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

T = TypeVar("T")

HAS_TRY_TIMEOUT = "timeout" in inspect.signature(azure.servicebus.ServiceBusSender._open).parameters
NOT_OPEN = "The link was not open in time."
NO_ANSWER = "No answer came in time."
CLOSE_S = 0.5
WEBSOCKET_LATE_S = 1.5
# What a sender has of an open link.
_OPENED = ("_handler", "_max_message_size_on_link", "_max_batch_size_on_link", "_running")
CLOSED_BY_ANOTHER = "The link was closed while another send waited for it."


def remember_attempt(client: Any, attempt_s: float | None) -> None:
    """Write down how long an attempt of a client may take, where the SDK does not."""
    vars(client._config).setdefault("try_timeout", attempt_s)


def attempt_of(client: Any) -> float | None:
    """How long an attempt of a client may take; None if nobody said."""
    found: float | None = getattr(client._config, "try_timeout", None)
    return found


def become(handler: Any, kind: type[T], client: Any) -> T:
    """Have a sender or receiver that the SDK's client made be of a class of ours: the same object, with its state."""
    handler.__class__ = kind
    remember_attempt(handler, attempt_of(client))
    changed: T = handler
    return changed


def sharing(handler: Any, kind: type[T]) -> T:
    """An object of a class of ours with the state of one that the SDK made: whatever happens to one shows in the other.

    So the SDK's own methods can be used on the one, where they would call what ours overrides.
    """
    made = kind.__new__(kind)
    made.__dict__ = handler.__dict__
    return made


async def in_time(handler: Any, work: Any, timeout_s: float | None = None) -> Any:
    """Await a coroutine of the SDK for as long as an attempt may take, where the SDK itself sets no end."""
    if HAS_TRY_TIMEOUT:
        return await work
    try:
        async with asyncio.timeout(_least(timeout_s, attempt_of(handler))):
            return await work
    except TimeoutError as error:
        raise OperationTimeoutError(message=NOT_OPEN) from error


async def open_link(sender: Any) -> None:
    """Have a sender of the SDK open its link, with the attempts that it may make."""
    await sender._open_with_retry()


async def drop_link(sender: Any) -> None:
    """Have the next send open another link; the peer of this one is not asked."""
    handler, sender._handler, sender._running = sender._handler, None, False
    with suppress(Exception):
        handler._connection._transport.writer.transport.abort()
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_S):
            await handler.close_async()


class Ends:
    """The ends of the sends of one client, on one loop.

    Nearly all sends end long before their time: so one timer looks after all of them, as one for each would cost as
    much as everything else that a pair adds to a send.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[Any], float] = {}
        self._over: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ended(self, work: Awaitable[None], timeout_s: float) -> None:
        """Await a send of the SDK, which ends whatever it waits for.

        Sends at once over one link that breaks under them may wait there for each other for ever; and one that gives
        up cancels what others wait for, who then look as if somebody had cancelled them.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancelled_before = task.cancelling()
        due = self._due[task] = loop.time() + timeout_s
        if self._timer is None or due < self._timer.when():
            self._look_at(due, loop)
        try:
            await work
        except TimeoutError as error:
            raise OperationTimeoutError(message=NO_ANSWER) from error
        except asyncio.CancelledError as error:
            if task.cancelling() - (task in self._over) > cancelled_before:
                raise
            if task in self._over:
                raise OperationTimeoutError(message=NO_ANSWER) from error
            raise ServiceBusConnectionError(message=CLOSED_BY_ANOTHER) from error
        finally:
            del self._due[task]
            if task in self._over:
                self._over.discard(task)
                task.uncancel()

    def _look_at(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        """Never at once: a task that is running would be cancelled at its next wait, after the send."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel those whose time is over, and look again when the next one's is."""
        self._timer, now = None, loop.time()
        for task, due in self._due.items():
            if due <= now and task not in self._over:
                self._over.add(task)
                task.cancel()
        left = [due for task, due in self._due.items() if task not in self._over]
        if left:
            self._look_at(min(left), loop)


def _least(first: float | None, second: float | None) -> float | None:
    return min((each for each in (first, second) if each is not None), default=None)


class _Opening:
    """A link that is being opened in a thread of its own, by a copy of its sender: one that was given up is left alone.

    Behind a load balancer without a backend a connection hangs for ever, also when the backend is there again.
    """

    def __init__(self, sender: BoundedSender, timeout: float | None) -> None:
        self._began = time.monotonic()
        self._copy = object.__new__(azure.servicebus.ServiceBusSender)
        vars(self._copy).update(vars(sender))
        self._timeout = timeout
        self._problem: BaseException | None = None
        self._ending = threading.Lock()
        self._is_given_up = False
        self._thread = threading.Thread(target=self._run, name="twinbus-opening", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if HAS_TRY_TIMEOUT:
                self._copy._open(self._timeout)
            else:
                self._copy._open()
        except BaseException as problem:
            self._problem = problem
        with self._ending:
            if self._is_given_up and self._problem is None:
                self._copy._close_handler()  # type: ignore[no-untyped-call]

    def is_overdue(self, attempt_s: float | None) -> bool:
        """Whether it is under way for longer than an attempt may take."""
        return self.is_under_way and attempt_s is not None and time.monotonic() - self._began >= attempt_s

    @property
    def is_under_way(self) -> bool:
        """Whether the end is not known yet."""
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None) -> dict[str, Any]:
        """The state of a sender whose link is open; raise why it is not."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise OperationTimeoutError(message=NOT_OPEN)
        if self._problem is not None:
            raise self._problem
        return vars(self._copy)

    def give_up(self) -> None:
        """Cut the connection that is being made; what comes of it is closed."""
        with self._ending:
            self._is_given_up = True
        cut(self._copy._handler)


def cut(handler: Any) -> None:
    """Cut the connection of a link; closing it politely waits for the peer, and for who reads."""
    with suppress(Exception):
        sock = handler._connection._transport.sock
        getattr(sock, "sock", sock).shutdown(socket.SHUT_RDWR)  # A WebSocket has its socket inside.


class BoundedSender(azure.servicebus.ServiceBusSender):
    """A sender whose attempts end, also that of opening its link."""

    _opening: _Opening | None = None  # One at a time: who comes later waits for the same one.

    @cached_property
    def late_s(self) -> float:
        """By how much a send ends late: it looks at the time between reads, which last a second in a WebSocket."""
        is_websocket = self._config.transport_type.value == TransportType.AmqpOverWebsocket.value
        return WEBSOCKET_LATE_S if is_websocket else 0.0

    def open_link(self, timeout_s: float | None) -> None:
        """Have the link open within the time, with the attempts that the sender may make."""
        self._do_retryable_operation(self._open, timeout=timeout_s, operation_requires_timeout=True)

    def _open(self, timeout: float | None = None) -> None:
        if self._running:
            return
        attempt_s = attempt_of(self)
        opening = self._opening
        if opening is not None and opening.is_overdue(attempt_s):
            opening.give_up()
            opening = None
        if opening is None:
            opening = self._opening = _Opening(self, attempt_s)
        try:
            opened = opening.wait(_least(timeout, attempt_s))
        except BaseException:
            if opening is self._opening and (opening.is_overdue(attempt_s) or not opening.is_under_way):
                self._opening = None
                opening.give_up()
            raise
        if opening is self._opening:
            vars(self).update({name: opened[name] for name in _OPENED if name in opened})
            self._opening = None
        self._check_live()  # type: ignore[no-untyped-call] # It may have been closed meanwhile.

    def drop_link(self) -> None:
        """Have the next send open another link; the peer of this one is not asked."""
        handler, self._handler, self._running = self._handler, None, False
        cut(handler)
        with suppress(Exception):
            handler.close()

    def close(self) -> None:
        """Close the link, or the connection that is being made for it."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.give_up()
        super().close()

    if not TYPE_CHECKING and not HAS_TRY_TIMEOUT:

        def _send(self, message, timeout=None, last_exception=None):
            super()._send(message, self._opened(timeout), last_exception)

        def _mgmt_request_response(self, *args, timeout=None, **kwargs):
            return super()._mgmt_request_response(*args, timeout=self._opened(timeout), **kwargs)

        def _opened(self, timeout):
            """Open the link; what is left of the attempt's time afterwards."""
            least_s = _least(timeout, attempt_of(self))
            began = time.monotonic()
            self._open(least_s)
            return None if least_s is None else max(least_s - (time.monotonic() - began), 0.001)


if TYPE_CHECKING or HAS_TRY_TIMEOUT:
    from azure.servicebus.aio import ServiceBusSender

    AsyncBoundedSender = ServiceBusSender
else:

    class AsyncBoundedSender(azure.servicebus.aio.ServiceBusSender):
        """A sender whose attempts end."""

        async def _open(self, timeout=None):
            if not self._running:
                await in_time(self, super()._open(), timeout)

        async def _send(self, message, timeout=None, last_exception=None):
            await super()._send(message, await self._opened(timeout), last_exception)

        async def _mgmt_request_response(self, *args, timeout=None, **kwargs):
            return await super()._mgmt_request_response(*args, timeout=await self._opened(timeout), **kwargs)

        async def _opened(self, timeout):
            """Open the link; what is left of the attempt's time afterwards."""
            least_s = _least(timeout, attempt_of(self))
            began = time.monotonic()
            await self._open(least_s)
            return None if least_s is None else max(least_s - (time.monotonic() - began), 0.001)
