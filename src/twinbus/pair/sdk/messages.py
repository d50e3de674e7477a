"""The one place that knows the official `azure-servicebus`: its messages as bytes, its errors as kinds of failure.

Everything that its public interface does not offer is used here and nowhere else. Where messages go is decided by
`sending`.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus import ServiceBusMessageBatch as ServiceBusMessageBatch
from azure.servicebus._base_handler import ServiceBusAzureNamedKeyTokenCredential, ServiceBusAzureSasTokenCredential
from azure.servicebus._common.utils import transform_outbound_messages
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageNotFoundError,
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
from twinbus.client.hearing import Heard, Listener
from twinbus.pair.route.failures import Failure, kind_of, kind_of_condition
from twinbus.pair.sdk.attempts import remember_attempt
from twinbus.pair.sdk.client_errors import heard_in, text

# What a sender may be given, as the SDK's own methods take it.
Sendable = (
    ServiceBusMessage
    | AmqpAnnotatedMessage
    | ServiceBusMessageBatch
    | Mapping[str, Any]
    | Iterable[ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]]
)

# Asked of every send, so that no union of types is made anew.
_SINGLE = (ServiceBusMessage, AmqpAnnotatedMessage, Mapping)
_SEVERAL = (ServiceBusMessageBatch, list, tuple)
_REPEATABLE = (ServiceBusMessage, AmqpAnnotatedMessage, *_SEVERAL, Mapping)

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
    (MessageSizeExceededError, Failure.MISTAKE),
    (MessageNotFoundError, Failure.MISTAKE),
    (MessagingEntityNotFoundError, Failure.PERMANENT),
    (MessagingEntityDisabledError, Failure.PERMANENT),
    (MessagingEntityAlreadyExistsError, Failure.PERMANENT),
    (TimeoutError, Failure.TIMEOUT),
    (OSError, Failure.TRANSIENT),
)
_CALLERS_OWN = (TypeError, ValueError, AttributeError)
_GETTERS = (
    "get_queue_sender",
    "get_topic_sender",
    "get_queue_receiver",
    "get_subscription_receiver",
    "list_queue_sessions",
    "list_subscription_sessions",
)


def failure_of(error: BaseException) -> Failure:
    """The kind of failure: what the broker named goes before what the SDK calls it."""
    known = kind_of_condition(condition_of(error))
    if known is not None:
        return known
    for kind, failure in _KINDS:
        if isinstance(error, kind):
            return failure
    if not isinstance(error, ServiceBusError):
        return Failure.MISTAKE
    # Whatever the SDK does not know itself comes out as its general error, with the first cause inside.
    inner = error.inner_exception
    if isinstance(inner, _CALLERS_OWN):
        return Failure.MISTAKE
    if inner is not None and not isinstance(inner, AzureError):
        return Failure.TRANSIENT
    return Failure.TRANSIENT if getattr(error, "_retryable", False) else Failure.PERMANENT


def failure_to_send(error: BaseException, message: Sendable) -> Failure:
    """The kind of failure of a send, where the message can be looked at.

    Several sends over one link of the SDK stumble over each other when it breaks: what looks like a mistake in a
    program is none of the caller's if the message itself can be encoded.
    """
    kind = failure_of(error)
    if kind is Failure.MISTAKE and isinstance(getattr(error, "inner_exception", None), AttributeError):
        with suppress(Exception):
            encoded(message)
            return Failure.TRANSIENT
    return kind


def condition_of(error: BaseException) -> str:
    """What was named as the reason; empty if nothing was."""
    return text(getattr(error, "_condition", None))


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


def encoded(messages: Sendable, batch_bytes_max: int | None = None) -> list[bytes]:
    """Each message as the SDK would put it on the wire; what it cannot encode is raised as it raises that.

    Several go in one batch, and must fit it. A single one that cannot be encoded is noticed while it is sent, and the
    SDK calls that a failure of the link.
    """
    if isinstance(messages, ServiceBusMessageBatch):
        return _parts(messages)
    if isinstance(messages, ServiceBusMessage | AmqpAnnotatedMessage | Mapping):
        batch = ServiceBusMessageBatch(max_size_in_bytes=_UNBOUNDED)
        outgoing: Any = transform_outbound_messages(
            messages, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message
        )
        try:
            batch.add_message(outgoing)
        except _CALLERS_OWN as mistake:
            raise ServiceBusError(message=f"Handler failed: {mistake}.", error=mistake) from mistake
        return _parts(batch)
    batch = ServiceBusMessageBatch(max_size_in_bytes=batch_bytes_max or _UNBOUNDED)
    for message in messages:
        batch.add_message(message)
    return _parts(batch)


def _parts(batch: ServiceBusMessageBatch) -> list[bytes]:
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


def fields_of(message: Any) -> tuple[Any, Any, Mapping[Any, Any] | None]:
    """MessageId, subject and the application's properties, of whatever may be sent or was received."""
    if isinstance(message, Mapping):
        return message.get("message_id"), message.get("subject"), message.get("application_properties")
    if isinstance(message, AmqpAnnotatedMessage):
        properties = message.properties
        if properties is None:
            return None, None, message.application_properties
        return properties.message_id, properties.subject, message.application_properties
    return message.message_id, message.subject, message.application_properties


