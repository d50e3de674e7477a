"""Connection strings as the official clients take them, read into where to connect and how to prove oneself.

Connecting is left to `connection`, making tokens to `authorisation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PLAIN_PORT = 5672
TLS_PORT = 5671

_KEYS = {
    name.lower(): name
    for name in (
        "Endpoint",
        "HostName",
        "SharedAccessKeyName",
        "SharedAccessKey",
        "SharedAccessSignature",
        "EntityPath",
        "UseDevelopmentEmulator",
    )
}


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """Where a namespace is and who we are there. Secrets stay out of its repr."""

    host: str
    port: int = TLS_PORT
    tls: bool = True
    policy: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    credential: Any = field(default=None, repr=False)  # Gives tokens by `get_token`, instead of a key.

    @classmethod
    def parse(cls, text: str) -> ConnectionString:
        """Read a connection string; a ValueError that shows no secret when it is not one.

        With `UseDevelopmentEmulator=true` it is plain TCP, on the port of the endpoint or 5672; otherwise TLS, on
        the port of the endpoint or 5671.
        """
        values = _values(text)
        endpoint = values.get("Endpoint") or values.get("HostName")
        if not endpoint:
            raise ValueError("the connection string has no Endpoint")
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError(f"the port in the Endpoint {endpoint!r} is not a port") from None
        if not host:
            raise ValueError(f"the Endpoint {endpoint!r} names no host")
        policy, key = values.get("SharedAccessKeyName"), values.get("SharedAccessKey")
        signature = values.get("SharedAccessSignature")
        if not signature and not (policy and key):
            raise ValueError(
                "the connection string needs SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature"
            )
        # The official clients compare with the lower-case word, too.
        plain = values.get("UseDevelopmentEmulator") == "true"
        return cls(
            host=host,
            port=port or (PLAIN_PORT if plain else TLS_PORT),
            tls=not plain,
            policy=policy,
            key=key,
            signature=signature,
            entity_path=values.get("EntityPath"),
        )

    def audience(self, path: str = "") -> str:
        """What a token for an entity is made for: its address, with a port only where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = TLS_PORT if self.tls else None
        return f"sb://{host}{'' if self.port == usual else f':{self.port}'}/{path}"


def at_endpoint(text: str, host: str, port: int) -> str:
    """The same connection string with another host and port, whether or not it had a port; all else stays."""
    parts = text.strip().split(";")
    for position, part in enumerate(parts):
        name, _, value = part.partition("=")
        if _KEYS.get(name.strip().lower()) in ("Endpoint", "HostName") and value.strip():
            scheme, slashes, _ = value.strip().rpartition("//")
            parts[position] = f"{name}={scheme}{slashes}{host}:{port}"
    return ";".join(parts)


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.strip().split(";"):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        known = _KEYS.get(name.strip().lower())
        if not equals:
            # What stands here may be a piece of a key, so it is not shown.
            raise ValueError("the connection string has a part without '='")
        if known is None:
            continue
        if known in values:
            raise ValueError(f"the connection string has {known} twice")
        values[known] = value.strip()
    return values
