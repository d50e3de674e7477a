"""Python types for the AMQP 1.0 types that Python does not have, and the errors of the type system.

A decoded value remembers its AMQP type by its Python type, so that it encodes to the same type again.
How values become bytes is left to `codec`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class DecodeError(ValueError):
    """The bytes are not valid AMQP 1.0; the peer that sent them is at fault."""

    def __init__(self, message: str, condition: str = "amqp:decode-error") -> None:
        super().__init__(message)
        self.condition = condition


class EncodeError(ValueError):
    """The value has no AMQP 1.0 encoding; the caller is at fault."""


class Symbol(str):
    """AMQP symbol: a name from a limited set, as in annotation keys and conditions."""

    __slots__ = ()


class Char(str):
    """AMQP char: one Unicode character."""

    __slots__ = ()


class UByte(int):
    """AMQP ubyte: 8 bits without sign."""

    __slots__ = ()


class UShort(int):
    """AMQP ushort: 16 bits without sign."""

    __slots__ = ()


class UInt(int):
    """AMQP uint: 32 bits without sign."""

    __slots__ = ()


class ULong(int):
    """AMQP ulong: 64 bits without sign."""

    __slots__ = ()


class Byte(int):
    """AMQP byte: 8 bits with sign."""

    __slots__ = ()


class Short(int):
    """AMQP short: 16 bits with sign."""

    __slots__ = ()


class Int(int):
    """AMQP int: 32 bits with sign."""

    __slots__ = ()


class Long(int):
    """AMQP long: 64 bits with sign; a plain Python int encodes as this type too."""

    __slots__ = ()


class Timestamp(int):
    """AMQP timestamp: milliseconds since the Unix epoch."""

    __slots__ = ()


class Float32(float):
    """AMQP float: 32 bits; a plain Python float is a double."""

    __slots__ = ()


class Decimal32(bytes):
    """AMQP decimal32, kept as its four bytes."""

    __slots__ = ()


class Decimal64(bytes):
    """AMQP decimal64, kept as its eight bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """AMQP decimal128, kept as its sixteen bytes."""

    __slots__ = ()


class Raw(bytes):
    """One value that is encoded already; it is written as it stands."""

    __slots__ = ()


class Described:
    """A value with a descriptor (a ulong code or a symbol) that names its meaning."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return bool(self.descriptor == other.descriptor and self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array(list[Any]):
    """A list whose elements share one constructor.

    `constructor` is the format code of every element, or None to let the encoder choose one that fits.
    `descriptors` are the descriptors of every element, outermost first; most arrays have none.
    """

    __slots__ = ("constructor", "descriptors")

    def __init__(
        self,
        items: Iterable[Any] = (),
        constructor: int | None = None,
        descriptors: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(items)
        self.constructor = constructor
        self.descriptors = descriptors

    def __repr__(self) -> str:
        code = "None" if self.constructor is None else f"{self.constructor:#04x}"
        return f"Array({list.__repr__(self)}, {code}, {self.descriptors!r})"
