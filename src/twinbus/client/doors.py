"""Where a namespace is administered: at the port that was given, that its broker tells, or that is usual.

Asking is the caller's business, who may have a connection already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinbus.client.connection_string import ConnectionString
from twinbus.wire.address import NAMESPACE_ID_KEY, NAMESPACE_KEY, http_port_key

DEVELOPMENT_HTTP_PORT = 5300
_SERVICE_AMQP_PORT = 5671


def is_usual(target: ConnectionString) -> bool:
    """Whether the address follows from the connection string alone, as it does for the service."""
    return target.tls and target.port == _SERVICE_AMQP_PORT


def http_port_in(properties: Mapping[Any, Any], tls: bool) -> int | None:
    """Where a broker of ours says that it can be administered, in the properties of a connection."""
    port = properties.get(http_port_key("https" if tls else "http"))
    return port if isinstance(port, int) else None


def namespace_in(properties: Mapping[Any, Any]) -> tuple[str, str]:
    """The name and the id of the namespace, as a broker of ours that serves one only says them."""
    name, namespace_id = properties.get(NAMESPACE_KEY), properties.get(NAMESPACE_ID_KEY)
    return _text(name), _text(namespace_id)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def http_address(target: ConnectionString, port: int | None) -> str:
    """The address for HTTP; `port` is what somebody said, if anybody did."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    if not target.tls:
        return f"http://{host}:{port or DEVELOPMENT_HTTP_PORT}"
    if port is None and is_usual(target):
        return f"https://{host}"
    return f"https://{host}:{port or DEVELOPMENT_HTTP_PORT}"
