"""Application properties as HTTP headers, and dates as HTTP writes them; the type of a value is told by its form.

`"text"` is a string, `"Sun, 06 Nov 1994 08:49:37 GMT"` an instant, `true` and `false` are booleans, and what is left
must be a number. The documents of the service say so; JSON, which batches use, is `messages_json`'s business.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from twinbus.model.errors import BusError, Fault
from twinbus.wire.brokered import Instant

# Headers that HTTP, proxies and clients use for themselves; no property can have such a name.
# fmt: off
_RESERVED = frozenset({
    "accept", "accept-charset", "accept-encoding", "accept-language", "age", "allow", "alt-svc", "authorization",
    "baggage", "brokerproperties", "cache-control", "connection", "content-disposition", "content-encoding",
    "content-language", "content-length", "content-location", "content-md5", "content-range", "content-type",
    "cookie", "date", "dnt", "etag", "expect", "expires", "forwarded", "from", "host", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive", "last-modified", "link",
    "location", "max-forwards", "origin", "pragma", "range", "referer", "request-id", "retry-after", "server",
    "servicebusauthorization", "servicebusdlqsupplementaryauthorization", "servicebussupplementaryauthorization",
    "set-cookie", "strict-transport-security", "te", "traceparent", "tracestate", "trailer", "transfer-encoding",
    "upgrade", "upgrade-insecure-requests", "user-agent", "vary", "via", "warning", "www-authenticate",
    "x-ms-client-request-id", "x-ms-date", "x-ms-retrypolicy", "x-ms-return-client-request-id", "x-ms-version",
    "x-real-ip", "x-request-id", "x-requested-with",
})
# fmt: on
_RESERVED_BEGINNINGS = ("access-control-", "proxy-", "sec-", "x-forwarded-")

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(rf"(?:{'|'.join(_DAYS)}), (\d\d) ({'|'.join(_MONTHS)}) (\d{{4}}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII)
_FIRST_DATE_MS, _LAST_DATE_MS = -62_135_596_800_000, 253_402_300_799_999  # The years 1 to 9999.


def is_reserved(name: str) -> bool:
    """Whether a header is somebody else's, and neither read nor written as a property."""
    lowered = name.lower()
    return lowered in _RESERVED or lowered.startswith(_RESERVED_BEGINNINGS)


def properties_in(headers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The application properties among a request's headers; ARGUMENT for one whose type cannot be told."""
    found: dict[str, Any] = {}
    for name, text in headers:
        if is_reserved(name):
            continue
        if name in found:
            raise BusError(Fault.ARGUMENT, f"The header '{name}' occurs twice.")
        found[name] = _value(name, text.strip())
    return found


def _value(name: str, text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BusError(Fault.ARGUMENT, f"The header '{name!a}' is not UTF-8.") from None
    if len(text) > 1 and text[0] == text[-1] == '"':
        inner = text[1:-1]
        instant = instant_of(inner)
        return inner.replace('\\"', '"') if instant is None else Instant(instant)
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    raise BusError(
        Fault.ARGUMENT, f"The header '{name}' is a property: its value must be quoted text, a number, true or false."
    )


def headers_of(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Properties as headers of an answer; those whose names cannot be a header's are left out."""
    for name, value in properties.items():
        if _TOKEN.fullmatch(name) and not is_reserved(name):
            yield name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Instant):
        return f'"{http_date(value)}"' if _FIRST_DATE_MS <= value <= _LAST_DATE_MS else str(int(value))
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    # A header is one line: what would end it, or does not belong in it, becomes a space.
    return '"' + _CONTROLS.sub(" ", str(value)).replace('"', '\\"') + '"'


def http_date(instant_ms: int) -> str:
    """An instant as HTTP writes it, in whole seconds; beyond the years that it can write, the first or last one."""
    at = datetime.fromtimestamp(min(max(instant_ms, _FIRST_DATE_MS), _LAST_DATE_MS) // 1000, UTC)
    month = _MONTHS[at.month - 1]
    return f"{_DAYS[at.weekday()]}, {at.day:02} {month} {at.year:04} {at:%H:%M:%S} GMT"


def instant_of(text: str) -> int | None:
    """The milliseconds of a date as HTTP writes it; None for any other text."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    day, month, year, hour, minute, second = found.groups()
    try:
        at = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp()) * 1000
