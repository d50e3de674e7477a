"""Who is connected, for an operator: each connection with where it comes from, its policies and its links.

Shows no key and no token, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twinbus.gateway.browsing import Browsing
from twinbus.gateway.connection import ClientConnection
from twinbus.gateway.egress import Egress
from twinbus.gateway.ingress import Ingress

CONNECTIONS_TOLD = 500
LINKS_TOLD = 50
_ROLES: dict[type, str] = {Ingress: "sends", Egress: "receives", Browsing: "browses"}


def documents(connections: Iterable[ClientConnection]) -> list[dict[str, Any]]:
    """The connections, oldest first; only so many of them."""
    oldest = sorted(connections, key=lambda connection: connection.number)
    return [_document(connection) for connection in oldest[:CONNECTIONS_TOLD]]


def _document(connection: ClientConnection) -> dict[str, Any]:
    links = [
        {"role": _ROLES[type(node)], "entity": node.path} for node in connection.nodes.values() if type(node) in _ROLES
    ]
    return {
        "id": connection.label,
        "peer": connection.peer,
        "since_ms": connection.opened_at_ms,
        "policies": connection.policies,
        "links": links[:LINKS_TOLD],
        "link_count": len(connection.nodes),
    }
