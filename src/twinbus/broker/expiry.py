"""When a certificate ends, read from its file: the one field of it that somebody has to act on in time.

Everything else about certificates is OpenSSL's business; X.509 (RFC 5280, section 4.1) tells where the field is.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def expires_at_s(file: Path) -> int | None:
    """The end of the first certificate in a PEM file, in seconds since the Unix epoch; None if it cannot be read."""
    try:
        _, _, rest = file.read_text("ascii", "replace").partition(_BEGIN)
        body, _, _ = rest.partition(_END)
        certificate = next(_elements(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}")))[1]
        to_be_signed = next(_elements(certificate))[1]
        # [version], serial number, signature, issuer, validity.
        fields = [value for tag, value in _elements(to_be_signed) if tag != _VERSION]
        _, (tag, text) = _elements(fields[3])
        pattern = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}[tag]
        return int(datetime.strptime(text.decode("ascii"), pattern).replace(tzinfo=UTC).timestamp())
    except (ValueError, LookupError, StopIteration):
        return None  # OpenSSL judges whether it can be used; that its end is not known is no reason not to serve.


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
