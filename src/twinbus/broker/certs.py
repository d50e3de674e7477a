"""Certificates for a broker on a laptop, in CI or inside a private network, made by a local authority.

`trustme` makes the certificates; this module decides on their names, their files and the modes of these.
Serving TLS with them is the gateway's business, and trusting the authority is each client's.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import NamedTuple

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

PRIVATE = 0o600
PUBLIC = 0o644


class Certificates(NamedTuple):
    """The three files: the authority for clients to trust, the certificate and the key for the broker."""

    ca: Path
    certificate: Path
    key: Path


class CertificatesError(Exception):
    """The certificates could not be made; the text says why and what to do."""


def make_certificates(directory: Path, hosts: list[str], *, force: bool = False) -> Certificates:
    """Make a certificate for the loopback names and for `hosts`, signed by the authority in `directory`.

    An authority that is already there signs again, so clients that trust it need no change. A host
    certificate that is already there is kept, and the call refused, unless `force` is given.
    """
    made = Certificates(directory / "ca.pem", directory / "host.pem", directory / "host.key")
    ca_key = directory / "ca.key"
    present = [path.name for path in (made.certificate, made.key) if path.exists()]
    if present and not force:
        raise CertificatesError(
            f"{directory} already holds {' and '.join(present)}; use force to replace the host certificate"
        )
    if made.ca.exists() != ca_key.exists():
        raise CertificatesError(f"{directory} holds only one of ca.pem and ca.key; restore or remove it")
    import trustme  # With the cryptography beneath it, it takes a while.

    names = list(dict.fromkeys([*LOOPBACK_HOSTS, *hosts]))
    new_authority = not made.ca.exists()
    try:
        if new_authority:
            # The name is unique, because a client may trust the authorities of several directories at once.
            unit = f"local authority {secrets.token_hex(4)}"
            authority = trustme.CA(organization_name="Twinbus", organization_unit_name=unit)
        else:
            authority = trustme.CA.from_pem(made.ca.read_bytes(), ca_key.read_bytes())
        issued = authority.issue_cert(*names, organization_name="Twinbus", organization_unit_name="broker")
    except ValueError as refused:
        raise CertificatesError(f"no certificate for {', '.join(names)}: {refused}") from refused

    directory.mkdir(parents=True, exist_ok=True)
    if new_authority:
        _write(ca_key, authority.private_key_pem.bytes(), PRIVATE)
        _write(made.ca, authority.cert_pem.bytes(), PUBLIC)
    _write(made.key, issued.private_key_pem.bytes(), PRIVATE)
    _write(made.certificate, b"".join(pem.bytes() for pem in issued.cert_chain_pems), PUBLIC)
    return made


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file whole; a key is never readable by others, not even for the moment before a chmod."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
