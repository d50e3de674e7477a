"""Which headers pass the relay, and how an address is freed from what was meant for the relay alone.

Pure rules; who is asked for a token is `rights`' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

# RFC 7230, 6.1: what concerns one connection, or the message as it is framed there. Via is added to.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "close",
        "proxy-connection",
    }
)
TOKEN_HEADER, TOKEN_PARAMETER = "servicebusauthorization", "sb-hc-token"
_RELAYS = frozenset({TOKEN_HEADER, TOKEN_PARAMETER})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
Pairs = Iterable[tuple[str, str]]


def size_of(pairs: Pairs) -> int:
    """Bytes of headers as they stand in a request: a colon, a blank and a line's end each."""
    return sum(len(name) + len(value.encode("utf-8", "surrogateescape")) + 4 for name, value in pairs)


def of_request(pairs: Pairs, via: str, *, strips_authorization: bool) -> dict[str, str]:
    """A sender's headers as the listener gets them, one value for each name."""
    listed = list(pairs)
    dropped = HOP_BY_HOP | _RELAYS | _named_by_connection(listed)
    if strips_authorization:
        dropped |= {"authorization"}
    kept = _joined((name, value) for name, value in listed if name.lower() not in dropped)
    return _with_via(kept, via)


def of_connect(pairs: Pairs) -> dict[str, str]:
    """The headers of a sender's handshake: all but those that prove its right; the listener looks for the key."""
    return _joined((name, value) for name, value in pairs if name.lower() not in _RELAYS)


def of_response(pairs: Pairs, via: str) -> list[tuple[str, str]]:
    """A listener's headers as the sender gets them; Via tells the sender that a listener answered."""
    listed = list(pairs)
    for name, value in listed:
        if not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
            raise ValueError("the response has a header that cannot be")
    dropped = HOP_BY_HOP | _named_by_connection(listed)
    kept = [(name, value) for name, value in listed if name.lower() not in dropped]
    passed = [value for name, value in kept if name.lower() == "via"]
    return [*((name, value) for name, value in kept if name.lower() != "via"), ("Via", ", ".join([*passed, via]))]


def _named_by_connection(pairs: Sequence[tuple[str, str]]) -> frozenset[str]:
    named = (value for name, value in pairs if name.lower() == "connection")
    return frozenset(word.strip().lower() for value in named for word in value.split(","))


def _joined(pairs: Pairs) -> dict[str, str]:
    joined: dict[str, str] = {}
    names: dict[str, str] = {}  # As they were written first.
    for name, value in pairs:
        known = names.setdefault(name.lower(), name)
        separator = "; " if name.lower() == "cookie" else ", "
        joined[known] = f"{joined[known]}{separator}{value}" if known in joined else value
    return joined


def _with_via(headers: Mapping[str, str], via: str) -> dict[str, str]:
    name = next((name for name in headers if name.lower() == "via"), "Via")
    return {**headers, name: f"{headers[name]}, {via}" if name in headers else via}


def via_of(host: str) -> str:
    """What the relay calls itself in Via."""
    return f"1.1 {host}"


def without_relays(query: str) -> str:
    """A query string without the arguments that are for the relay."""
    parts = [part for part in query.split("&") if part and not part.lower().startswith("sb-hc-")]
    return "&".join(parts)


def target_of(path: str, query: str) -> str:
    """The request target that a listener sees."""
    kept = without_relays(query)
    return f"{path}?{kept}" if kept else path


def address_of(base: str, path: str, action: str, number: str, query: str = "") -> str:
    """Where a listener finds a socket or a request: `base` is scheme and host as the listener itself reached them."""
    kept = without_relays(query)
    extra = f"&{kept}" if kept else ""
    return f"{base}/$hc/{quote(path)}?sb-hc-action={action}&sb-hc-id={number}{extra}"
