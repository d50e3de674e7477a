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
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

__all__ = [
    "AsyncBoundedSender",
    "BoundedSender",
    "attempt_of",
    "become",
    "ended",
    "in_time",
    "open_link",
    "remember_attempt",
    "sharing",
]

T = TypeVar("T")

HAS_TRY_TIMEOUT = "timeout" in inspect.signature(azure.servicebus.ServiceBusSender._open).parameters
NOT_OPEN = "The link was not open in time."
NO_ANSWER = "No answer came in time."
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


async def ended(work: Awaitable[None], timeout_s: float | None) -> None:
    """Await a send of the SDK, which ends whatever it waits for.

    Sends at once over one link that breaks under them may wait there for each other for ever; and one that gives up
    cancels what others wait for, who then look as if somebody had cancelled them.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except TimeoutError as error:
        raise OperationTimeoutError(message=NO_ANSWER) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ServiceBusConnectionError(message=CLOSED_BY_ANOTHER) from error


def _least(first: float | None, second: float | None) -> float | None:
    return min((each for each in (first, second) if each is not None), default=None)


class _Opening:
    """A link that is being opened in a thread of its own."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="twinbus-opening", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:
            self._problem = problem

    @property
    def is_under_way(self) -> bool:
        """Whether the end is not known yet."""
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None) -> None:
        """Return when the link is open; raise why it is not."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise OperationTimeoutError(message=NOT_OPEN)
        if self._problem is not None:
            raise self._problem


class BoundedSender(azure.servicebus.ServiceBusSender):
    """A sender whose attempts end, also that of opening its link."""

    _opening: _Opening | None = None  # One at a time: who comes later waits for the same one.
    _open_until: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What is done in the block opens no link after so long, over all attempts."""
        self._open_until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._open_until = None

    def _open(self, timeout: float | None = None) -> None:
        if self._running:
            return
        left_s = None if self._open_until is None else max(self._open_until - time.monotonic(), 0.0)
        least_s = _least(_least(timeout, attempt_of(self)), left_s)
        opening = self._opening
        if opening is None:
            opening = self._opening = _Opening(lambda: self._open_aside(least_s))
        try:
            opening.wait(least_s)
        finally:
            if not opening.is_under_way:
                self._opening = None

    def _open_aside(self, timeout: float | None) -> None:
        if HAS_TRY_TIMEOUT:
            super()._open(timeout)
        else:
            super()._open()
        if self._shutdown.is_set():  # Closed meanwhile.
            super()._close_handler()  # type: ignore[no-untyped-call]

    def _close_handler(self) -> None:
        """Closing waits for who reads; a connection that is being opened is cut instead, when the sender is closed."""
        if self._opening is None:
            super()._close_handler()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the link, or the connection that is being made for it."""
        super().close()
        if self._opening is not None:
            with suppress(Exception):
                connection: Any = self._handler._connection
                connection._transport.sock.shutdown(socket.SHUT_RDWR)

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
    from azure.servicebus.aio import ServiceBusSender as AsyncBoundedSender
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
