"""The replicated client for asyncio: the SDK's own methods on two namespaces that hold the same messages.

What it does is told in `replication_sending` and `receiving`; here the SDK's clients are made and the parts joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.connection_string import ConnectionString
from twinbus.pair import sdk
from twinbus.pair.description import PairDescription
from twinbus.pair.failures import PRESETS
from twinbus.pair.half import refuse_same
from twinbus.pair.ledger_keeping import AsyncLedger, LedgerCore
from twinbus.pair.receiving import ReplicatedReceiver
from twinbus.pair.replication import Mode, Names, Roles, scope_of
from twinbus.pair.replication_sending import Copied, ReplicatedSender, Sent
from twinbus.pair.tags import Tag

ATTEMPTS = 2
ATTEMPT_TIMEOUT_S = 20.0
SESSION_WAIT_S = 10.0


class ReplicatedClient:
    """`azure.servicebus.aio.ServiceBusClient` over two namespaces that hold the same messages."""

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        *,
        mode: str | Mode,
        ledger: LedgerCore | Path | str | None = None,
        entities: Mapping[str, str] | None = None,
        names: tuple[str, str] | None = None,
        tag: str | Tag | None = None,
        failure_preset: str = "recommended",
        goes_on: bool = True,
        on_sent: Callable[[Sent], None] | None = None,
        on_swap: Callable[[str, str], None] | None = None,
    ) -> None:
        """`entities` maps names that differ in the second namespace. Receivers need a `ledger`.

        With `goes_on` a lost lock is no error to a receiver. `names` are those of the namespaces, for the ledger.
        """
        if failure_preset not in PRESETS:
            raise ValueError(f"failure_preset must be one of {', '.join(PRESETS)}, not {failure_preset!r}")
        self.primary = primary
        self.secondary = secondary
        self.clients = (primary, secondary)
        self.mode = Mode.parse(mode)
        self.names = names or (primary.fully_qualified_namespace, secondary.fully_qualified_namespace)
        self.roles = Roles()
        self.goes_on = goes_on
        self._own_ledger = isinstance(ledger, Path | str)
        self.ledger: LedgerCore | None = (
            AsyncLedger(ledger, tag=tag or "message_id") if isinstance(ledger, Path | str) else ledger
        )
        self.tag = Tag.parse(tag) if tag is not None else self.ledger.tag if self.ledger is not None else Tag()
        if self.ledger is not None and self.ledger.tag != self.tag:
            raise ValueError(f"The ledger tells copies by {self.ledger.tag}, and the client by {self.tag}.")
        self._entities = Names(entities)
        self._copied = Copied(self.mode, self.names, self.roles, self.tag, PRESETS[failure_preset], on_sent, on_swap)
        self._open: WeakSet[ReplicatedSender | ReplicatedReceiver] = WeakSet()

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        mode: str | Mode,
        attempts: int = ATTEMPTS,
        attempt_timeout: float = ATTEMPT_TIMEOUT_S,
        client_settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ReplicatedClient:
        """A client from two connection strings; `client_settings` are the SDK clients' own."""
        refuse_same(ConnectionString.parse(primary), ConnectionString.parse(secondary))
        settings = sdk.bounded(attempts, attempt_timeout) | dict(client_settings or {})
        return cls(
            ServiceBusClient.from_connection_string(primary, **(sdk.at_port(primary) | settings)),
            ServiceBusClient.from_connection_string(secondary, **(sdk.at_port(secondary) | settings)),
            mode=mode,
            **kwargs,
        )

    @classmethod
    def from_description(
        cls,
        description: PairDescription | Path | str | None = None,
        *,
        mode: str | Mode,
        client_settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> ReplicatedClient:
        """A client of two namespaces as a TOML file describes them, or without one the environment.

        Of the options it takes `attempts`, `attempt_timeout` and `failure_preset`; see docs/pairing.md.
        """
        pair = PairDescription.read(description)
        halves = (pair.primary, pair.secondary)
        refuse_same(*(ConnectionString.parse(half.connection_string) for half in halves))
        settings = sdk.bounded(pair.options.attempts, pair.options.seconds("attempt_timeout"))
        settings |= dict(client_settings or {})
        first, second = (
            ServiceBusClient.from_connection_string(
                half.connection_string, **(sdk.at_port(half.connection_string, half.ca) | settings)
            )
            for half in halves
        )
        given: dict[str, Any] = {"entities": pair.entities, "failure_preset": pair.options.failure_preset}
        given |= {} if pair.tag == Tag() else {"tag": pair.tag}
        if pair.primary.name and pair.secondary.name:
            given["names"] = (pair.primary.name, pair.secondary.name)
        return cls(first, second, mode=mode, **{**given, **kwargs})

    def active(self, path: str) -> str:
        """The namespace that a message for an entity is sent to first (passive replication)."""
        return self.names[self.roles.active(path)]

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a queue that is in both namespaces."""
        return self._sender(queue_name, "get_queue_sender", kwargs)

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> ReplicatedSender:
        """A sender to a topic that is in both namespaces."""
        return self._sender(topic_name, "get_topic_sender", kwargs)

    def _sender(self, name: str, method: str, kwargs: dict[str, Any]) -> ReplicatedSender:
        def maker(namespace: int) -> Callable[[], Any]:
            return lambda: getattr(self.clients[namespace], method)(self._entities.entity(name, namespace), **kwargs)

        sender = ReplicatedSender(self._copied, name, [maker(0), maker(1)])
        self._open.add(sender)
        return sender

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a queue that is in both namespaces, each message once."""

        def make(namespace: int, settings: dict[str, Any]) -> Any:
            return self.clients[namespace].get_queue_receiver(self._entities.entity(queue_name, namespace), **settings)

        return self._receiver(scope_of(queue_name, None, _sub_queue(kwargs)), make, kwargs)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **kwargs: Any) -> ReplicatedReceiver:
        """A receiver of a subscription that is in both namespaces, each message once."""

        def make(namespace: int, settings: dict[str, Any]) -> Any:
            names = self._entities.subscription(topic_name, subscription_name, namespace)
            return self.clients[namespace].get_subscription_receiver(*names, **settings)

        return self._receiver(scope_of(topic_name, subscription_name, _sub_queue(kwargs)), make, kwargs)

    def _receiver(
        self, scope: str, make: Callable[[int, dict[str, Any]], Any], kwargs: dict[str, Any]
    ) -> ReplicatedReceiver:
        if self.ledger is None:
            raise ValueError("A receiver of two namespaces needs a ledger: ReplicatedClient(…, ledger='ledger.db').")
        receiver = reading(self.ledger, scope, self.names, make, kwargs, self.goes_on)
        self._open.add(receiver)
        return receiver

    async def close(self) -> None:
        """Close everything that was handed out, and both clients; a ledger that was opened here, too."""
        opened = list(self._open)
        await asyncio.gather(*(each.close() for each in opened), return_exceptions=True)
        await asyncio.gather(self.primary.close(), self.secondary.close())
        if self._own_ledger and isinstance(self.ledger, AsyncLedger):
            await self.ledger.close()

    async def __aenter__(self) -> ReplicatedClient:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


