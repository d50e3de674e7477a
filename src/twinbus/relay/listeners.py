"""Who listens at which hybrid connection: at most so many, one of them chosen at random for each request.

The randomness is handed in. What is said to a listener is `channel`'s business.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus.entities.hybrid import HybridConnection
from twinbus.relay.channel import Channel
from twinbus.relay.rights import RefusedError


class Listeners:
    """All listeners of the process."""

    def __init__(self, listeners_max: int, choose: Callable[[int], int]) -> None:
        """`choose` gives a number below the one that it is given."""
        self._listeners_max = listeners_max
        self._choose = choose
        self._channels: dict[HybridConnection, list[Channel]] = {}

    def check_room(self, hybrid: HybridConnection) -> None:
        """Refuse a listener too many."""
        if len(self._channels.get(hybrid, ())) >= self._listeners_max:
            raise RefusedError(403, f"There are {self._listeners_max} listeners already, and no more can be.")

    def add(self, hybrid: HybridConnection, channel: Channel) -> None:
        """A listener came."""
        self._channels.setdefault(hybrid, []).append(channel)

    def remove(self, hybrid: HybridConnection, channel: Channel) -> None:
        """A listener is gone."""
        present = self._channels.get(hybrid, [])
        if channel in present:
            present.remove(channel)
        if not present:
            self._channels.pop(hybrid, None)

    def of(self, hybrid: HybridConnection) -> list[Channel]:
        """Those at one hybrid connection."""
        return list(self._channels.get(hybrid, ()))

    def all(self) -> list[Channel]:
        """Everyone."""
        return [channel for channels in self._channels.values() for channel in channels]

    def pick(self, hybrid: HybridConnection) -> Channel:
        """One of them, for a request or a socket."""
        able = [channel for channel in self._channels.get(hybrid, ()) if channel.socket.is_open]
        if not able:
            raise RefusedError(502, f"Nobody listens at '{hybrid.path}' at this gateway.")
        return able[self._choose(len(able))]
