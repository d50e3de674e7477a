"""What one end of a connection offers its peer, and the limits that it holds it to.

The values come from the caller; the package reads no configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """Offers and limits of one end of a connection."""

    # Open: what the peer is told.
    max_frame_size: int = 65_536
    channel_max: int = 1_023
    # The peer is told this value and cut off after twice as long, as 2.4.5 recommends. 0 means never.
    idle_timeout_ms: int = 240_000
    properties: Mapping[Any, Any] = field(default_factory=dict)
    offered_capabilities: tuple[str, ...] = ()

    # SASL, server role.
    mechanisms: tuple[str, ...] = ("ANONYMOUS", "PLAIN")
    sasl_required: bool = True

    # Limits.
    max_sessions: int = 1_024
    max_links: int = 1_024
    handle_max: int = 0xFFFFFFFF
    max_unsettled: int = 65_536
    max_message_size: int = 1_048_576
    # A delivery up to this much larger than allowed is still handed over whole, to be rejected with care.
    message_size_slack: int = 65_536

    # Frames that a session may receive before it has to open its window again.
    incoming_window: int = 2_048
    # Frames beyond the window that are forgiven: some clients count their frames wrongly.
    window_overrun: int = 65_536

    # From the start to the open, and from our close to the peer's.
    handshake_timeout_ms: int = 60_000
    close_timeout_ms: int = 5_000
