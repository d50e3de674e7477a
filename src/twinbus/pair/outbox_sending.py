"""Sends that are not the SDK's alone: those that keep order, and those that have an outbox behind them or before them.

Carried out on the companion's loop, for synchronous and asynchronous applications alike. `sending` asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from twinbus.client import messages
from twinbus.client.errors import ClientError
from twinbus.pair import sdk
from twinbus.pair.errors import BacklogError
from twinbus.pair.outbox_pair import PairOutbox
from twinbus.pair.outbox_rows import Queued, identified

if TYPE_CHECKING:
    from twinbus.pair.sending import Pairing


class Beside:
    """What one sender does beside the SDK's."""

    def __init__(self, pairing: Pairing, path: str, outbox: PairOutbox | None, always: bool, ordered: bool) -> None:
        self._pairing = pairing
        self._path = path
        self._outbox = outbox
        self._always = always and outbox is not None
        self._ordered = ordered
        self.takes_all = self._always or ordered

    @property
    def has_outbox(self) -> bool:
        """Whether what nobody takes can be kept."""
        return self._outbox is not None

    @property
    def lets_pass(self) -> bool:
        """Whether a send may go straight to the primary."""
        return not self.takes_all and (self._outbox is None or not self._outbox.may_hold)

    def takes(self, message: sdk.Sendable) -> bool:
        """Whether a send is done here from its beginning."""
        if self._always or self._pairing.companion.paired is None:
            return True
        if not self._ordered:
            return False
        keyed = [key_of(payload) is not None for payload in sdk.encoded(message)]
        if any(keyed) and not all(keyed):
            raise ValueError("Either all messages of an ordered send have a session or a key, or none.")
        return all(keyed) and bool(keyed)

    async def send(self, message: sdk.Sendable) -> Queued | None:
        """Send in order, or put; what was put is told."""
        payloads = identified(sdk.encoded(message), lambda: uuid4().hex)
        route = self._pairing.companion.ordered
        if self._always or route is None or await self.must_wait(payloads):
            return await self.keep(payloads)
        for position, payload in enumerate(payloads):
            key = key_of(payload)
            assert key is not None
            try:
                await route.send(payload, self._path, key)
            except ClientError as error:
                raise sdk.as_sdk_error(error) from error
            except BacklogError:
                if self._outbox is None:
                    raise
                return await self.keep(payloads[position:])
        return None

    async def must_wait(self, payloads: Sequence[bytes]) -> bool:
        """Whether a message would overtake an earlier one of its session or key in the outbox."""
        return self._outbox is not None and await self._outbox.must_wait(payloads, self._path)

    async def keep(self, payloads: Sequence[bytes]) -> Queued:
        """Put messages into the outbox."""
        assert self._outbox is not None
        return await self._outbox.put(payloads, self._path)


def key_of(payload: bytes) -> str | None:
    """What keeps an encoded message in order."""
    found = messages.read(payload)
    return found.session_id or found.partition_key
