"""Where clients reach a broker: host names that are of use to them, and what is wrong with a port that does not open.

The broker listens at an address; what is pasted into a client needs a name that leads there, and that its certificate
covers.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from twinbus.broker.certificate import covers

DOORS = {"amqp": "AMQP", "amqps": "AMQP with TLS", "http": "HTTP", "https": "HTTPS"}
EVERYWHERE = ("", "0.0.0.0", "::")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
IPV6_LOOPBACK = ("localhost", "ip6-localhost", "ip6-loopback")  # As systems call it, or do not.
_PRIVILEGED_BELOW = 1024


def host_for_clients(host: str, certified: Sequence[str] = ()) -> str:
    """The best name for whom a broker listens at `host`; with TLS, one that the certificate is for if there is any."""
    candidates = _candidates(host)
    if certified:
        covered = [name for name in candidates if covers(certified, name)]
        candidates = covered or [*_names_elsewhere(certified), *candidates]
    return candidates[0]


def is_only_for_loopback(certified: Sequence[str]) -> bool:
    """Whether other machines cannot trust a certificate, whatever they call this one."""
    return all(name in LOOPBACK for name in certified)


def _names_elsewhere(certified: Sequence[str]) -> list[str]:
    """What others may call this machine, for all that it knows."""
    return [name for name in certified if name not in LOOPBACK and not name.startswith("*")]


def _candidates(host: str) -> list[str]:
    if host in ("localhost", "127.0.0.1"):
        return ["localhost", "127.0.0.1"]  # `NAME.localhost` is not known to every system's resolver.
    if host == "::1":
        return [*(name for name in IPV6_LOOPBACK if _leads_to(name, host)), host]
    if host in EVERYWHERE:
        return [*_own_address(host), socket.gethostname(), *(_candidates("::1") if host == "::" else ["localhost"])]
    return [host]


def _leads_to(name: str, address: str) -> bool:
    with suppress(OSError):
        return any(found[4][0] == address for found in socket.getaddrinfo(name, None, socket.AF_INET6))
    return False


def _own_address(host: str) -> list[str]:
    """The address by which the rest of the network knows this machine, if there is a network; nothing is sent."""
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if host == "::" else (socket.AF_INET, "192.0.2.1")
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))
        return [str(probe.getsockname()[0])]
    return []


def in_url(host: str) -> str:
    """A host as it is written before a port."""
    with suppress(ValueError):
        return f"[{host}]" if isinstance(ip_address(host), IPv6Address) else host
    return host


def refused(door: str, host: str, port: int, problem: OSError) -> str:
    """Why a port could not be opened, and the option that helps."""
    what, option = f"Port {port} ({DOORS[door]})", f"--{door}-port"
    if isinstance(problem, socket.gaierror):
        return f"The host name '{host}' is not known; choose another with --host."
    if problem.errno == errno.EADDRINUSE:
        return f"{what} is in use; choose another with {option}."
    if problem.errno in (errno.EACCES, errno.EPERM) and port < _PRIVILEGED_BELOW:
        return f"{what} is for privileged processes; choose one above {_PRIVILEGED_BELOW - 1} with {option}."
    # Newer versions of Python tell no number when none of a host's addresses is this machine's.
    if problem.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, None):
        return f"The address {host} is not one of this machine's; choose another with --host."
    return f"{what} cannot be opened: {problem.strerror or problem}. Another can be chosen with {option}."
