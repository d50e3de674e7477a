"""AMQP decimals and Python's: IEEE 754 with a binary integer as coefficient, which is what the official clients send.

The codec keeps decimals as bytes; only rules, which calculate with them, need more.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

from twinbus.amqp.types import Decimal32, Decimal64, Decimal128, EncodeError


class _Format(NamedTuple):
    """The widths of one format's parts; a sign bit stands before them."""

    exponent_bits: int
    coefficient_bits: int
    bias: int
    digits: int


_FORMATS: dict[type, _Format] = {
    Decimal32: _Format(8, 23, 101, 7),
    Decimal64: _Format(10, 53, 398, 16),
    Decimal128: _Format(14, 113, 6176, 34),
}
_WIDE = _FORMATS[Decimal128]


def number(value: Any) -> Any:
    """A decoded decimal as a number; every other value, and what is no finite number, as it is."""
    form = _FORMATS.get(value.__class__)
    if form is None:
        return value
    bits = int.from_bytes(value, "big")
    body = bits & ((1 << (form.exponent_bits + form.coefficient_bits)) - 1)
    # Two ones in front: infinite, not a number, or a coefficient larger than any that the clients write.
    if body >> (form.exponent_bits + form.coefficient_bits - 2) == 0b11:
        return value
    exponent, coefficient = divmod(body, 1 << form.coefficient_bits)
    sign = bits >> (form.exponent_bits + form.coefficient_bits)
    return Decimal((sign, tuple(map(int, str(coefficient))), exponent - form.bias))


def encodable(value: Any) -> Any:
    """A decimal as AMQP has it; every other value as it is. Raises EncodeError beyond 34 digits or the exponents."""
    if not isinstance(value, Decimal):
        return value
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > _WIDE.digits:
        raise EncodeError(f"the decimal {value} has no AMQP encoding")
    biased = exponent + _WIDE.bias
    if not 0 <= biased < 3 << (_WIDE.exponent_bits - 2):
        raise EncodeError(f"the decimal {value} is too large or too small for AMQP")
    coefficient = int("".join(map(str, digits)))
    bits = (sign << _WIDE.exponent_bits | biased) << _WIDE.coefficient_bits | coefficient
    return Decimal128(bits.to_bytes(16, "big"))
