"""Messages as rows: the columns of `servicebus`, an encoded message to a row, and a row to a message that can be sent.

Knows no Spark: types are told as DDL text. Where messages come from and go to is left to source and sink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from twinbus.client.diverting import PATH
from twinbus.client.messages import Message, again, build, instant, read
from twinbus.pipeline.errors import PipelineError

# Name and type of each column, in order.
COLUMNS: dict[str, str] = {
    "body": "BINARY",
    "messageId": "STRING",
    "sequenceNumber": "BIGINT",
    "entity": "STRING",
    "namespace": "STRING",
    "path": "STRING",
    "enqueuedTime": "TIMESTAMP",
    "receivedTime": "TIMESTAMP",
    "lockedUntil": "TIMESTAMP",
    "deliveryCount": "INT",
    "sessionId": "STRING",
    "partitionKey": "STRING",
    "subject": "STRING",
    "contentType": "STRING",
    "correlationId": "STRING",
    "to": "STRING",
    "replyTo": "STRING",
    "replyToSessionId": "STRING",
    "timeToLive": "BIGINT",
    "scheduledEnqueueTime": "TIMESTAMP",
    "properties": "MAP<STRING, STRING>",
    "state": "STRING",
    "deadLetterReason": "STRING",
    "deadLetterDescription": "STRING",
    "deadLetterSource": "STRING",
}
PAYLOAD = "payload"  # The whole encoded message; only where it is asked for.
# What a row may say about a message that is to be sent; the other columns tell what a broker said.
SENT = (
    "body", "messageId", "sessionId", "partitionKey", "subject", "contentType", "correlationId", "to", "replyTo",
    "replyToSessionId", "timeToLive", "scheduledEnqueueTime", "properties", PAYLOAD,
)  # fmt: skip
# A property that the source itself puts on messages it sets aside; it is nobody else's business.
CLAIM = "x-twinbus-claim"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MAX_TTL_MS = 0xFFFFFFFF  # What the header can say; more is for ever.


def ddl(payload: bool = False) -> str:
    """The columns as Spark wants to be told them."""
    told = [f"`{name}` {kind}" for name, kind in COLUMNS.items()]
    return ", ".join([*told, f"`{PAYLOAD}` BINARY"] if payload else told)


def row(
    payload: bytes, entity: str, namespace: str, received_at_ms: int | None, *, with_payload: bool = False
) -> tuple[Any, ...]:
    """An encoded message as a row; `received_at_ms` is None when it was only looked at."""
    message = read(payload)
    values = (
        body_bytes(message.body),
        message.message_id,
        message.sequence_number,
        entity,
        namespace,
        _text(message.properties.get(PATH)),
        _instant(message.enqueued_at_ms),
        _instant(received_at_ms),
        _instant(message.locked_until_ms) if received_at_ms is not None else None,
        message.delivery_count,
        message.session_id,
        message.partition_key,
        message.subject,
        message.content_type,
        message.correlation_id,
        message.to,
        message.reply_to,
        message.reply_to_session_id,
        message.ttl_ms,
        _instant(message.scheduled_at_ms),
        {name: _text(value) for name, value in message.properties.items() if name != CLAIM},
        message.state.name.lower(),
        message.dead_letter_reason,
        message.dead_letter_description,
        message.dead_letter_source,
    )
    return (*values, payload) if with_payload else values


class RowMaker:
    """Makes rows with the columns that were asked for, which may be fewer and in another order."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        """Names and types, as Spark calls them; a PipelineError says which of them cannot be had."""
        known = {**COLUMNS, PAYLOAD: "BINARY"}
        for name, kind in columns.items():
            if name not in known:
                raise PipelineError(f"The source 'servicebus' has no column '{name}'; it has {', '.join(known)}.")
            own = known[name].lower().replace(" ", "")
            if kind != own:
                raise PipelineError(f"The column '{name}' is {own}, not {kind}: read it as it is, and cast it then.")
        self._positions = None if list(columns) == list(COLUMNS) else [list(known).index(name) for name in columns]

    def __call__(self, payload: bytes, entity: str, namespace: str, received_at_ms: int | None) -> tuple[Any, ...]:
        """A message as a row."""
        if self._positions is None:
            return row(payload, entity, namespace, received_at_ms)
        whole = row(payload, entity, namespace, received_at_ms, with_payload=True)
        return tuple([whole[position] for position in self._positions])


def payload_of(values: Mapping[str, Any]) -> bytes:
    """The message that a row describes, encoded and fit to be sent; columns that it lacks are left out.

    A row with `payload` is that message as its sender sent it, under the row's messageId if it names another.
    Everything else of it then comes from the payload.
    """
    whole = values.get(PAYLOAD)
    if whole is not None:
        message_id = values.get("messageId")
        changed = message_id is not None and message_id != read(bytes(whole)).message_id
        return again(bytes(whole), message_id if changed else None)
    body = values.get("body")
    ttl_ms = values.get("timeToLive")
    properties = values.get("properties")
    return build(
        b"" if body is None else body.encode() if isinstance(body, str) else bytes(body),
        message_id=values.get("messageId"),
        session_id=values.get("sessionId"),
        subject=values.get("subject"),
        correlation_id=values.get("correlationId"),
        content_type=values.get("contentType"),
        to=values.get("to"),
        reply_to=values.get("replyTo"),
        reply_to_session_id=values.get("replyToSessionId"),
        ttl_ms=None if ttl_ms is None else _within_header(int(ttl_ms)),
        due_at_ms=_milliseconds(values.get("scheduledEnqueueTime")),
        partition_key=values.get("partitionKey"),
        properties=None if not properties else dict(properties),
    )


def _within_header(ttl_ms: int) -> int:
    if ttl_ms < 0:
        raise PipelineError(f"timeToLive is {ttl_ms} ms, which is less than nothing.")
    return min(ttl_ms, _MAX_TTL_MS)


def body_bytes(body: Any) -> bytes:
    """A body as bytes: data as it is, a text in UTF-8, any other AMQP value as JSON."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body, default=_text).encode()


def _text(value: Any) -> str | None:
    """A value of a property as text."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case int() | float() | UUID():
            return str(value)
        case _:
            return json.dumps(value, default=_text)


def _instant(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else instant(at_ms)


def _milliseconds(at: datetime | None) -> int | None:
    if at is None:
        return None
    # Spark hands out instants without a zone in the time of the machine.
    return (at.astimezone(UTC) - _EPOCH) // _MILLISECOND


__all__ = ["CLAIM", "COLUMNS", "PAYLOAD", "SENT", "Message", "RowMaker", "body_bytes", "ddl", "payload_of", "row"]
