"""Shared access signatures: reading, checking and making the tokens that clients prove their rights with.

Which rules exist, what time it is, and what the bearer of a good token may do are left to the caller.
Nothing here shows a key or a signature in an error or a repr.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from twinbus.model.errors import BusError, Fault

PREFIX = "SharedAccessSignature "
MAX_TOKEN_CHARS = 8192
_MAX_EXPIRY_DIGITS = 15
_FIELDS = ("sr", "sig", "se", "skn")


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it was read; nothing about it has been believed yet."""

    resource_raw: str  # The `sr` text exactly as received: encoders differ, and the signature covers this.
    resource: str
    signature: str = field(repr=False)
    expires_at_s: int
    policy: str

    def expired(self, now_ms: int) -> bool:
        """Whether the token's time is over."""
        return self.expires_at_s * 1000 <= now_ms


def parse(text: str) -> Token:
    """Read a token, its fields in any order; a BusError of kind AUTHENTICATION_FAILED when it is not one."""
    if not text.startswith(PREFIX) or len(text) > MAX_TOKEN_CHARS:
        raise _malformed("it does not begin as one, or is too long")
    fields: dict[str, str] = {}
    for part in text[len(PREFIX) :].strip().split("&"):
        name, _, value = part.partition("=")
        if name in fields:
            raise _malformed(f"a field occurs twice: {name if name in _FIELDS else 'unknown'}")
        fields[name] = value
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing:
        raise _malformed(f"it lacks {', '.join(missing)}")
    expiry = fields["se"]
    if not (expiry.isascii() and expiry.isdigit()) or len(expiry) > _MAX_EXPIRY_DIGITS:
        raise _malformed("its expiry is not a number of seconds")
    return Token(
        resource_raw=fields["sr"],
        resource=unquote_plus(fields["sr"]),
        signature=unquote(fields["sig"]),
        expires_at_s=int(expiry),
        # The Python client encodes the name twice; a name holds nothing that a second decoding could change.
        policy=unquote(unquote(fields["skn"])),
    )


def verify(token: Token, keys: Iterable[str]) -> bool:
    """Whether one of the keys made the signature; every key is tried, in constant time."""
    given = token.signature.encode("utf-8", "surrogatepass")
    matched = False
    for key in keys:
        expected = _sign(token.resource_raw, token.expires_at_s, key).encode()
        matched |= hmac.compare_digest(expected, given)
    return matched


def covers(token_resource: str, audience: str) -> bool:
    """Whether a token for a resource is good for an audience: same host, and a prefix by path segments."""
    host, segments = _split(token_resource)
    audience_host, audience_segments = _split(audience)
    return bool(host) and host == audience_host and audience_segments[: len(segments)] == segments


def path_of(uri: str) -> str:
    """The entity path that a resource or audience names, in its own case; empty for the namespace itself."""
    return "/".join(_segments(uri))


def make_token(resource: str, policy: str, key: str, expires_at_s: int) -> str:
    """A token for a resource, as the official clients would make it."""
    encoded = quote_plus(resource)
    signature = quote_plus(_sign(encoded, expires_at_s, key))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expires_at_s}&skn={quote(policy, safe='')}"


def _sign(encoded_resource: str, expires_at_s: int, key: str) -> str:
    # The key is the text itself, not what it decodes to.
    text = f"{encoded_resource}\n{expires_at_s}".encode("utf-8", "surrogatepass")
    return base64.b64encode(hmac.new(key.encode(), text, hashlib.sha256).digest()).decode()


def _split(uri: str) -> tuple[str, list[str]]:
    """Host without port and path segments, both folded to one case."""
    host = uri.partition("://")[2] if "://" in uri else uri
    for end in "/?#":
        host = host.partition(end)[0]
    return _without_port(host).lower(), [segment.lower() for segment in _segments(uri)]


def _segments(uri: str) -> list[str]:
    rest = uri.partition("://")[2] if "://" in uri else uri
    path = rest.partition("?")[0].partition("#")[0].partition("/")[2]
    return [segment for segment in unquote(path).split("/") if segment]


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host


def _malformed(why: str) -> BusError:
    return BusError(Fault.AUTHENTICATION_FAILED, f"The token is not a shared access signature: {why}.")
