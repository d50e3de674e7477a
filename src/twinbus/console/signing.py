"""Who somebody is to a namespace: a policy's name and key, from two fields or a connection string, and signatures.

Keys are in no repr. Whether a key is good the namespace decides.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

TOKEN_S = 300


class UnreadableError(ValueError):
    """What was typed is no credential; the sentence shows no secret."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A policy's name and key."""

    policy: str
    key: str = field(repr=False)

    def token(self, resource: str, now_s: float) -> str:
        """A shared access signature for a resource and what is below it."""
        expires_at = int(now_s) + TOKEN_S
        encoded = quote_plus(resource)
        digest = hmac.new(self.key.encode(), f"{encoded}\n{expires_at}".encode(), hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest).decode())
        policy = quote(self.policy, safe="")
        return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expires_at}&skn={policy}"


def typed(policy: str, key: str) -> Credential:
    """What somebody typed: a name and a key, or a connection string in place of the key."""
    policy, key = policy.strip(), key.strip()
    if "sharedaccesskey=" in key.lower().replace(" ", ""):
        values = {}
        for part in key.split(";"):
            name, _, value = part.partition("=")
            values[name.strip().lower()] = value.strip()
        policy, key = values.get("sharedaccesskeyname", ""), values.get("sharedaccesskey", "")
    if not policy or not key:
        raise UnreadableError("Give a policy's name and its key, or a connection string.")
    if len(policy) > 256 or len(key) > 512:
        raise UnreadableError("That is too long for a policy's name and its key.")
    try:
        (policy + key).encode()
    except UnicodeEncodeError:
        raise UnreadableError("That is no policy's name and key.") from None
    return Credential(policy, key)
