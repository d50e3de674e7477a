"""What a certificate's file says: when it ends, which somebody has to act on in time, and for which hosts it is.

Everything else about certificates is OpenSSL's business; X.509 (RFC 5280, section 4) tells where the fields are.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

_UTC_TIME, _GENERALIZED_TIME, _VERSION, _EXTENSIONS = 0x17, 0x18, 0xA0, 0xA3
_ALTERNATIVE_NAME, _DNS_NAME, _IP_ADDRESS = b"\x55\x1d\x11", 0x82, 0x87  # 2.5.29.17, and two kinds of names in it.
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def expires_at_s(file: Path) -> int | None:
    """The end of the first certificate in a PEM file, in seconds since the Unix epoch; None if it cannot be read."""
    try:
        # [version], serial number, signature, issuer, validity.
        fields = [value for tag, value in _fields(file) if tag != _VERSION]
        _, (tag, text) = _elements(fields[3])
        pattern = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}[tag]
        return int(datetime.strptime(text.decode("ascii"), pattern).replace(tzinfo=UTC).timestamp())
    except (ValueError, LookupError, StopIteration):
        return None  # OpenSSL judges whether it can be used; that its end is not known is no reason not to serve.


def hosts_in(file: Path) -> list[str]:
    """The host names and addresses of the first certificate in a PEM file; none if they cannot be read."""
    try:
        (extensions,) = [value for tag, value in _fields(file) if tag == _EXTENSIONS]
        for _, extension in _elements(next(_elements(extensions))[1]):
            (_, kind), *_, (_, value) = _elements(extension)
            if kind == _ALTERNATIVE_NAME:
                return [host for tag, name in _elements(next(_elements(value))[1]) for host in _host(tag, name)]
    except (ValueError, LookupError, StopIteration):
        pass
    return []


def covers(hosts: Sequence[str], host: str) -> bool:
    """Whether a certificate for these hosts is good for this one; `*` stands for one label."""
    _, _, domain = host.partition(".")
    return any(known.lower() in (host.lower(), f"*.{domain}".lower()) for known in hosts)


def _host(tag: int, name: bytes) -> Iterator[str]:
    if tag == _DNS_NAME:
        yield name.decode("ascii")
    elif tag == _IP_ADDRESS:
        yield str(ip_address(name))


def _fields(file: Path) -> Iterator[tuple[int, bytes]]:
    """Of the first certificate of a file, what is signed."""
    _, _, rest = file.read_text("ascii", "replace").partition(_BEGIN)
    body, _, _ = rest.partition(_END)
    certificate = next(_elements(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}")))[1]
    return _elements(next(_elements(certificate))[1])


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of one level of DER: tag and value."""
    at = 0
    while at + 2 <= len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        yield tag, data[at : at + length]
        at += length
