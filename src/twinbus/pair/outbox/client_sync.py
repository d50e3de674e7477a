"""An outbox before one namespace, for synchronous applications: what is sent is on disk when `send_messages` returns.

The dispatcher has a loop and a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.outbox.client_core import OutboxCore
from twinbus.pair.outbox.dispatcher import MAX_IN_FLIGHT, Progress
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Entry, Queued


class OutboxClient:
    """Senders whose messages survive this process. Use it with `with`."""

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
        self._loop_thread = LoopThread()
        self._core = OutboxCore(
            connection_string, outbox, dispatch=dispatch, max_in_flight=max_in_flight, on_refused=on_refused, **kwargs
        )

    @property
    def outbox(self) -> Outbox:
        """The outbox."""
        return self._core.outbox

    @property
    def progress(self) -> Progress:
        """What the dispatcher has done."""
        return self._core.progress

    def get_queue_sender(self, queue_name: str) -> OutboxSender:
        """A sender to a queue."""
        return OutboxSender(self.outbox, queue_name)

    def get_topic_sender(self, topic_name: str) -> OutboxSender:
        """A sender to a topic."""
        return OutboxSender(self.outbox, topic_name)

    def close(self) -> None:
        """End; what is in the outbox stays there, for the next one."""
        self._loop_thread.stop(self._core.stop)

    def __enter__(self) -> OutboxClient:
        self._loop_thread.run(self._core.start())
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class OutboxSender:
    """Puts messages for one entity; there is nothing to close."""

    def __init__(self, outbox: Outbox, path: str) -> None:
        self._outbox = outbox
        self._path = path

    def send_messages(self, message: Any, *, key: str | None = None, connection: Any = None) -> Queued:
        """Put messages, and return when they are safe on disk (see `Outbox.put`)."""
        return self._outbox.put(message, self._path, key=key, connection=connection)

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> OutboxSender:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
