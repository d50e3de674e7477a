"""What a paired sender does, told once for synchronous and asynchronous applications: steps that a shell carries out.

Each method is a generator that yields what is to be done next and gets back what came of it. `sync` and `aio` carry the
steps out; where a message goes is decided here, by asking the board.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from uuid import uuid4

from azure.servicebus import ServiceBusMessageBatch

from twinbus.model.partition import fragment_of
from twinbus.pair import outbox_rows, outbox_sending, sdk, tracing
from twinbus.pair.board import Board, Scope
from twinbus.pair.companion import Companion
from twinbus.pair.errors import BacklogError, NotWhileDivertedError, RefusedError
from twinbus.pair.failures import PRESETS
from twinbus.pair.health import Event, Route
from twinbus.pair.options import SendAvailabilityOptions


class AtPrimary(NamedTuple):
    """A call of the SDK's sender; an asynchronous shell awaits what it returns."""

    call: Callable[[], Any]


class Beside(NamedTuple):
    """Work for the companion's loop."""

    work: Callable[[], Coroutine[Any, Any, Any]]


Steps = Generator[AtPrimary | Beside, Any, Any]


class Pairing:
    """What all senders of a paired client share."""

    def __init__(self, board: Board, companion: Companion, options: SendAvailabilityOptions) -> None:
        self.board = board
        self.companion = companion
        self.counting = PRESETS[options.failure_preset]
        self.partitioned = companion.partitions.known  # Entities whose keyed sends have a health of their own.

    def key_of(self, path: str, message: sdk.Sendable) -> str | None:
        """What leads a message to a fragment; None where it goes to any, or nothing is known of fragments."""
        if not self.partitioned or path.lower() not in self.partitioned:
            return None
        key = sdk.key_of(message)
        if key is None and path.lower() in self.companion.partitions.by_id:
            return sdk.id_of(message)
        return key

    def scope(self, path: str, key: str | None) -> Scope:
        """What a send with this key fails and heals with."""
        if key is None or path.lower() not in self.partitioned:
            return Scope(path.lower())
        return Scope(path.lower(), fragment_of(key))

    def failed(self, scope: Scope, error: Exception, key: str | None) -> bool:
        """A send to the primary failed; whether it is to be diverted now."""
        failure = sdk.failure_of(error)
        if failure not in self.counting:
            return False
        self.board.tell(scope, Event.FAILED, f"{type(error).__name__}: {error}", key)
        return self.board.route(scope) is Route.BACKLOG


