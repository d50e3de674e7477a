"""The one place that knows the official `azure-servicebus`: its messages as bytes, its errors as kinds of failure.

Everything that its public interface does not offer is used here and nowhere else. Where messages go is decided by
`sending`.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, TransportType
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from twinbus.client.connection_string import TLS_PORT, ConnectionString
from twinbus.client.errors import ClientError
from twinbus.pair.failures import Failure, kind_of

# What a sender may be given, as the SDK's own methods take it.
Sendable = (
    ServiceBusMessage
    | AmqpAnnotatedMessage
    | ServiceBusMessageBatch
    | Mapping[str, Any]
    | Iterable[ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]]
)

# For plain text, where nobody is asked for a certificate. Without it the SDK reads a file of all authorities for every
# connection, which takes longer than all the rest of connecting.
_TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
BATCH_BYTES_DEFAULT = 262_144
_UNBOUNDED = 1 << 40
_DATA = 5  # Where a batch of the SDK keeps its encoded messages.

_KINDS: tuple[tuple[type[BaseException], Failure], ...] = (
    (OperationTimeoutError, Failure.TIMEOUT),
    (ServiceBusServerBusyError, Failure.BUSY),
    (ServiceBusAuthenticationError, Failure.UNAUTHORIZED),
    (ServiceBusAuthorizationError, Failure.UNAUTHORIZED),
    (ServiceBusQuotaExceededError, Failure.FULL),
    (ServiceBusConnectionError, Failure.TRANSIENT),
    (ServiceBusCommunicationError, Failure.TRANSIENT),
    (MessageSizeExceededError, Failure.PERMANENT),
    (MessagingEntityNotFoundError, Failure.PERMANENT),
    (MessagingEntityDisabledError, Failure.PERMANENT),
    (MessagingEntityAlreadyExistsError, Failure.PERMANENT),
    (TimeoutError, Failure.TIMEOUT),
    (OSError, Failure.TRANSIENT),
)
_CALLERS_OWN = (TypeError, ValueError, AttributeError)


def failure_of(error: BaseException) -> Failure | None:
    """The kind of failure; None for a mistake of the caller's, which says nothing about the primary."""
    for kind, failure in _KINDS:
        if isinstance(error, kind):
            return failure
    if isinstance(error, ServiceBusError):
        # Whatever the SDK does not know itself comes out as its general error, with the first cause inside.
        inner = error.inner_exception
        if isinstance(inner, _CALLERS_OWN):
            return None
        if inner is not None and not isinstance(inner, AzureError):
            return Failure.TRANSIENT
        return Failure.TRANSIENT if getattr(error, "_retryable", False) else Failure.PERMANENT
    return None


_SDK_ERRORS: dict[Failure, type[ServiceBusError]] = {
    Failure.TIMEOUT: OperationTimeoutError,
    Failure.TRANSIENT: ServiceBusConnectionError,
    Failure.BUSY: ServiceBusServerBusyError,
    Failure.UNAUTHORIZED: ServiceBusAuthorizationError,
    Failure.FULL: ServiceBusQuotaExceededError,
}
_BY_CONDITION: dict[str, type[ServiceBusError]] = {
    "amqp:not-found": MessagingEntityNotFoundError,
    "com.microsoft:entity-disabled": MessagingEntityDisabledError,
    "amqp:link:message-size-exceeded": MessageSizeExceededError,
}


def as_sdk_error(error: ClientError) -> ServiceBusError:
    """What our own client reports, as an error that an application of the SDK knows."""
    kind = _BY_CONDITION.get(error.condition) or _SDK_ERRORS.get(kind_of(error))
    return kind(message=error.text) if kind is not None else ServiceBusError(error.text)


def encoded(messages: Sendable) -> list[bytes]:
    """Each message as the SDK would put it on the wire."""
    if isinstance(messages, ServiceBusMessageBatch):
        batch = messages
    else:
        batch = ServiceBusMessageBatch(max_size_in_bytes=_UNBOUNDED)
        for message in _each(messages):
            batch.add_message(message)
    return [bytes(part) for part in batch._message[_DATA]]


def key_of(messages: Sendable) -> str | None:
    """What pins a message to a fragment of a partitioned entity: its session, or its partition key.

    Of several it is the first one's, since a batch goes to one fragment as a whole.
    """
    first = _first(messages)
    if isinstance(first, ServiceBusMessage):
        return first.session_id or first.partition_key
    if isinstance(first, Mapping):
        return first.get("session_id") or first.get("partition_key")
    if isinstance(first, AmqpAnnotatedMessage):
        group = first.properties.group_id if first.properties is not None else None
        annotations = first.annotations or {}
        return _as_text(group or annotations.get("x-opt-partition-key") or annotations.get(b"x-opt-partition-key"))
    return None


