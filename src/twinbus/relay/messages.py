"""A relayed request and its response, as a service behind a listener and a caller see them.

Plain values; how they travel is `listening`'s and `calling`'s business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """What a caller asks of the service."""

    method: str
    target: str  # Path and query, the hybrid connection's own name at its beginning.
    headers: Mapping[str, str]
    body: bytes
    endpoint: int  # Through which of the listener's endpoints it came.


@dataclass(frozen=True, slots=True)
class RelayedResponse:
    """What the service answers."""

    status: int = 200
    body: bytes = b""
    headers: Headers = ()
    reason: str = ""
    endpoint: int = field(default=0, compare=False)  # To a caller: through which endpoint it came.

    def header(self, name: str) -> str | None:
        """The first header of a name, whatever its case."""
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)


Handler = Callable[[RelayedRequest], Awaitable[RelayedResponse]]
