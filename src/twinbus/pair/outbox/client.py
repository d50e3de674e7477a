"""An outbox before one namespace: what is sent is on disk when `send_messages` returns, and leaves in the background.

The dispatcher runs on the application's loop, or has a loop and a thread of its own. A pair has its own way to use an
outbox (`behind_pair`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from twinbus.client import ConnectionString
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.outbox.dispatcher import MAX_IN_FLIGHT, TIMEOUT_S, Dispatcher, Progress, alone
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Entry, Queued
from twinbus.pair.sdk.messages import trusting

S = TypeVar("S")  # The flavour's sender.


class _Client(Generic[S]):
    """What both flavours are: one outbox, one namespace, a dispatcher."""

    sender: ClassVar[Any]

    def __init__(
        self,
        connection_string: str,
        outbox: Outbox | Path | str,
        *,
        dispatch: bool = True,
        max_in_flight: int = MAX_IN_FLIGHT,
        on_refused: Callable[[Entry, str], None] | None = None,
        **kwargs: Any,
    ) -> None:
        """`dispatch=False` leaves the sending to another process (`twinbus outbox dispatch`)."""
        self._owned = not isinstance(outbox, Outbox)
        self.outbox = outbox if isinstance(outbox, Outbox) else Outbox(outbox)
        self._namespace = OwnClientNamespace(
            "namespace", ConnectionString.parse(connection_string), tls=trusting(kwargs), timeout_s=TIMEOUT_S
        )
        self.dispatcher = Dispatcher(
            self.outbox, alone(self._namespace), max_in_flight=max_in_flight, on_refused=on_refused
        )
        self._dispatch = dispatch

    @property
    def progress(self) -> Progress:
        """What the dispatcher has done."""
        return self.dispatcher.progress

    def get_queue_sender(self, queue_name: str) -> S:
        """A sender to a queue."""
        made: S = self.sender(self.outbox, queue_name)
        return made

    def get_topic_sender(self, topic_name: str) -> S:
        """A sender to a topic."""
        return self.get_queue_sender(topic_name)

    async def _start(self) -> None:
        if self._dispatch:
            self.dispatcher.start()

    async def _stop(self) -> None:
        await self.dispatcher.stop()
        await self._namespace.close()
        if self._owned:
            await asyncio.to_thread(self.outbox.close)


class _Sender:
    """Puts messages for one entity; there is nothing to close."""

    def __init__(self, outbox: Outbox, path: str) -> None:
        self._outbox = outbox
        self._path = path


class OutboxSender(_Sender):
    """The sender of a synchronous application."""

    def send_messages(self, message: Any, *, key: str | None = None, connection: Any = None) -> Queued:
        """Put messages, and return when they are safe on disk (see `Outbox.put`)."""
        return self._outbox.put(message, self._path, key=key, connection=connection)

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> OutboxSender:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class OutboxClient(_Client[OutboxSender]):
    """Senders whose messages survive this process. Use it with `with`."""

    sender = OutboxSender

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop_thread = LoopThread()

    def close(self) -> None:
        """End; what is in the outbox stays there, for the next one."""
        self._loop_thread.stop(self._stop)

    def __enter__(self) -> OutboxClient:
        self._loop_thread.run(self._start())
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class AsyncOutboxSender(_Sender):
    """The sender of an application with an event loop."""

    async def send_messages(self, message: Any, *, key: str | None = None) -> Queued:
        """Put messages, and return when they are safe on disk (see `Outbox.put`)."""
        return await self._outbox.put_async(message, self._path, key=key)

    async def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> AsyncOutboxSender:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


class AsyncOutboxClient(_Client[AsyncOutboxSender]):
    """Senders whose messages survive this process. Use it with `async with`."""

    sender = AsyncOutboxSender

    async def close(self) -> None:
        """End; what is in the outbox stays there, for the next one."""
        await self._stop()

    async def __aenter__(self) -> AsyncOutboxClient:
        await self._start()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()
