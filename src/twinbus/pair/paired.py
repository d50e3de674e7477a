"""How a paired client is made, and what it tells, in both flavours alike.

What differs is how to wait: that is in `sync` and `aio`, which name the SDK's client that they stand on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from twinbus.pair import sdk
from twinbus.pair.board import Change
from twinbus.pair.core import PairCore, PairStatus, halves, halves_of
from twinbus.pair.description import PairDescription
from twinbus.pair.diversion import Diverted
from twinbus.pair.half import Half
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.outbox import Outbox
from twinbus.pair.outbox_rows import Queued


class PairedClient:
    """Two clients of the SDK, and what is between them."""

    sdk_client: ClassVar[Any]  # The SDK's own client, of the flavour's kind.

    def __init__(
        self,
        primary: Any,
        secondary: Any,
        options: SendAvailabilityOptions | None = None,
        *,
        primary_name: str | None = None,
        on_change: Callable[[Change], None] | None = None,
        on_diverted: Callable[[Diverted], None] | None = None,
        outbox: Outbox | Path | str | None = None,
        always: bool = False,
        on_queued: Callable[[Queued], None] | None = None,
        _halves: tuple[Half, Half] | None = None,
    ) -> None:
        options = options or SendAvailabilityOptions()
        self.primary = primary
        self.secondary = secondary
        first, second = _halves or halves_of(primary, secondary, options.seconds("attempt_timeout"))
        self._core = PairCore(first, second, options, primary_name=primary_name, on_change=on_change)
        self._core.companion.on_fault = self._broken_off
        self._core.companion.on_diverted = on_diverted
        self._core.use_outbox(outbox, always, on_queued)
        sdk.watch_close(primary, first.mark_closed)
        sdk.watch_close(secondary, second.mark_closed)

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        options: SendAvailabilityOptions | None = None,
        *,
        primary_name: str | None = None,
        on_change: Callable[[Change], None] | None = None,
        on_diverted: Callable[[Diverted], None] | None = None,
        outbox: Outbox | Path | str | None = None,
        always: bool = False,
        on_queued: Callable[[Queued], None] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A pair from two connection strings; other arguments are the SDK client's own."""
        options = options or SendAvailabilityOptions()
        settings = sdk.bounded(options.attempts, options.seconds("attempt_timeout")) | kwargs
        return cls(
            cls.sdk_client.from_connection_string(primary, **(sdk.at_port(primary) | settings)),
            cls.sdk_client.from_connection_string(secondary, **(sdk.at_port(secondary) | settings)),
            options,
            primary_name=primary_name,
            on_change=on_change,
            on_diverted=on_diverted,
            outbox=outbox,
            always=always,
            on_queued=on_queued,
            _halves=halves(primary, secondary, kwargs, options.seconds("attempt_timeout")),
        )

    @classmethod
    def from_description(
        cls,
        description: PairDescription | Path | str | None = None,
        *,
        on_change: Callable[[Change], None] | None = None,
        on_diverted: Callable[[Diverted], None] | None = None,
        outbox: Outbox | Path | str | None = None,
        always: bool = False,
        on_queued: Callable[[Queued], None] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A pair as a TOML file describes it, or without one the environment; see docs/pairing.md."""
        pair = PairDescription.read(description)
        settings = sdk.bounded(pair.options.attempts, pair.options.seconds("attempt_timeout")) | kwargs
        first, second = (
            cls.sdk_client.from_connection_string(
                half.connection_string, **(sdk.at_port(half.connection_string, half.ca) | settings)
            )
            for half in (pair.primary, pair.secondary)
        )
        return cls(
            first,
            second,
            pair.options,
            primary_name=pair.primary.name,
            on_change=on_change,
            on_diverted=on_diverted,
            outbox=outbox,
            always=always,
            on_queued=on_queued,
            _halves=pair.halves(),
        )

    @property
    def is_paired(self) -> bool:
        """Whether the pair is made."""
        return self._core.companion.paired is not None

    @property
    def outbox(self) -> Outbox | None:
        """The outbox, if the client has one."""
        return None if self._core.outbox is None else self._core.outbox.outbox

    def status(self) -> PairStatus:
        """How the pair stands."""
        return self._core.status()

    def _broken_off(self, half: Half, reason: Exception) -> None:
        sdk.break_off(self.primary if half is self._core.primary else self.secondary, reason)
