"""Abandoning with a delay, an extension: how long an abandoned message is to wait before it is delivered again.

One application property says it, in seconds or as a duration. Keeping the message back is the store's business.
"""

from __future__ import annotations

from typing import Any

from twinbus.model.duration import parse_duration_ms
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire.message import bare_message
from twinbus.wire.properties import decoded

PROPERTY = "x-twinbus-abandon-delay"
DELAY_MS_MAX = 24 * 3600 * 1000


def take_ms(changes: dict[str, Any]) -> int:
    """The delay among the properties that an abandon changes, of which it is then none; 0 if it is not there."""
    if PROPERTY not in changes:
        return 0
    delay_ms = _read_ms(changes.pop(PROPERTY))
    if delay_ms is None:
        raise BusError(
            Fault.ARGUMENT, f"{PROPERTY} must be a number of seconds or a duration, more than 0 and at most 24 hours."
        )
    return delay_ms


def own_ms(message: Delivered) -> int:
    """The delay in the message's own properties; one that cannot be is none, or nobody could abandon the message."""
    return _read_ms(decoded(bare_message(message.record), message.overlay).get(PROPERTY)) or 0


def _read_ms(value: object) -> int | None:
    if isinstance(value, str):
        try:
            delay_ms = parse_duration_ms(value)
        except BusError:
            return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= DELAY_MS_MAX:
        delay_ms = round(value * 1000)
    else:
        return None
    return delay_ms if 0 < delay_ms <= DELAY_MS_MAX else None
