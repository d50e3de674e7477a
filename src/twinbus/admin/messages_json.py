"""Broker properties as JSON, read from a sender and written for a receiver, and batches of messages as JSON.

What a value becomes in a message is `wire.brokered`'s business; bad input is told in a sentence, as ARGUMENT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.admin.messages_headers import http_date, instant_of
from twinbus.model import limits
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire.brokered import Received

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"

_TEXT_CHARS_MAX = 32 * 1024
_TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?", re.ASCII)
_SECONDS = re.compile(r"\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_UNLIMITED_S = 922_337_203_685.47754  # .NET's TimeSpan.MaxValue in seconds.


class NewMessage(NamedTuple):
    """A message as its sender words it."""

    body: bytes
    system: dict[str, Any]
    user: dict[str, Any]


def broker_properties_in(text: str) -> dict[str, Any]:
    """The header's properties by name, times in milliseconds; those that only the broker sets are ignored."""
    return _system(_json(text, "The BrokerProperties header"))


def batch_in(body: bytes) -> list[NewMessage]:
    """The messages of a batch."""
    items = _json(body, "The body of the batch")
    if not isinstance(items, list) or not items:
        raise _bad("A batch is a JSON array of at least one message")
    return [_message(item) for item in items]


def _message(item: Any) -> NewMessage:
    if not isinstance(item, dict) or not isinstance(item.get("Body"), str):
        raise _bad("Each message of a batch is a JSON object with a string as its Body")
    user = item.get("UserProperties") or {}
    if not isinstance(user, dict):
        raise _bad("UserProperties must be a JSON object")
    for name, value in user.items():
        if not (value is None or isinstance(value, str | bool | int | float)):
            raise _bad(f"The property '{name}' must be a string, a number, true, false or null")
    try:
        body = item["Body"].encode()
    except UnicodeEncodeError:
        raise _bad("The Body of a message has half of a surrogate pair") from None
    return NewMessage(body, _system(item.get("BrokerProperties") or {}), user)


def _json(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):  # A ValueError is also what a number of too many digits gives.
        raise _bad(f"{what} is not JSON") from None


def _no_number(text: str) -> None:
    raise ValueError(text)


def _system(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _bad("BrokerProperties must be a JSON object")
    found: dict[str, Any] = {}
    for name, read in _READERS.items():
        value = given.get(name)
        if value is not None:
            found[name] = read(name, value)
    span = found.pop("TimeToLiveTimeSpan", None)
    found.setdefault("TimeToLive", span)
    session, key = found.get("SessionId"), found.get("PartitionKey")
    if session is not None and key is not None and session != key:
        raise _bad("SessionId and PartitionKey differ: where both are given they must be the same")
    return {name: value for name, value in found.items() if value is not None}


def _text(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        raise _bad(f"{name} must be a string")
    if len(value) > _TEXT_CHARS_MAX:
        raise _bad(f"{name} is longer than {_TEXT_CHARS_MAX} characters")
    return value or None


def _seconds(name: str, value: Any) -> int:
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        value = float(value)  # The service's own clients of old write all values as strings.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(f"{name} must be a number of seconds")
    # Compared before it is multiplied: a number may be too large for that.
    return limits.UNLIMITED_MS if value >= limits.UNLIMITED_MS // 1000 else _lifetime(name, round(value * 1000))


def _time_span(name: str, value: Any) -> int:
    found = _TIME_SPAN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _bad(f"{name} must be a time span such as 0.00:00:40")
    days, hours, minutes, seconds, fraction = found.groups()
    total_s = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return _lifetime(name, total_s * 1000 + int((fraction or "0").ljust(3, "0")[:3]))


def _lifetime(name: str, milliseconds: int) -> int:
    if milliseconds <= 0:
        raise _bad(f"{name} must be longer than nothing")
    return min(milliseconds, limits.UNLIMITED_MS)


def _instant(name: str, value: Any) -> int:
    if isinstance(value, str):
        instant_ms = instant_of(value)
        if instant_ms is not None:
            return instant_ms
        try:
            at = datetime.fromisoformat(value)
            return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    raise _bad(f"{name} must be a date such as 'Sun, 06 Nov 1994 08:49:37 GMT'")


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "ContentType": _text,
    "CorrelationId": _text,
    "Label": _text,
    "MessageId": _text,
    "PartitionKey": _text,
    "ReplyTo": _text,
    "ReplyToSessionId": _text,
    "ScheduledEnqueueTimeUtc": _instant,
    "SessionId": _text,
    "TimeToLive": _seconds,
    "TimeToLiveTimeSpan": _time_span,
    "To": _text,
    "ViaPartitionKey": _text,
}


def broker_properties_of(message: Delivered, received: Received) -> str:
    """What a receiver is told, as one line of ASCII; the lock only where there is one."""
    told: dict[str, Any] = {"EnqueuedSequenceNumber": 0} | received.system
    told.pop("ContentType", None)
    if "ScheduledEnqueueTimeUtc" in told:
        told["ScheduledEnqueueTimeUtc"] = http_date(told["ScheduledEnqueueTimeUtc"])
    told |= {
        "DeliveryCount": message.delivery_count + 1,  # This delivery is counted here, and not in the AMQP header.
        "EnqueuedTimeUtc": http_date(message.enqueued_at_ms),
        "SequenceNumber": message.sequence_number,
        "State": message.state.name.capitalize(),
        "TimeToLive": _UNLIMITED_S if received.ttl_ms is None else _shortest(received.ttl_ms / 1000),
    }
    if message.token:
        told |= lock_of(message.token, message.locked_until_ms)
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f")  # The one control character that JSON does not escape.


def lock_of(token: bytes, locked_until_ms: int) -> dict[str, str]:
    """What is told of a lock."""
    return {"LockToken": str(UUID(bytes_le=token)), "LockedUntilUtc": http_date(locked_until_ms)}


def _shortest(seconds: float) -> int | float:
    return int(seconds) if seconds == int(seconds) else seconds


def _bad(sentence: str) -> BusError:
    return BusError(Fault.ARGUMENT, f"{sentence}.")
