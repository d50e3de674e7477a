"""How a paired client is made, and what it says of itself, in both flavours alike.

It is the SDK's client for the primary, with its settings and its senders and receivers. What differs between the
flavours is how to wait: that is in `sync` and `aio`, which name the SDK's client that they stand on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from twinbus.client.overlapped import Windows
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.core import PairCore, PairStatus, namespaces_of
from twinbus.pair.description import NamespaceDescription, PairDescription, second_string
from twinbus.pair.ending import check_open
from twinbus.pair.ledger.ledger import LedgerCore
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.outbox.outbox import Outbox
from twinbus.pair.outbox.rows import Queued
from twinbus.pair.route.health_board import Change
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.attempts import become, sharing
from twinbus.pair.sdk.clients.sending import PairedSending

S = TypeVar("S")  # The flavour's sender.
R = TypeVar("R")  # The SDK's receiver of that flavour.


class PairedClient(Generic[S, R]):
    """Two clients of the SDK, and what is between them. A flavour has these classes, and a way to use a ledger."""

    sdk_client: ClassVar[Any]
    bounded_sender: ClassVar[Any]
    paired_sender: ClassVar[Any]
    through_ledger: Any

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
        cls, primary: str, secondary: str, options: SendAvailabilityOptions | None = None, **kwargs: Any
    ) -> Self:
        """A pair from two connection strings; arguments that the constructor does not have are the SDK client's."""
        namespaces = NamespaceDescription(primary), NamespaceDescription(secondary)
        return cls._described(PairDescription(*namespaces, options or SendAvailabilityOptions()), kwargs)

    @classmethod
    def from_description(cls, description: PairDescription | Path | str | None = None, **kwargs: Any) -> Self:
        """A pair as a TOML file describes it, or without one the environment; see docs/pairing.md."""
        return cls._described(PairDescription.read(description), kwargs)

    @classmethod
    def _described(cls, pair: PairDescription, kwargs: dict[str, Any]) -> Self:
        ours = {name: kwargs.pop(name) for name in _OURS & kwargs.keys()}
        settings = sdk.bounded(pair.options.attempts, pair.options.seconds("attempt_timeout")) | kwargs
        first, second = (
            sdk.new_client(cls.sdk_client, namespace.connection_string, settings, namespace.ca)
            for namespace in (pair.primary, pair.secondary)
        )
        ours = {"primary_name": pair.primary.name, **ours}
        return cls(first, second, pair.options, _namespaces=pair.namespaces(sdk.trusting(kwargs)), **ours)

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

    # What it hands out

    def get_queue_sender(
        self, queue_name: str, *, always: bool | None = None, ordered: bool | None = None, **kwargs: Any
    ) -> S:
        """A sender to a queue of the primary that goes on sending when the primary is down.

        `always` (first into the outbox) and `ordered` are as the client has them, unless they are given.
        """
        return self._sender(self.primary.get_queue_sender(queue_name, **kwargs), always, ordered)

    def get_topic_sender(
        self, topic_name: str, *, always: bool | None = None, ordered: bool | None = None, **kwargs: Any
    ) -> S:
        """A sender to a topic of the primary, as to a queue."""
        return self._sender(self.primary.get_topic_sender(topic_name, **kwargs), always, ordered)

    def _sender(self, sender: Any, always: bool | None, ordered: bool | None) -> S:
        """It shares its state with the sender that the SDK's client made, which does what is the SDK's own."""
        own = become(sender, self.bounded_sender, self.primary)
        paired = sharing(own, self.paired_sender)
        core, how = self._core, self._core.sending(own.entity_name, always, ordered)
        sending = PairedSending(core.carrier, core.primary, core.secondary, how, own)
        windows = Windows(lambda message: sending.carry(message, None))
        paired._own, paired._pair, paired._sending, paired._windows = own, self, sending, windows
        made: S = paired
        return made

    def get_queue_receiver(self, queue_name: str, *, ledger: LedgerCore | None = None, **kwargs: Any) -> R:
        """A receiver from the primary; what was diverted reaches it through the syphon.

        With a ledger, what comes twice is handed out once (docs/replication.md), and a lost lock is no error, unless
        `goes_on=False` says so.
        """
        if ledger is None:
            made: R = self.primary.get_queue_receiver(queue_name, **kwargs)
        else:
            made = self.through_ledger(ledger, self.primary, queue_name, None, kwargs)
        return made

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, *, ledger: LedgerCore | None = None, **kwargs: Any
    ) -> R:
        """A receiver from a subscription of the primary; with a ledger, as for a queue."""
        if ledger is None:
            made: R = self.primary.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        else:
            made = self.through_ledger(ledger, self.primary, topic_name, subscription_name, kwargs)
        return made

    def _broken_off(self, namespace: RemoteNamespace, reason: Exception) -> None:
        sdk.break_off(self.primary if namespace is self._core.primary else self.secondary, reason)


_PARAMETERS = inspect.signature(PairedClient.__init__).parameters.values()
# Arguments of ours; all others are for the SDK's clients.
_OURS = {each.name for each in _PARAMETERS if each.kind is each.KEYWORD_ONLY}
