"""Names that clients can use, and words for ports that do not open."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import pytest

from twinbus.broker import reaching
from twinbus.broker.reaching import host_for_clients, in_url, is_only_for_loopback, refused


@pytest.fixture(autouse=True)
def a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose resolver does not know IPv6, and that has an address."""
    monkeypatch.setattr(reaching, "_leads_to", lambda name, address: False)
    monkeypatch.setattr(reaching, "_own_address", lambda host: ["10.1.2.3"])
    monkeypatch.setattr(socket, "gethostname", lambda: "bus.contoso.net")


@pytest.mark.parametrize(
    ("host", "certified", "found"),
    [
        ("127.0.0.1", [], "localhost"),
        ("localhost", [], "localhost"),
        ("127.0.0.2", [], "127.0.0.2"),
        ("::1", [], "::1"),
        ("10.0.0.5", [], "10.0.0.5"),
        ("0.0.0.0", [], "10.1.2.3"),
        ("", [], "10.1.2.3"),
        ("127.0.0.1", ["127.0.0.1"], "127.0.0.1"),
        ("0.0.0.0", ["localhost", "127.0.0.1"], "localhost"),
        ("0.0.0.0", ["localhost", "*.contoso.net"], "bus.contoso.net"),
        ("0.0.0.0", ["localhost", "10.1.2.3"], "10.1.2.3"),
        ("10.0.0.5", ["*.elsewhere.net", "localhost", "elsewhere.net"], "elsewhere.net"),
        ("10.0.0.5", ["localhost"], "10.0.0.5"),
    ],
)
def test_a_host_for_clients(host: str, certified: list[str], found: str) -> None:
    assert host_for_clients(host, certified) == found


def test_a_name_for_ipv6_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Callable[[str, str], bool] = lambda name, address: (name, address) == ("ip6-localhost", "::1")  # noqa: E731
    monkeypatch.setattr(reaching, "_leads_to", known)
    assert host_for_clients("::1") == "ip6-localhost"


def test_a_machine_without_a_network_is_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "_own_address", lambda host: [])
    assert host_for_clients("0.0.0.0", ["localhost"]) == "localhost"


def test_an_ipv6_address_is_put_in_brackets() -> None:
    assert [in_url(host) for host in ("::1", "127.0.0.1", "localhost")] == ["[::1]", "127.0.0.1", "localhost"]


def test_a_certificate_that_is_of_no_use_elsewhere() -> None:
    assert is_only_for_loopback(["localhost", "127.0.0.1", "::1"])
    assert not is_only_for_loopback(["localhost", "bus.contoso.net"])


@pytest.mark.parametrize(
    ("door", "port", "problem", "words"),
    [
        ("amqp", 5672, OSError(errno.EADDRINUSE, ""), "Port 5672 (AMQP) is in use; choose another with --amqp-port."),
        ("https", 443, OSError(errno.EACCES, ""), "Port 443 (HTTPS) is for privileged processes; choose one above 1023"
         " with --https-port."),
        ("amqps", 1, OSError(errno.EADDRNOTAVAIL, ""), "The address h is not one of this machine's; choose another"
         " with --host."),
        ("amqps", 1, OSError("could not bind on any address out of []"), "The address h is not one of this machine's;"
         " choose another with --host."),
        ("http", 1, socket.gaierror(-2, ""), "The host name 'h' is not known; choose another with --host."),
        ("http", 9, OSError(errno.EMFILE, "Too many open files"), "Port 9 (HTTP) cannot be opened: Too many open files."
         " Another can be chosen with --http-port."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_port_and_the_option_that_helps(
    door: str, port: int, problem: OSError, words: str
) -> None:
    assert refused(door, "h", port, problem) == words