def id_of(messages: Sendable) -> str | None:
    """The id of a message, or of the first of several."""
    first = _first(messages)
    if isinstance(first, Mapping):
        return first.get("message_id")
    if isinstance(first, AmqpAnnotatedMessage):
        return _as_text(first.properties.message_id) if first.properties is not None else None
    return first.message_id if isinstance(first, ServiceBusMessage) else None


def _first(messages: Sendable) -> Any:
    if isinstance(messages, ServiceBusMessageBatch):
        return messages._messages[0] if messages._messages else None
    if isinstance(messages, list | tuple):
        return messages[0] if messages else None
    return messages


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def is_empty(messages: Sendable) -> bool:
    """Whether there is nothing to send."""
    return isinstance(messages, ServiceBusMessageBatch | list | tuple) and not len(messages)


def repeatable(messages: Sendable) -> Sendable:
    """Messages that can be looked at twice; a generator is read once."""
    kinds = (ServiceBusMessage, AmqpAnnotatedMessage, ServiceBusMessageBatch, Mapping, list, tuple)
    return messages if isinstance(messages, kinds) else list(messages)


# The same, for those who ask for each message: exactly these types.
REPEATABLE = frozenset({ServiceBusMessage, ServiceBusMessageBatch, AmqpAnnotatedMessage, dict, list, tuple})


def new_batch(max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """A batch made without asking the primary for its limit."""
    return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes)


def batch_limit(sender: Any) -> int:
    """The limit that the primary told this sender; 0 if it was never asked."""
    return int(getattr(sender, "_max_batch_size_on_link", 0))


def bounded(attempts: int, attempt_timeout_s: float) -> dict[str, Any]:
    """Settings of an SDK client with which a dead namespace costs a caller a bounded time."""
    return {
        "retry_total": attempts - 1,
        "retry_backoff_factor": 0.2,
        "retry_backoff_max": 1.0,
        "try_timeout": attempt_timeout_s,
    }


def at_port(connection_string: str, ca: Path | None = None) -> dict[str, Any]:
    """Settings of an SDK client that follow from where its namespace is, and from whom to trust there.

    Of a port in the connection string it takes no notice unless it speaks to an emulator.
    """
    target = ConnectionString.parse(connection_string)
    settings: dict[str, Any] = {} if ca is None else {"connection_verify": str(ca)}
    if not target.tls:
        settings["ssl_context"] = _TRUSTS_NOBODY
    if target.tls and target.port != TLS_PORT:
        settings["custom_endpoint_address"] = f"sb://{target.host}:{target.port}"
        settings["transport_type"] = TransportType.Amqp  # With such an address it would choose WebSockets.
    return settings


def target_of(client: Any) -> ConnectionString:
    """Where an SDK client connects to, and how it proves who it is."""
    credential = client._credential
    plain = not client._config.use_tls
    host, _, port = client.fully_qualified_namespace.partition(":")
    policy, key, signature = getattr(credential, "policy", None), getattr(credential, "key", None), None
    if isinstance(credential, AzureNamedKeyCredential):
        policy, key = credential.named_key
    elif isinstance(credential, AzureSasCredential):
        signature = credential.signature
    return ConnectionString(
        host=host,
        port=int(port) if port else (5672 if plain else 5671),
        tls=not plain,
        policy=policy,
        key=key,
        signature=signature,
        # Whoever has neither has something that gives tokens.
        credential=None if signature or (policy and key) else credential,
    )


def watch_close(client: Any, closed: Callable[[], None]) -> None:
    """Be told when somebody closes a client; it cannot be asked afterwards."""
    close = client.close

    @functools.wraps(close)
    def close_and_tell(*args: Any, **kwargs: Any) -> Any:
        closed()
        return close(*args, **kwargs)

    client.close = close_and_tell


def break_off(client: Any, reason: Exception) -> None:
    """Every sender and receiver of a client raises the reason from now on."""

    def refuse() -> None:
        raise reason

    for handler in list(client._handlers):
        handler._check_live = refuse


def _each(messages: Sendable) -> Iterable[Any]:
    if isinstance(messages, ServiceBusMessage | AmqpAnnotatedMessage | Mapping):
        return [messages]
    return messages  # type: ignore[return-value]
