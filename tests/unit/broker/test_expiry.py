"""When a certificate ends, as its file says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from twinbus.broker.expiry import expires_at_s


@pytest.mark.parametrize("ends", [datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC), datetime(2071, 1, 2, tzinfo=UTC)])
def test_the_end_of_the_first_certificate_is_read(tmp_path: Path, ends: datetime) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", not_after=ends)
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems) + authority.cert_pem.bytes()
    (tmp_path / "host.pem").write_bytes(b"a comment\n" + chain)
    assert expires_at_s(tmp_path / "host.pem") == int(ends.timestamp())


@pytest.mark.parametrize("inside", ["", "AAAA", "MAMCAQU="])
def test_what_cannot_be_read_has_no_end(tmp_path: Path, inside: str) -> None:
    (tmp_path / "host.pem").write_text(f"-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n")
    assert expires_at_s(tmp_path / "host.pem") is None
