"""What the operators do with two values: comparing, calculating, joining texts; as C# does, and unknown stays unknown.

None is unknown. Booleans, numbers, texts, ids and binaries do not mix; instants and durations are integers of
milliseconds. How operators are called, and in which order, is left to `compiler`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from twinbus.rules.errors import FilterError
from twinbus.rules.limits import TEXT_CHARS_MAX

TEXT, NUMBER, BOOLEAN, ID, BINARY, OTHER = "text", "number", "boolean", "id", "binary", "other"

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# The classes of values as they are decoded most often; subclasses are found one by one.
_KINDS: dict[type, str] = {
    str: TEXT,
    bool: BOOLEAN,
    int: NUMBER,
    float: NUMBER,
    Decimal: NUMBER,
    UUID: ID,
    bytes: BINARY,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# As many digits as System.Decimal has; its traps are ours, whatever the caller's thread has set.
_DECIMAL = Context(prec=28)


def kind_of(value: object) -> str:
    """Which family a value belongs to; only values of one family can be compared."""
    kind = _KINDS.get(value.__class__)
    if kind is not None:
        return kind
    for base, kind in _KINDS.items():
        if isinstance(value, base):
            return kind
    return OTHER


def plain(value: Any) -> Any:
    """A value without its subclass; an instant or a duration as milliseconds."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return bytes(value)
    base = next((base for base in (int, float, str) if isinstance(value, base)), None)
    return value if base is None else base(value)


def _alike(left: Any, right: Any, sign: str) -> tuple[Any, Any, str]:
    """Both values and their family; an error if they have none in common."""
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind is OTHER:
        left = plain(left)
        left_kind = kind_of(left)
    if right_kind is OTHER:
        right = plain(right)
        right_kind = kind_of(right)
    if left_kind is not right_kind or left_kind is OTHER:
        raise FilterError(f"The operator {sign} cannot be applied to a {left_kind} and a {right_kind} value.")
    return left, right, left_kind


def equal(left: Any, right: Any) -> bool | None:
    """left = right: within one family; texts by their characters, in the case they have."""
    if left is None or right is None:
        return None
    left, right, _ = _alike(left, right, "=")
    return _judged(operator.eq, left, right)


def unequal(left: Any, right: Any) -> bool | None:
    """left <> right."""
    if left is None or right is None:
        return None
    left, right, _ = _alike(left, right, "<>")
    return _judged(operator.ne, left, right)


def _ordering(sign: str, judge: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    def compare(left: Any, right: Any) -> bool | None:
        if left is None or right is None:
            return None
        left, right, kind = _alike(left, right, sign)
        if kind is not NUMBER and kind is not TEXT:
            raise FilterError(f"The operator {sign} cannot be applied to {kind} values.")
        return _judged(judge, left, right)

    return compare


def _judged(judge: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    try:
        return judge(left, right)
    except ArithmeticError as error:  # A signalling NaN.
        raise FilterError("A decimal value cannot be compared.") from error


COMPARISONS: dict[str, Callable[[Any, Any], bool | None]] = {
    "=": equal,
    "<>": unequal,
    "<": _ordering("<", operator.lt),
    "<=": _ordering("<=", operator.le),
    ">": _ordering(">", operator.gt),
    ">=": _ordering(">=", operator.ge),
}


def same(left: Any, right: Any) -> bool:
    """Whether a correlation filter's value is a message's: of one family and equal; never an error."""
    try:
        return equal(left, right) is True
    except FilterError:
        return False


def _integer_quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _integer_remainder(left: int, right: int) -> int:
    remainder = abs(left) % abs(right)
    return remainder if left >= 0 else -remainder


def _real_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _real_remainder(left: float, right: float) -> float:
    try:
        return math.fmod(left, right)
    except ValueError:  # Of an infinite number, or by zero.
        return math.nan


# Integers as int64, reals as double, decimals as decimal: the widest operand decides, and nothing is rounded silently.
_Operation = Callable[[Any, Any], Any]
_ARITHMETIC: dict[str, tuple[_Operation, _Operation, _Operation]] = {
    "+": (operator.add, operator.add, _DECIMAL.add),
    "-": (operator.sub, operator.sub, _DECIMAL.subtract),
    "*": (operator.mul, operator.mul, _DECIMAL.multiply),
    "/": (_integer_quotient, _real_quotient, _DECIMAL.divide),
    "%": (_integer_remainder, _real_remainder, _DECIMAL.remainder),
}


def _calculation(sign: str) -> Callable[[Any, Any], Any]:
    integers, reals, decimals = _ARITHMETIC[sign]

    def calculate(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return None
        left, right, kind = _alike(left, right, sign)
        if kind is not NUMBER:
            raise FilterError(f"The operator {sign} cannot be applied to {kind} values.")
        try:
            if isinstance(left, int) and isinstance(right, int):
                return _in_range(integers(left, right))
            if isinstance(left, Decimal) or isinstance(right, Decimal):
                if isinstance(left, float) or isinstance(right, float):
                    raise FilterError(f"The operator {sign} cannot be applied to a real and a decimal number.")
                return decimals(left, right)
            return reals(float(left), float(right))
        except ArithmeticError as error:
            raise FilterError(f"The numbers {left} and {right} cannot be calculated with {sign}.") from error

    return calculate


def _in_range(number: int) -> int:
    if not INT64_MIN <= number <= INT64_MAX:
        raise FilterError("The result does not fit into an integer of 64 bits.")
    return number


_sum = _calculation("+")


def add(left: Any, right: Any) -> Any:
    """left + right: the sum of two numbers, or the two joined if either is a text."""
    if isinstance(left, str) or isinstance(right, str):
        if left is None or right is None:
            return None
        joined = text_of(left) + text_of(right)
        if len(joined) > TEXT_CHARS_MAX:
            raise FilterError(f"The operator + would make a text of more than {TEXT_CHARS_MAX} characters.")
        return joined
    return _sum(left, right)


CALCULATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": add,
    "-": _calculation("-"),
    "*": _calculation("*"),
    "/": _calculation("/"),
    "%": _calculation("%"),
}


def negative(value: Any) -> Any:
    """-value, of a number."""
    if value is None:
        return None
    if kind_of(value) is not NUMBER:
        raise FilterError(f"The operator - cannot be applied to a {kind_of(value)} value.")
    return _in_range(-value) if isinstance(value, int) else -value


def positive(value: Any) -> Any:
    """+value: the number itself."""
    if value is not None and kind_of(value) is not NUMBER:
        raise FilterError(f"The operator + cannot be applied to a {kind_of(value)} value.")
    return value


def text_of(value: Any) -> str:
    """A value as it appears when it is joined to a text; as .NET writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | UUID):
        return str(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _real_text(value)
    if isinstance(value, Decimal):
        # A decimal beyond System.Decimal's range stays in scientific notation: written out it could be huge.
        return format(value, "f") if value.is_finite() and abs(value.adjusted()) <= 28 else str(value)
    raise FilterError(f"A {kind_of(value)} value cannot be made a text.")


def _real_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = _DECIMAL.normalize(Decimal(float.__repr__(value)))
    power = shortest.adjusted()
    if not value or -5 < power < 15:
        return format(shortest, "f")
    sign, digits, _ = shortest.as_tuple()
    first, *rest = (str(digit) for digit in digits)
    fraction = "." + "".join(rest) if rest else ""
    return f"{'-' if sign else ''}{first}{fraction}E{'-' if power < 0 else '+'}{abs(power):02d}"
