"""What `make_certificates` leaves on disk, and that a strict TLS client accepts it."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from twinbus.broker.certs import Certificates, CertificatesError, make_certificates


def handshake(made: Certificates, host: str) -> None:
    """A TLS handshake in memory, the client as strict as Python 3.13 is by default."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(made.certificate, made.key)
    client_context = ssl.create_default_context(cafile=str(made.ca))
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_context.wrap_bio(to_client, to_server, server_hostname=host),
        server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return
    raise AssertionError("the handshake did not end")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "bus.example", "10.1.2.3"])
def test_a_strict_client_that_trusts_the_authority_accepts_every_host(tmp_path: Path, host: str) -> None:
    handshake(make_certificates(tmp_path, ["bus.example", "10.1.2.3"]), host)


def test_a_host_that_was_not_named_is_refused_by_the_client(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, [])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"bus\.example"):
        handshake(made, "bus.example")


def test_another_directory_has_another_authority(tmp_path: Path) -> None:
    here, there = make_certificates(tmp_path / "here", []), make_certificates(tmp_path / "there", [])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(here._replace(ca=there.ca), "localhost")


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "yet" / "there"
    make_certificates(directory, [])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "host.key": 0o600, "host.pem": 0o644}


def test_a_certificate_is_not_overwritten_unasked(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in make_certificates(tmp_path, [])}
    with pytest.raises(CertificatesError, match=r"already holds host\.pem and host\.key"):
        make_certificates(tmp_path, ["bus.example"])
    assert {path: path.read_bytes() for path in before} == before


def test_force_makes_a_new_certificate_under_the_same_authority(tmp_path: Path) -> None:
    first = make_certificates(tmp_path, [])
    authority, certificate = first.ca.read_bytes(), first.certificate.read_bytes()
    second = make_certificates(tmp_path, ["bus.example"], force=True)
    assert second.ca.read_bytes() == authority
    assert second.certificate.read_bytes() != certificate
    handshake(second, "bus.example")


def test_half_an_authority_is_refused_rather_than_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, [])
    (tmp_path / "ca.key").unlink()
    with pytest.raises(CertificatesError, match=r"only one of ca\.pem and ca\.key"):
        make_certificates(tmp_path, [], force=True)


@pytest.mark.parametrize("host", ["", "two words", "a" * 64])
def test_a_name_that_no_certificate_can_carry_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(CertificatesError, match="no certificate for"):
        make_certificates(tmp_path, [host])
    assert list(tmp_path.iterdir()) == []
