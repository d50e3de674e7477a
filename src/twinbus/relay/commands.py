"""What relay and listener say to each other in JSON, on the control channel and on a rendezvous.

Only reads and writes; which command may come when is `states`' table, and what is done about it is `channel`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# Reserved to the relay: a sender must be able to tell whose failure it is.
RELAY_STATUSES = (502, 504)
REPLACED_STATUS = 500


class CommandError(Exception):
    """A listener said what is no command."""


class Response(NamedTuple):
    """A listener's answer to a request."""

    request_id: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    has_body: bool


class RenewToken(NamedTuple):
    """A listener goes on under a new token."""

    token: str


def accept(address: str, number: str, headers: Mapping[str, str]) -> bytes:
    """A sender wants a socket: the listener opens the address to get it."""
    return _written({"accept": {"address": address, "id": number, "connectHeaders": dict(headers)}})


def request_elsewhere(address: str) -> bytes:
    """A request is too large for the control channel: all of it is told at the address."""
    return _written({"request": {"address": address}})


def request(address: str, number: str, target: str, method: str, headers: Mapping[str, str], has_body: bool) -> bytes:
    """A request; its body, if it has one, is the next message."""
    told = {
        "address": address,
        "id": number,
        "requestTarget": target,
        "method": method,
        "requestHeaders": dict(headers),
        "body": has_body,
    }
    return _written({"request": told})


def response(number: str, status: int, reason: str, headers: Iterable[tuple[str, str]], has_body: bool) -> bytes:
    """A listener's answer; its body, if it has one, is the next message. A header that comes twice is a list."""
    listed: dict[str, list[str]] = {}
    for name, value in headers:
        listed.setdefault(name, []).append(value)
    told = {
        "requestId": number,
        "statusCode": status,
        "statusDescription": reason,
        "responseHeaders": {name: values if len(values) > 1 else values[0] for name, values in listed.items()},
        "body": has_body,
    }
    return _written({"response": told})


def renew_token(token: str) -> bytes:
    """A listener goes on under this token."""
    return _written({"renewToken": {"token": token}})


def read(text: bytes) -> Response | RenewToken:
    """What a listener said."""
    try:
        command = json.loads(text)
    except (ValueError, RecursionError):
        raise CommandError("This is not JSON.") from None
    match command:
        case {"response": dict(told)}:
            return _response(told)
        case {"renewToken": {"token": str(token)}}:
            return RenewToken(token)
    raise CommandError("This is neither a response nor a new token.")


def _response(told: dict[str, Any]) -> Response:
    number, status, reason = told.get("requestId"), told.get("statusCode"), told.get("statusDescription")
    if isinstance(status, str) and status.isascii() and status.isdigit():
        status = int(status)
    if not isinstance(number, str) or type(status) is not int or not 200 <= status <= 599:
        raise CommandError("A response has a requestId and a statusCode from 200 to 599.")
    headers = told.get("responseHeaders") or {}
    if not isinstance(headers, dict):
        raise CommandError("The responseHeaders are names with their values.")
    pairs = [
        (str(name), str(value))
        for name, values in headers.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None
    ]
    if status in RELAY_STATUSES:
        status, reason = REPLACED_STATUS, None
    return Response(number, status, reason if isinstance(reason, str) else "", pairs, bool(told.get("body")))


def _written(command: dict[str, Any]) -> bytes:
    return json.dumps(command, separators=(",", ":")).encode()
