"""What a client with an outbox before one namespace is, whatever its flavour: an outbox, a way out, a dispatcher.

The flavours (`outbox_client`, `outbox_aio`) add how to wait. A pair has its own way to use an outbox (`outbox_pair`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.client import ConnectionString
from twinbus.pair.core import trusting
from twinbus.pair.dispatch import MAX_IN_FLIGHT, Dispatcher, Progress
from twinbus.pair.dispatch_routes import alone
from twinbus.pair.half import Half
from twinbus.pair.outbox import Outbox
from twinbus.pair.outbox_rows import Entry

TIMEOUT_S = 20.0


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
        self.half = Half(
            "namespace", ConnectionString.parse(connection_string), tls=trusting(kwargs), timeout_s=TIMEOUT_S
        )
        self.dispatcher = Dispatcher(self.outbox, alone(self.half), max_in_flight=max_in_flight, on_refused=on_refused)
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
        await self.half.close()
        if self._owned:
            await asyncio.to_thread(self.outbox.close)
