"""The typed values of rules as XML: parameters of SQL filters and actions, properties of correlation filters.

The spelling is what both official clients read (wire contract 9.4); which values a rule may have is left to
`rules`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.errors import BusError, Fault
from twinbus.wire.descriptions import fields_of, is_nil, local_name, read_boolean, type_of
from twinbus.wire.markup import Element, escaped, tag

PAIR = "KeyValueOfstringanyType"

_SCHEMA = "http://www.w3.org/2001/XMLSchema"
_SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_MILLISECOND = timedelta(milliseconds=1)

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\Z")
_SPECIAL = re.compile(
    r"[+-]?inf(inity)?\Z|nan\Z", re.IGNORECASE
)  # XML Schema says INF, Python inf, JavaScript Infinity.
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?\Z")
_TEXT_CHARS_MAX = 64  # Of a number, an instant, a duration or an id.
_SPECIAL_REALS = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}  # As XML Schema spells them.


# Writing


def write(values: Mapping[str, Any]) -> str:
    """All pairs; empty if there are none."""
    return "".join(f"<{PAIR}>{tag('Key', name)}{_write_value(value)}</{PAIR}>" for name, value in values.items())


def _write_value(value: Any) -> str:
    # The JavaScript client wants the attribute with exactly this prefix, and cuts five characters off its value.
    if value is None:
        return f'<Value i:nil="true" xmlns:d6p1="{_SCHEMA}" i:type="d6p1:string"/>'
    kind, text = _spelt(value)
    namespace = _SERIALIZATION if kind == "guid" else _SCHEMA
    return f'<Value xmlns:d6p1="{namespace}" i:type="d6p1:{kind}">{escaped(text)}</Value>'


def _spelt(value: Any) -> tuple[str, str]:
    """The type and the text of a value; booleans before the integers that they are in Python."""
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return "int" if _INT32_MIN <= value <= _INT32_MAX else "long", int.__repr__(value)
        case float():
            text = float.__repr__(value)
            return "double", _SPECIAL_REALS.get(text, text)
        case str():
            return "string", value
        case datetime():
            return "dateTime", value.isoformat().replace("+00:00", "Z")
        case timedelta():
            milliseconds = value // _MILLISECOND
            return "duration", ("-" if milliseconds < 0 else "") + format_duration(abs(milliseconds))
        case UUID():
            return "guid", str(value)
        case Decimal():
            return "decimal", str(value)
        case bytes():
            return "base64Binary", base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no type of a rule's value")


# Reading


def read(element: Element | None) -> dict[str, Any]:
    """The values by their keys."""
    values: dict[str, Any] = {}
    for pair in element.children if element is not None else ():
        # `fields_of` leaves out what is nil, which is a value here.
        fields = fields_of(pair) | {local_name(child): child for child in pair.children}
        if local_name(pair) != PAIR or "Key" not in fields or "Value" not in fields:
            raise BusError(Fault.ARGUMENT, f"The values of a rule must be {PAIR} elements with a Key and a Value.")
        key = fields["Key"].text
        if key in values:
            raise BusError(Fault.ARGUMENT, f"The key '{key[:40]}' occurs twice.")
        values[key] = _read_value(key, fields["Value"])
    return values


def _read_value(key: str, element: Element) -> Any:
    if is_nil(element):
        return None
    kind = type_of(element)
    reader = _READERS.get(kind)
    if reader is None:
        text = f"The value of '{key[:40]}' must declare one of the types {', '.join(_READERS)}, not '{kind[:40]}'."
        raise BusError(Fault.ARGUMENT, text)
    if kind == "string":
        return element.text
    text = element.text.strip()
    try:
        if len(text) > _TEXT_CHARS_MAX and kind != "base64Binary":
            raise ValueError
        return reader(text)
    except (BusError, ValueError, ArithmeticError):
        raise BusError(Fault.ARGUMENT, f"The value of '{key[:40]}' is not of the type {kind}.") from None


def _read_integer(text: str) -> int:
    return int(_matched(_INTEGER, text))


def _read_real(text: str) -> float:
    return float(text if _SPECIAL.match(text) else _matched(_DECIMAL, text))


def _read_decimal(text: str) -> Decimal:
    return Decimal(_matched(_DECIMAL, text))


def _read_instant(text: str) -> datetime:
    value = datetime.fromisoformat(_matched(_INSTANT, text))
    return value if value.tzinfo is None else value.astimezone(UTC)


def _read_duration(text: str) -> timedelta:
    length = parse_duration_ms(text.removeprefix("-")) * _MILLISECOND
    return -length if text.startswith("-") else length


def _read_binary(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.match(text):
        raise ValueError
    return text


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int": _read_integer,
    "long": _read_integer,
    "short": _read_integer,
    "double": _read_real,
    "float": _read_real,
    "decimal": _read_decimal,
    "boolean": read_boolean,
    "dateTime": _read_instant,
    "duration": _read_duration,
    "guid": UUID,
    "base64Binary": _read_binary,
}
