"""When a certificate ends and for whom it is, as its file says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from twinbus.broker.certificate import covers, expires_at_s, hosts_in


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


def test_the_hosts_of_the_first_certificate_are_read(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "*.contoso.net", "127.0.0.1", "::1", common_name="not a host")
    (tmp_path / "host.pem").write_bytes(issued.cert_chain_pems[0].bytes() + authority.cert_pem.bytes())
    assert hosts_in(tmp_path / "host.pem") == ["localhost", "*.contoso.net", "127.0.0.1", "::1"]


@pytest.mark.parametrize("inside", ["", "AAAA", "MAMCAQU="])
def test_what_cannot_be_read_is_for_no_host(tmp_path: Path, inside: str) -> None:
    (tmp_path / "host.pem").write_text(f"-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n")
    assert hosts_in(tmp_path / "host.pem") == []


@pytest.mark.parametrize(
    ("host", "covered"), [("BUS.contoso.net", True), ("a.bus.contoso.net", False), ("10.0.0.1", True), ("net", False)]
)
def test_a_star_stands_for_one_label(host: str, covered: bool) -> None:
    assert covers(["*.contoso.net", "10.0.0.1"], host) is covered
