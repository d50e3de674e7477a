"""How a class of fields becomes a described list and back (Part 1, section 1.4: composite types).

Every field is checked for presence and AMQP type, so that nothing behind this module has to.
Which classes there are is left to `performatives`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from twinbus.amqp.decoder import decode, decode_items, skip
from twinbus.amqp.encoder import (
    encode,
    encode_binary,
    encode_list,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
)
from twinbus.amqp.types import Array, DecodeError, Described, Raw, Symbol, UByte, UInt, ULong, UShort

INVALID_FIELD = "amqp:invalid-field"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field: its name, AMQP type, whether it must be there, and what its absence means."""

    name: str
    kind: str
    required: bool
    default: Any


_FIELDS: dict[type, tuple[Field, ...]] = {}
_CODES: dict[type, int] = {}
_CLASSES: dict[int, type] = {}
# The symbolic descriptors of section 1.4 that a peer may use in place of the codes.
_NAMES: dict[str, int] = {}
# Performatives (0x10 to 0x18) and errors are sent with all their fields: the official Python client before 7.15 takes a
# field by its number, and does not look how many there are.
_ALWAYS_WHOLE = frozenset({*range(0x10, 0x19), 0x1D})


def field(kind: str, *, default: Any = dataclasses.MISSING) -> Any:
    """Declares a field of a class marked with `composite`; without a default it is mandatory."""
    return dataclasses.field(default=default, metadata={"kind": kind})