class PairedSending:
    """The steps of one sender's methods."""

    def __init__(self, pairing: Pairing, sender: Any, path: str, beside: outbox_sending.Beside | None = None) -> None:
        self._pairing = pairing
        self.beside = beside  # An outbox, or order, if one was asked for.
        self._sender = sender
        self._path = path
        self._queue: str | None = None  # The backlog queue that this sender uses.
        self._batch_limit = 0

    def traced(self, message: sdk.Sendable) -> AbstractContextManager[tracing.Span]:
        """A span around a send, wherever the messages will go."""
        several = isinstance(message, list | tuple | ServiceBusMessageBatch)
        return tracing.span(
            "send",
            self._path,
            count=len(message) if isinstance(message, list | tuple | ServiceBusMessageBatch) else None,
            message_id=None if several else sdk.id_of(message),
            at=self._pairing.companion.primary.address,
        )

    def goes_straight(self, message: sdk.Sendable) -> bool:
        """Whether a send needs no steps: nothing is ill, and the message can be looked at again should it fail."""
        return (
            self._pairing.board.is_clear
            and type(message) in sdk.REPEATABLE
            and (self.beside is None or self.beside.lets_pass)
        )

    def went_straight(self, message: sdk.Sendable) -> None:
        """A send without steps succeeded; it heals its entity if that fell ill meanwhile."""
        pairing = self._pairing
        if not pairing.board.is_clear:
            pairing.board.sent(pairing.scope(self._path, pairing.key_of(self._path, message)))

    def send_messages(
        self, message: sdk.Sendable, timeout: float | None, kwargs: dict[str, Any], failed: Exception | None = None
    ) -> Steps:
        """To the primary while it is healthy, else to a backlog queue; `failed` if it went straight, and failed."""
        pairing = self._pairing
        message = sdk.repeatable(message)
        beside = self.beside
        if beside is not None and failed is None and not sdk.is_empty(message):
            if beside.takes(message):
                return (yield Beside(lambda: beside.send(message)))
            if not beside.lets_pass and (yield Beside(lambda: beside.must_wait(sdk.encoded(message)))):
                return (yield Beside(lambda: beside.keep(sdk.encoded(message))))
        key = pairing.key_of(self._path, message)
        scope = pairing.scope(self._path, key)
        route = pairing.board.route(scope)
        if failed is not None:
            if not pairing.failed(scope, failed, key):
                raise failed
        elif route is Route.PRIMARY:
            try:
                result = yield AtPrimary(lambda: self._sender.send_messages(message, timeout=timeout, **kwargs))
            except Exception as error:
                if not pairing.failed(scope, error, key):
                    raise
            else:
                pairing.board.sent(scope)
                return result
        elif route is Route.NOWHERE:
            raise self.refusal(scope)
        if not sdk.is_empty(message):
            return (yield from self._divert(message, timeout))
        return None

    def _divert(self, message: sdk.Sendable, timeout: float | None) -> Steps:
        """To a backlog queue; what none takes goes into the outbox, if there is one, and that is what is returned."""
        companion, beside = self._pairing.companion, self.beside
        payloads = sdk.encoded(message)
        if beside is not None:
            payloads = outbox_rows.identified(payloads, lambda: uuid4().hex)
        if self._queue is None and companion.diversion is not None:
            self._queue = companion.diversion.pick()
        try:
            self._queue = yield Beside(lambda: companion.divert(payloads, self._path, self._queue, timeout))
        except BacklogError:
            if beside is None or not beside.has_outbox:
                raise
            tracing.current().say(outbox=True)
            return (yield Beside(lambda: beside.keep(payloads)))
        tracing.current().say(diverted=True, backlog_queue=self._queue or "")
        return None

    def create_message_batch(self, max_size_in_bytes: int | None) -> Steps:
        """A batch; the primary's limit is remembered, for when it cannot be asked."""
        scope = self._pairing.scope(self._path, None)
        if self._pairing.board.route(scope) is Route.PRIMARY:
            try:
                batch: ServiceBusMessageBatch = yield AtPrimary(
                    lambda: self._sender.create_message_batch(max_size_in_bytes)
                )
            except Exception as error:
                if not self._pairing.failed(scope, error, None):
                    raise
            else:
                self._batch_limit = sdk.batch_limit(self._sender)
                return batch
        limit = self._batch_limit or sdk.BATCH_BYTES_DEFAULT
        if max_size_in_bytes and max_size_in_bytes > limit:
            raise ValueError(f"The batch may have {limit} bytes, not {max_size_in_bytes}.")
        return sdk.new_batch(max_size_in_bytes or limit)

    def only_at_primary(self, what: str, call: Callable[[], Any]) -> Steps:
        """Scheduling by number, and cancelling it: only the primary can tell or take back a number."""
        scope = self._pairing.scope(self._path, None)
        if self._pairing.board.route(scope) is not Route.PRIMARY:
            raise NotWhileDivertedError(
                f"{what} needs the primary, and sends to '{self._path}' are diverted. A message that carries its"
                " scheduled_enqueue_time_utc can be sent with send_messages."
            )
        try:
            result = yield AtPrimary(call)
        except Exception as error:
            self._pairing.failed(scope, error, None)
            raise
        self._pairing.board.sent(scope)
        return result

    def refusal(self, scope: Scope) -> RefusedError:
        """Why nothing is sent: what the last ping was told."""
        reason = self._pairing.board.health(scope).reason
        return RefusedError(f"The primary refuses messages for '{scope}' in a way that will not pass: {reason}")
