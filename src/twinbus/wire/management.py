"""The envelopes of `$management` and `$cbs`: requests read, responses written.

What the body of a request asks for is read by `operations`; who answers whom is the gateway's affair.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.amqp import codec
from twinbus.amqp.types import DecodeError, Int, Symbol
from twinbus.model.errors import BusError, Fault
from twinbus.wire.sections import APPLICATION_PROPERTIES, PROPERTIES, VALUE, canonical

OK = 200
ACCEPTED = 202
NO_CONTENT = 204

PUT_TOKEN = "put-token"
TRACKING_ID = "com.microsoft:tracking-id"

MessageId = str | UUID | int | bytes | None

_MESSAGE_ID, _REPLY_TO, _CORRELATION_ID = 0, 4, 5


class Request(NamedTuple):
    """A request to a management node."""

    operation: str
    message_id: MessageId  # Of the AMQP type it came in; the response must carry the same.
    reply_to: str | None
    tracking_id: str | None
    associated_link_name: str | None
    server_timeout_ms: int | None
    body: dict[str, Any]
    application_properties: dict[str, Any]


class TokenRequest(NamedTuple):
    """A token put on `$cbs`. The Python client calls every token a `jwt`; the token says what it is."""

    message_id: MessageId
    reply_to: str | None
    audience: str
    token: str

    def __repr__(self) -> str:
        return f"TokenRequest(audience={self.audience!r})"


def read_request(payload: bytes) -> Request:
    """A management request; BusErrors of kind DECODE or ARGUMENT when it is not one."""
    properties, application, body = _envelope(payload)
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise BusError(Fault.ARGUMENT, "The body of a management request is a map.")
    timeout = application.get("com.microsoft:server-timeout")
    return Request(
        operation=_text(application, "operation"),
        message_id=properties[_MESSAGE_ID],
        reply_to=_optional_text(properties[_REPLY_TO]),
        tracking_id=_optional_text(application.get(TRACKING_ID)),
        associated_link_name=_optional_text(application.get("associated-link-name")),
        server_timeout_ms=timeout if isinstance(timeout, int) and timeout >= 0 else None,
        body={str(key): value for key, value in body.items()},
        application_properties=application,
    )


def read_token_request(payload: bytes) -> TokenRequest:
    """A `put-token` request; other operations of `$cbs` are refused with NOT_IMPLEMENTED."""
    properties, application, body = _envelope(payload)
    if _text(application, "operation") != PUT_TOKEN:
        raise BusError(Fault.NOT_IMPLEMENTED, "$cbs offers put-token only.")
    if not isinstance(body, str):
        raise BusError(Fault.ARGUMENT, "The body of a put-token request is the token as a string.")
    return TokenRequest(
        message_id=properties[_MESSAGE_ID],
        reply_to=_optional_text(properties[_REPLY_TO]),
        audience=_text(application, "name"),
        token=str(body),
    )


def response(
    message_id: MessageId,
    status: int,
    description: str,
    body: Mapping[str, Any] | None = None,
    condition: str | None = None,
    tracking_id: str | None = None,
) -> bytes:
    """The response of a management node; `condition` belongs to errors only."""
    application: dict[str, Any] = {"statusCode": Int(status), "statusDescription": description}
    if condition is not None:
        application["errorCondition"] = Symbol(condition)
    if tracking_id is not None:
        application[TRACKING_ID] = tracking_id
    return _encoded(message_id, application, dict(body or {}))


def cbs_response(message_id: MessageId, code: int, description: str) -> bytes:
    """The response of `$cbs`, whose status goes by other names."""
    return _encoded(message_id, {"status-code": Int(code), "status-description": description}, None)


def _encoded(message_id: MessageId, application: dict[str, Any], body: Any) -> bytes:
    properties = [None] * _CORRELATION_ID + [message_id]
    return b"".join(
        bytes((0x00, 0x53, code)) + codec.encode(value)
        for code, value in ((PROPERTIES, properties), (APPLICATION_PROPERTIES, application), (VALUE, body))
    )


def _envelope(payload: bytes) -> tuple[list[Any], dict[str, Any], Any]:
    """Properties padded to the reply's needs, application properties and body of a request."""
    try:
        found: dict[int, Any] = {}
        payload = canonical(payload)
        pos = 0
        while pos < len(payload):
            code = payload[pos + 2]
            found[code], pos = codec.decode(payload, pos + 3)
    except (DecodeError, IndexError, struct.error) as error:
        raise BusError(Fault.DECODE, f"The request is malformed: {error}.") from error
    properties = list(found.get(PROPERTIES, ()))
    properties += [None] * (_CORRELATION_ID + 1 - len(properties))
    message_id = properties[_MESSAGE_ID]
    if isinstance(message_id, bool) or not isinstance(message_id, str | UUID | int | bytes | None):
        raise BusError(Fault.DECODE, "The message id of the request has the wrong type.")
    application = {str(key): value for key, value in found.get(APPLICATION_PROPERTIES, {}).items()}
    return properties, application, found.get(VALUE)


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise BusError(Fault.ARGUMENT, f"The request lacks the application property '{key}'.")
    return str(value)


def _optional_text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None
