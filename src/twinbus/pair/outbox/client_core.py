"""What a client with an outbox before one namespace is, whatever its flavour: an outbox, a way out, a dispatcher.

The flavours (`client_sync`, `client_aio`) add how to wait. A pair has its own way to use an outbox (`behind_pair`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.client import ConnectionString
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.outbox.dispatcher import MAX_IN_FLIGHT, TIMEOUT_S, Dispatcher, Progress, alone
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Entry
from twinbus.pair.sdk.messages import trusting


class OutboxCore:
    """One outbox, one namespace."""

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
        self._owned = not isinstance(outbox, Outbox)
        self.outbox = outbox if isinstance(outbox, Outbox) else Outbox(outbox)
        self.namespace = OwnClientNamespace(
            "namespace", ConnectionString.parse(connection_string), tls=trusting(kwargs), timeout_s=TIMEOUT_S
        )
        self.dispatcher = Dispatcher(
            self.outbox, alone(self.namespace), max_in_flight=max_in_flight, on_refused=on_refused
        )
        self._dispatch = dispatch
        self._task: asyncio.Task[None] | None = None

    @property
    def progress(self) -> Progress:
        """What the dispatcher has done."""
        return self.dispatcher.progress

    async def start(self) -> None:
        """Begin to dispatch, on this loop."""
        if self._dispatch and self._task is None:
            self._task = asyncio.create_task(self.dispatcher.run(), name="outbox")

    async def stop(self) -> None:
        """End; what is in the outbox stays there."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.namespace.close()
        if self._owned:
            await asyncio.to_thread(self.outbox.close)
