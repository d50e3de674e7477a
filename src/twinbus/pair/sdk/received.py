"""What receivers need to know of the official `azure-servicebus`: received messages, their locks, and sessions.

It is the part of the adapter (`sdk`) that is about receiving; nothing beyond the SDK's public interface is used
elsewhere.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Sequence
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage as ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusSession
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
    SessionLockLostError,
)

from twinbus.pair.sdk.attempts import in_time


def receiver_of(message: Any) -> Any:
    """The SDK's receiver that brought a message."""
    return message._receiver


def locked_for_s(message: Any) -> float | None:
    """How long a message or its session is still locked, by this machine's clock; None where nothing is."""
    session = message._receiver.session
    until = session.locked_until_utc if session else message.locked_until_utc
    if until is None:
        return None
    left: datetime.timedelta = until - datetime.datetime.now(datetime.UTC)
    return left.total_seconds()


def lock_expired(message: Any) -> bool:
    """Whether a message can no longer be settled."""
    left_s = locked_for_s(message)
    return left_s is not None and left_s <= 0


def is_lock_lost(error: BaseException, message: Any) -> bool:
    """Whether a settlement failed because the lock was not there any more, or with its connection."""
    if isinstance(error, MessageLockLostError | SessionLockLostError | MessageNotFoundError):
        return True
    if isinstance(error, MessageAlreadySettled):
        return False
    return isinstance(error, ValueError) and not message._receiver._running


def is_not_found(error: BaseException) -> bool:
    """Whether the answer was that there is no such message."""
    return isinstance(error, MessageNotFoundError)


async def opened(receiver: Any) -> None:
    """Open a receiver's link in the time that the client allows, and not in that of a short receive."""
    if not receiver._running:
        await in_time(receiver, receiver.__aenter__())


async def renew(receiver: Any, message: Any) -> None:
    """Renew the lock of a message, or of its session."""
    session = message._receiver.session
    await (session.renew_lock() if session else receiver.renew_message_lock(message))


async def give_back(receiver: Any, message: Any) -> None:
    """Release a message that nobody has seen, as the SDK does with those that nobody asked for."""
    if message._is_deferred_message:  # It did not come over the link.
        await receiver.abandon_message(message)
        return
    await receiver._handler.settle_messages_async(message._delivery_id, message._delivery_tag, "released")


class PairedSession(ServiceBusSession):
    """One session in two namespaces: locked as long as one of them is, renewed and written in both."""

    def __init__(self, sessions: Sequence[Any]) -> None:
        super().__init__(sessions[0].session_id, sessions[0]._receiver)
        self._sessions = [session for session in sessions if session is not None]

    @property
    def locked_until_utc(self) -> datetime.datetime | None:
        """The earliest end of a lock, so that none is forgotten."""
        return min((session.locked_until_utc for session in self._sessions if session.locked_until_utc), default=None)

    @property
    def _lock_expired(self) -> bool:
        return all(session._lock_expired for session in self._sessions)

    async def renew_lock(self, *, timeout: float | None = None, **kwargs: Any) -> datetime.datetime:
        """Renew both locks; an error only if neither can be."""
        until: datetime.datetime = await self._in_all(lambda each: each.renew_lock(timeout=timeout, **kwargs))
        return until

    async def get_state(self, *, timeout: float | None = None, **kwargs: Any) -> bytes:
        """The state, from the first namespace that has one."""
        error: BaseException | None = None
        state: Any = None
        for session in self._sessions:
            try:
                state = await session.get_state(timeout=timeout, **kwargs)
            except ServiceBusError as problem:
                error = problem
                continue
            if state:
                break
        else:
            if error is not None and state is None:
                raise error
        return state  # type: ignore[no-any-return]

    async def set_state(self, state: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Write the state in both; an error only if neither takes it."""
        await self._in_all(lambda each: each.set_state(state, timeout=timeout, **kwargs))

    async def _in_all(self, work: Callable[[Any], Any]) -> Any:
        answers = await asyncio.gather(*(work(session) for session in self._sessions), return_exceptions=True)
        for answer in answers:
            if not isinstance(answer, BaseException):
                return answer
        raise answers[0]
