"""Under which tag, and as which copy, a message was handed out: written on the message itself, whatever its class.

What it means is decided in `decisions`.
"""

from __future__ import annotations

from typing import Any

from twinbus.pair.ledger.decisions import Copy, Key


def remember(message: Any, key: Key, copy: Copy) -> None:
    """Write it on a received message."""
    message._twinbus_handed = (key, copy)


def handed(message: Any) -> tuple[Key, Copy] | None:
    """What was written on it; None if nothing was."""
    found: tuple[Key, Copy] | None = getattr(message, "_twinbus_handed", None)
    return found
