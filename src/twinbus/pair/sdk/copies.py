"""What a message needs before two copies of it are sent, in the words of the official `azure-servicebus`.

It is the part of the adapter (`sdk`) that is about replication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.pair.sdk.messages import Sendable
from twinbus.pair.sdk.received import fields_of

_UNBOUNDED = 1 << 40
_SINGLE = (ServiceBusMessage, AmqpAnnotatedMessage, Mapping)


def with_ids(messages: Sendable, new_id: Callable[[], str]) -> Sendable:
    """The same messages, each with a MessageId; on the caller's own it is written, so that a retry has the same."""
    if isinstance(messages, ServiceBusMessage):  # As most are: this is asked of every send.
        if not messages.message_id:
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