def reading(
    ledger: LedgerCore,
    scope: str,
    names: tuple[str, ...],
    make: Callable[[int, dict[str, Any]], Any],
    kwargs: dict[str, Any],
    goes_on: bool = True,
) -> ReplicatedReceiver:
    """A receiver through a ledger; `kwargs` are those of the SDK's receiver, and `goes_on` for this one alone."""
    settings = dict(kwargs)
    goes_on = settings.pop("goes_on", goes_on)
    renewer = settings.pop("auto_lock_renewer", None)
    session_id = settings.get("session_id")
    deletes = ServiceBusReceiveMode(settings.get("receive_mode", ServiceBusReceiveMode.PEEK_LOCK)) is (
        ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )

    def handed_out(message: Any) -> None:
        if renewer is not None and session_id is None:
            renewer.register(receiver, message)

    async def join(receiver: ReplicatedReceiver) -> None:
        if session_id is NEXT_AVAILABLE_SESSION:
            await _join_next_session(receiver, make, settings)
        else:
            await _join_session(receiver)
        if renewer is not None:
            renewer.register(receiver, receiver.session)

    receiver = ReplicatedReceiver(
        ledger,
        scope,
        [(name, lambda number=number: make(number, settings)) for number, name in enumerate(names)],  # type: ignore[misc]
        deletes=deletes,
        max_wait_time=settings.get("max_wait_time"),
        goes_on=goes_on,
        sessions=session_id is not None,
        handed_out=handed_out,
        before_first=join if session_id is not None else None,
    )
    return receiver


def through_ledger(
    ledger: LedgerCore,
    client: ServiceBusClient,
    name: str,
    subscription: str | None,
    kwargs: dict[str, Any],
    goes_on: bool = True,
) -> ReplicatedReceiver:
    """A receiver of one namespace through a ledger, for paired clients: what comes twice is handed out once."""

    def make(_: int, settings: dict[str, Any]) -> Any:
        if subscription is None:
            return client.get_queue_receiver(name, **settings)
        return client.get_subscription_receiver(name, subscription, **settings)

    scope = scope_of(name, subscription, _sub_queue(kwargs))
    return reading(ledger, scope, (client.fully_qualified_namespace,), make, kwargs, goes_on)


async def _join_session(receiver: ReplicatedReceiver) -> None:
    """Lock a session by its name wherever that is possible now; the other namespace is tried again while receiving."""
    answers = await asyncio.gather(*(lane.call(_nothing) for lane in receiver.lanes), return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    if len(failed) == len(answers):
        raise failed[0]


async def _nothing(_: Any) -> None:
    return


async def _join_next_session(
    receiver: ReplicatedReceiver, make: Callable[[int, dict[str, Any]], Any], settings: dict[str, Any]
) -> None:
    """Take the next session that either namespace has; the other one's part of it is opened by its name."""
    wait_s = max((settings.get("max_wait_time") or SESSION_WAIT_S) / len(receiver.lanes), 0.5)
    problem: Exception = OperationTimeoutError()
    for number, lane in enumerate(receiver.lanes):
        opened = make(number, {**settings, "max_wait_time": wait_s})
        try:
            await opened.__aenter__()
        except Exception as error:
            problem = error
            await opened.close()
            continue
        lane.adopt(opened)
        settings["session_id"] = opened.session.session_id
        return
    raise problem


def _sub_queue(kwargs: Mapping[str, Any]) -> str | None:
    sub_queue = kwargs.get("sub_queue")
    return None if sub_queue is None else str(getattr(sub_queue, "value", sub_queue))
