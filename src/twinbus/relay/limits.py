"""The relay's limits in bytes, seconds and counts, as the service documents them; tests set smaller ones.

Who keeps a limit is said where it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one relay allows."""

    listeners_max: int = 25  # At one hybrid connection.
    connections_max: int = 5_000  # Sockets and requests of senders in one namespace.
    control_body_bytes_max: int = 64 * KIB  # A body beyond that takes a rendezvous.
    header_bytes_max: int = 32 * KIB
    control_text_bytes_max: int = 128 * KIB  # Headers in JSON, where a character may take six.
    accept_s: float = 30.0
    response_s: float = 60.0
    idle_s: float = 60.0  # Between two pieces of a response.
    look_s: float = 0.5  # How often it is seen whether a sender that waits is still there.
    ping_s: float = 30.0  # A listener that is not heard of for three of them is gone.
    goodbye_s: float = 10.0  # For a peer's close frame, after ours.
    buffer_bytes: int = 256 * KIB  # Of a response that its sender has not taken yet.
