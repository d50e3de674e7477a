"""Where a namespace is administered: at the port that was given, that its broker tells, or that is usual.

Asking is the caller's business, who may have a connection already.
"""

from __future__ import annotations

from twinbus.client.connection_string import ConnectionString

DEVELOPMENT_HTTP_PORT = 5300
_SERVICE_AMQP_PORT = 5671


def is_usual(target: ConnectionString) -> bool:
    """Whether the address follows from the connection string alone, as it does for the service."""
    return target.tls and target.port == _SERVICE_AMQP_PORT


def http_address(target: ConnectionString, port: int | None) -> str:
    """The address for HTTP; `port` is what somebody said, if anybody did."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    if not target.tls:
        return f"http://{host}:{port or DEVELOPMENT_HTTP_PORT}"
    if port is None and is_usual(target):
        return f"https://{host}"
    return f"https://{host}:{port or DEVELOPMENT_HTTP_PORT}"
