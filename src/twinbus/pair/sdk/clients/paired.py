"""How a paired client is made, and what it says of itself, in both flavours alike.

It is the SDK's client for the primary, with its settings and its senders and receivers. What differs between the
flavours is how to wait: that is in `sync` and `aio`, which name the SDK's client that they stand on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.core import PairCore, PairStatus, namespaces, namespaces_of
from twinbus.pair.description import PairDescription, second_string
from twinbus.pair.ending import check_open
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Queued
from twinbus.pair.route.health_board import Change
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.clients.sending import PairedSending


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
        _namespaces: tuple[RemoteNamespace, RemoteNamespace] | None = None,
    ) -> None:
        options = options or SendAvailabilityOptions()
        vars(self).update(sdk.state_of(primary))
        self.primary = primary
        self.secondary = secondary
        first, second = namespaces_of(primary, secondary, options, _namespaces)
        self._core = PairCore(first, second, options, primary_name=primary_name, on_change=on_change)
        self._core.background.on_fault = self._broken_off
        self._core.background.on_diverted = on_diverted
        self._core.use_outbox(outbox, always, on_queued)
        sdk.watch_close(primary, first.mark_closed)
        sdk.watch_close(secondary, second.mark_closed)
        if options.enable_syphon:
            sdk.watch_handlers(primary, lambda: check_open(first), first.hear)
            sdk.watch_handlers(secondary, lambda: check_open(second), second.hear)

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
            sdk.new_client(cls.sdk_client, primary, settings),
            sdk.new_client(cls.sdk_client, secondary, settings),
            options,
            primary_name=primary_name,
            on_change=on_change,
            on_diverted=on_diverted,
            outbox=outbox,
            always=always,
            on_queued=on_queued,
            _namespaces=namespaces(primary, secondary, kwargs, options.seconds("attempt_timeout")),
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
            sdk.new_client(cls.sdk_client, namespace.connection_string, settings, namespace.ca)
            for namespace in (pair.primary, pair.secondary)
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
            _namespaces=pair.namespaces(),
        )

    @classmethod
    def from_connection_string(cls, conn_str: str, *, secondary: str | None = None, **kwargs: Any) -> Self:
        """A pair from the primary's connection string; without `secondary` the other is in TWINBUS_SECONDARY.

        Other arguments are those of `from_connection_strings`.
        """
        return cls.from_connection_strings(conn_str, second_string(secondary, cls.__name__), **kwargs)

    @property
    def is_paired(self) -> bool:
        """Whether the pair is made, as far as that was possible."""
        return self._core.background.is_started

    @property
    def outbox(self) -> Outbox | None:
        """The outbox, if the client has one."""
        return None if self._core.outbox is None else self._core.outbox.outbox

    def status(self) -> PairStatus:
        """How the pair stands."""
        return self._core.status()

    def _sending(self, sender: Any, always: bool | None, ordered: bool | None) -> PairedSending:
        sending = self._core.sending(sender.entity_name, always, ordered)
        return PairedSending(self._core.carrier, self._core.primary, self._core.secondary, sending, sender)

    def _broken_off(self, namespace: RemoteNamespace, reason: Exception) -> None:
        sdk.break_off(self.primary if namespace is self._core.primary else self.secondary, reason)