def with_ids(messages: Sendable, new_id: Callable[[], str]) -> Sendable:
    """The same messages, each with a MessageId; on the caller's own it is written, so that a retry has the same."""
    if isinstance(
        messages, ServiceBusMessage
    ):  # As most are: this is asked of every send, and so without its property.
        properties = messages._raw_amqp_message.properties
        if properties is None or not properties.message_id:
            messages.message_id = new_id()
        return messages
    if isinstance(messages, ServiceBusMessageBatch):
        if all(message.message_id for message in messages._messages):
            return messages
        batch = ServiceBusMessageBatch(max_size_in_bytes=_UNBOUNDED)
        for message in messages._messages:
            batch.add_message(_with_id(message, new_id))
        return batch
    if isinstance(messages, _SINGLE):
        one: Sendable = _with_id(messages, new_id)
        return one
    return [_with_id(message, new_id) for message in messages]


def _with_id(message: Any, new_id: Callable[[], str]) -> Any:
    if fields_of(message)[0]:
        return message
    if isinstance(message, Mapping):
        return {**message, "message_id": new_id()}
    if isinstance(message, AmqpAnnotatedMessage):
        properties = message.properties or AmqpMessageProperties()
        properties.message_id = new_id()
        message.properties = properties
    else:
        message.message_id = new_id()
    return message


def each(messages: Sendable) -> list[Any]:
    """The single messages of what may be sent at once."""
    return (
        list(messages._messages)
        if isinstance(messages, ServiceBusMessageBatch)
        else [messages]
        if isinstance(messages, _SINGLE)
        else list(messages)
    )


def is_empty(messages: Sendable) -> bool:
    """Whether there is nothing to send."""
    return isinstance(messages, _SEVERAL) and not len(messages)


def repeatable(messages: Sendable) -> Sendable:
    """Messages that can be looked at twice; a generator is read once."""
    return messages if isinstance(messages, _REPEATABLE) else list(messages)


def new_batch(max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """A batch made without asking the primary for its limit."""
    return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes)


class LinkLimits(NamedTuple):
    """What the primary said about sizes when a sender's link was opened; 0 if it was never asked."""

    message_bytes: int
    batch_bytes: int


def limits_of(sender: Any) -> LinkLimits:
    """As the sender remembers them; releases before 7.15 have one limit for both."""
    message_bytes = int(getattr(sender, "_max_message_size_on_link", 0))
    return LinkLimits(message_bytes, int(getattr(sender, "_max_batch_size_on_link", message_bytes)))


def bounded(attempts: int, attempt_timeout_s: float) -> dict[str, Any]:
    """Settings of an SDK client with which a dead namespace costs a caller a bounded time."""
    return {
        "retry_total": attempts - 1,
        "retry_backoff_factor": 0.2,
        "retry_backoff_max": 1.0,
        "try_timeout": attempt_timeout_s,
    }


