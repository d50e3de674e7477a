"""The error conditions that AMQP 1.0 itself names, and the exceptions that carry one through this package.

Conditions of an application are left to the application.
"""

from __future__ import annotations

from typing import Final

DECODE_ERROR: Final = "amqp:decode-error"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"


class ViolationError(Exception):
    """The peer broke the protocol in a way that ends the connection."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


class NotAttachedError(RuntimeError):
    """The caller used a link, session or connection that cannot carry this any more (or not yet)."""