@dataclass_transform(field_specifiers=(field,))
def composite(code: int, *, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Makes a slotted dataclass of the class and registers its descriptor."""

    def register(plain: type[T]) -> type[T]:
        made = dataclasses.dataclass(slots=True, kw_only=kw_only)(plain)
        _FIELDS[made] = tuple(
            Field(item.name, item.metadata["kind"], item.default is dataclasses.MISSING, item.default)
            for item in dataclasses.fields(made)  # type: ignore[arg-type]
        )
        _CODES[made] = code
        _CLASSES[code] = made
        _NAMES[_symbolic(plain.__name__)] = code
        return made

    return register


def _symbolic(name: str) -> str:
    dashed = "".join(("-" if letter.isupper() else "") + letter.lower() for letter in name)
    return f"amqp:{dashed.lstrip('-')}:list"


def fields_of(kind: type) -> tuple[Field, ...]:
    """The fields of a composite class, in order."""
    return _FIELDS[kind]


# --- encoding ---


def encode_composite(value: object) -> bytes:
    """An instance as a described list; trailing nulls and defaults are left out where clients allow it."""
    kind = type(value)
    fields = _FIELDS[kind]
    parts = [_encode_field(item, getattr(value, item.name)) for item in fields]
    if _CODES[kind] not in _ALWAYS_WHOLE:
        while parts and _says_nothing(fields[len(parts) - 1], value, parts[-1]):
            parts.pop()
    return b"\x00\x53" + bytes((_CODES[kind],)) + encode_list(parts)


def encode_any(value: Any) -> bytes:
    """An instance of a composite class, or any other value."""
    return encode_composite(value) if type(value) in _FIELDS else encode(value)


def _says_nothing(item: Field, value: object, encoded: bytes) -> bool:
    """A null or a default at the end of the list may be left out; in the middle a default is spelled out."""
    return encoded == b"\x40" or (not item.required and getattr(value, item.name) == item.default)


def _encode_field(item: Field, value: Any) -> bytes:
    if value is None:
        return b"\x40"
    if type(value) is Raw:
        return value
    return _FIELD_ENCODERS[item.kind](value)


def _encode_symbols(value: Any) -> bytes:
    if isinstance(value, str):
        return encode_symbol(value)
    return encode(Array([Symbol(item) for item in value], None if value else 0xA3))


_FIELD_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "string": encode_string,
    "symbol": encode_symbol,
    "symbols": _encode_symbols,
    "binary": encode_binary,
    "boolean": lambda value: b"\x41" if value else b"\x42",
    "ubyte": lambda value: encode(UByte(value)),
    "ushort": lambda value: encode(UShort(value)),
    "uint": encode_uint,
    "ulong": encode_ulong,
    "map": encode,
    "any": encode_any,
    "composite": encode_any,
    "source": encode_any,
    "target": encode_any,
    "error": encode_any,
}


# --- decoding ---


def decode_composite(data: bytes, offset: int = 0, limit: int | None = None) -> tuple[Any, int]:
    """The composite at `offset` as an instance of its class, and the offset behind it."""
    end = len(data) if limit is None or limit > len(data) else limit
    if data[offset : offset + 2] == b"\x00\x53" and offset + 3 < end:
        code: int | None = data[offset + 2]
        after = offset + 3
    elif data[offset : offset + 1] == b"\x00":
        descriptor, after = decode(data, offset + 1, end)
        code = _code(descriptor)
    else:
        raise DecodeError("a described list was expected")
    kind = None if code is None else _CLASSES.get(code)
    if kind is None:
        raise DecodeError("unknown descriptor of a composite")
    items, after = decode_items(data, after, end)
    return _build(kind, items), after


def field_bytes(data: bytes, offset: int, limit: int, index: int) -> bytes | None:
    """The bytes of one field of the valid composite at `offset`, or None where it is absent or null."""
    pos = skip(data, offset + 1, limit)
    if data[pos] == 0x45:
        return None
    wide = data[pos] == 0xD0
    count = int.from_bytes(data[pos + 5 : pos + 9], "big") if wide else data[pos + 2]
    if index >= count:
        return None
    pos += 9 if wide else 3
    for _ in range(index):
        pos = skip(data, pos, limit)
    return None if data[pos] == 0x40 else data[pos : skip(data, pos, limit)]


def _code(descriptor: Any) -> int | None:
    if isinstance(descriptor, ULong):
        return int(descriptor)
    return _NAMES.get(descriptor) if isinstance(descriptor, Symbol) else None


def compose(value: Any) -> Any:
    """A decoded value as an instance of its composite class; with an unknown descriptor it stays as it is."""
    if type(value) is not Described:
        return value
    code = _code(value.descriptor)
    kind = None if code is None else _CLASSES.get(code)
    if kind is None:
        return value
    if type(value.value) is not list:
        raise DecodeError(f"{kind.__name__} is not a list")
    return _build(kind, value.value)


def _build(kind: type, items: list[Any]) -> Any:
    fields = _FIELDS[kind]
    if len(items) > len(fields):
        raise DecodeError(f"{kind.__name__} has {len(items)} fields instead of at most {len(fields)}")
    values: dict[str, Any] = {}
    for item, value in zip(fields, items, strict=False):
        if value is not None:
            values[item.name] = _FIELD_DECODERS[item.kind](value, kind, item)
    for item in fields:
        if item.required and item.name not in values:
            raise DecodeError(f"{kind.__name__} lacks its mandatory {item.name}", INVALID_FIELD)
    return kind(**values)


def _wrong(kind: type, item: Field) -> DecodeError:
    return DecodeError(f"{item.name} of {kind.__name__} is not a {item.kind}", INVALID_FIELD)


def _typed(expected: type) -> Callable[[Any, type, Field], Any]:
    def check(value: Any, kind: type, item: Field) -> Any:
        if type(value) is not expected:
            raise _wrong(kind, item)
        return value

    return check


def _decode_symbols(value: Any, kind: type, item: Field) -> list[Symbol]:
    """A field that may hold several symbols: one alone needs no array (1.4)."""
    if type(value) is Symbol:
        return [value]
    if type(value) is Array and all(type(entry) is Symbol for entry in value):
        return list(value)
    raise _wrong(kind, item)


def _decode_composite_field(value: Any, kind: type, item: Field) -> Any:
    if type(value) is not Described:
        raise _wrong(kind, item)
    return compose(value)


def _decode_named(*accepted: str) -> Callable[[Any, type, Field], Any]:
    """A field that takes certain composites; unknown descriptors are passed on as they are."""

    def read(value: Any, kind: type, item: Field) -> Any:
        made = _decode_composite_field(value, kind, item)
        if type(made) is Described or type(made).__name__ in accepted:
            return made
        raise _wrong(kind, item)

    return read


def _decode_error(value: Any, kind: type, item: Field) -> Any:
    made = _decode_composite_field(value, kind, item)
    if type(made).__name__ != "Error":
        raise _wrong(kind, item)
    return made


_FIELD_DECODERS: dict[str, Callable[[Any, type, Field], Any]] = {
    "string": _typed(str),
    "symbol": _typed(Symbol),
    "symbols": _decode_symbols,
    "binary": _typed(bytes),
    "boolean": _typed(bool),
    "ubyte": _typed(UByte),
    "ushort": _typed(UShort),
    "uint": _typed(UInt),
    "ulong": _typed(ULong),
    "map": _typed(dict),
    "any": lambda value, kind, item: value,
    "composite": _decode_composite_field,
    "source": _decode_named("Source"),
    "target": _decode_named("Target", "Coordinator"),
    "error": _decode_error,
}