def at_port(connection_string: str, given: Mapping[str, Any], ca: Path | None = None) -> dict[str, Any]:
    """Settings of an SDK client that follow from where its namespace is, and from whom to trust there.

    Of a port in the connection string it takes no notice unless it speaks to an emulator. An address or a proxy that
    was `given` is the caller's own way there.
    """
    target = ConnectionString.parse(connection_string)
    settings: dict[str, Any] = {} if ca is None else {"connection_verify": str(ca)}
    if not target.tls:
        settings["ssl_context"] = _TRUSTS_NOBODY
    if target.tls and target.port != TLS_PORT and not given.get("custom_endpoint_address"):
        settings["custom_endpoint_address"] = f"sb://{target.host}:{target.port}"
        if not given.get("http_proxy"):
            settings["transport_type"] = TransportType.Amqp  # With such an address it would choose WebSockets.
    return settings


def new_client(kind: Any, connection_string: str, settings: Mapping[str, Any], ca: Path | None = None) -> Any:
    """A client of the SDK, of one flavour or the other, whose attempts end where the settings say so."""
    settings = {**at_port(connection_string, settings, ca), **settings}
    client = kind.from_connection_string(connection_string, **settings)
    remember_attempt(client, settings.get("try_timeout"))
    return client


def state_of(client: Any) -> dict[str, Any]:
    """What a client of the SDK is made of: settings, and the senders and receivers that it has made."""
    return {name: value for name, value in vars(client).items() if name not in ("close", *_GETTERS)}  # See `watch_…`.


def copy_of(client: Any) -> Any:
    """Another client with the settings of one, and with senders and receivers of its own."""
    made = object.__new__(type(client))
    vars(made).update(state_of(client), _handlers=WeakSet())
    return made


def trusting(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The SDK's way of naming authorities, for our own client."""
    context: ssl.SSLContext | None = settings.get("ssl_context")
    verify = settings.get("connection_verify")
    if context is None and verify:
        return ssl.create_default_context(cafile=verify)
    return context


def target_of(client: Any) -> ConnectionString:
    """Where an SDK client connects to, and how it proves who it is."""
    credential = client._credential
    plain = not client._config.use_tls
    host, _, port = client.fully_qualified_namespace.partition(":")
    policy, key = getattr(credential, "policy", None), getattr(credential, "key", None)
    # These two can be given another key or signature at any time, so they are asked for each token.
    if isinstance(credential, AzureNamedKeyCredential):
        credential = ServiceBusAzureNamedKeyTokenCredential(credential)
    elif isinstance(credential, AzureSasCredential):
        credential = ServiceBusAzureSasTokenCredential(credential)
    return ConnectionString(
        host=host,
        port=int(port) if port else (5672 if plain else 5671),
        tls=not plain,
        policy=policy,
        key=key,
        credential=None if policy and key else credential,  # Who has no key has something that gives tokens.
    )


def watch_close(client: Any, closed: Callable[[], None]) -> None:
    """Be told when somebody closes a client; it cannot be asked afterwards."""
    close = client.close

    @functools.wraps(close)
    def close_and_report(*args: Any, **kwargs: Any) -> Any:
        closed()
        return close(*args, **kwargs)

    client.close = close_and_report


def watch_handlers(client: Any, check: Callable[[], None], listener: Listener) -> None:
    """Have `check` raise before a client makes a sender or receiver; hear what those that it makes meet."""
    for name in _GETTERS:
        get = getattr(client, name, None)
        if get is not None:
            setattr(client, name, _watched(get, check, listener))


def _watched(get: Callable[..., Any], check: Callable[[], None], listener: Listener) -> Callable[..., Any]:
    @functools.wraps(get)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check()
        made = get(*args, **kwargs)
        if hasattr(made, "_handle_exception"):
            _watch_errors(made, listener)
        return made

    return checked


def _watch_errors(handler: Any, listener: Listener) -> None:
    handle = handler._handle_exception

    @functools.wraps(handle)
    def handle_heard(problem: BaseException) -> Any:
        what = heard_in(problem)
        if what is not None:
            listener(Heard(what, handler._entity_path))
        return handle(problem)  # For asyncio this is something to be awaited.

    handler._handle_exception = handle_heard


def break_off(client: Any, reason: Exception) -> None:
    """Every sender and receiver of a client raises the reason from now on."""

    def refuse() -> None:
        raise reason

    for handler in list(client._handlers):
        handler._check_live = refuse
