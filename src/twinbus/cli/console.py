"""The console of a broker, made from the options of `twinbus serve`: alone, or with the pair that it is to show.

The pages are `twinbus.console`'s, which knows nothing of pairs' descriptions; here one is read and handed over.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.console import Console, Pair, Side
from twinbus.console.signing import Credential

if TYPE_CHECKING:
    from twinbus.pair.description import NamespaceDescription

LOCATE_S = 4.0


def console_for(pair: Path | None) -> Console:
    """The console; a ValueError says what is wrong with the pair's description."""
    if pair is None:
        return Console()
    from twinbus.pair.description import PairDescription  # The SDK takes half a second.

    description = PairDescription.read(pair)
    return Console(Pair(_side("primary", description.primary), _side("secondary", description.secondary)))


def _side(role: str, described: NamespaceDescription) -> Side:
    from twinbus.client import ConnectionString

    target = ConnectionString.parse(described.connection_string)
    if target.policy is None or target.key is None:
        raise ValueError(f"[{role}] needs a policy's name and key: the console signs with them.")
    credential = Credential(target.policy, target.key)
    tls = True if described.ca is None else ssl.create_default_context(cafile=described.ca)
    host = f"[{target.host}]" if ":" in target.host else target.host
    return Side(role, credential, _locating(role, described), host, described.name, tls)


def _locating(role: str, described: NamespaceDescription) -> Callable[[], Awaitable[str]]:
    """Where it is administered: as described, or as the broker itself tells whoever connects."""

    async def locate() -> str:
        namespace = described.namespace(role, LOCATE_S)
        try:
            return await namespace.http_address()
        finally:
            await namespace.close()

    return locate
