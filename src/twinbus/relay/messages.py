"""A relayed request and its response, as a service behind a listener and a caller see them.

How they travel is `listening`'s and `calling`'s business. A body may be all there, or come while it is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

Headers = Sequence[tuple[str, str]]


async def whole(body: bytes) -> AsyncIterator[bytes]:
    """A body that is all there, as one that comes."""
    if body:
        yield body


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """What a caller asks of the service."""

    method: str
    target: str  # Path and query, the hybrid connection's own name at its beginning.
    headers: Mapping[str, str]
    content: AsyncIterator[bytes] = field(compare=False)  # The body as it comes; who does not take it makes it wait.
    endpoint: int  # Through which of the listener's endpoints it came.
    size: int | None = None  # Bytes of the body; None if that is not known before it ends.
    name: str = ""  # The hybrid connection's, at that endpoint.

    @property
    def below(self) -> str:
        """The target as the service itself knows it: without the hybrid connection's name, whichever that was."""
        prefix = f"/{quote(self.name)}"
        below = self.target[len(prefix) :] if self.target.lower().startswith(prefix.lower()) else self.target
        return below if below.startswith("/") else f"/{below}"

    async def read(self) -> bytes:
        """All of the body, or what of it was not taken yet."""
        return b"".join([part async for part in self.content])


@dataclass(frozen=True, slots=True)
class RelayedResponse:
    """What the service answers."""

    status: int = 200
    body: bytes = b""
    headers: Headers = ()
    reason: str = ""
    endpoint: int = field(default=0, compare=False)  # To a caller: through which endpoint it came.
    more: AsyncIterable[bytes] | None = field(default=None, compare=False)  # From a service: what follows, as it comes.

    def header(self, name: str) -> str | None:
        """The first header of a name, whatever its case."""
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)


Handler = Callable[[RelayedRequest], Awaitable[RelayedResponse]]
