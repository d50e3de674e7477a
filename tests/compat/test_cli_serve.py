"""What `twinbus serve` prints is of use as it stands: every connection string, argument and URL is tried.

A broker on an address of its own can have the port that the Python client demands for TLS.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from support.broker import ROOT_POLICY
from twinbus.broker.certs import make_certificates

pytestmark = pytest.mark.feature("connection-strings")

JS = Path(__file__).parent / "js"
OWN_HOST = "127.0.0.77"
ANY_PORTS = tuple(word for door in ("amqp", "http", "amqps", "https") for word in (f"--{door}-port", "0"))
TLS, ADMINISTRATION = " with TLS, for ServiceBusClient", " with TLS, for ServiceBusAdministrationClient"
STRING = re.compile(rf"^Connection string of {ROOT_POLICY}(.*):\n  (Endpoint=\S+)$", re.MULTILINE)
NODE_S = 40


class Said(NamedTuple):
    """What a broker printed before it was ready."""

    text: str

    def strings(self, purpose: str) -> list[str]:
        """The connection strings for a purpose, one for each namespace."""
        return [string for words, string in STRING.findall(self.text) if words == purpose]

    def argument(self, name: str) -> str:
        """An argument of the Python client."""
        found = re.search(rf'{name}="([^"]+)"', self.text)
        assert found, self.text
        return found[1]

    @property
    def console(self) -> str | None:
        """Where the console is."""
        found = re.search(r"^ +console +(\S+)$", self.text, re.MULTILINE)
        return found[1] if found else None


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, [OWN_HOST])
    return directory


@contextmanager
def serving(data: Path, *options: str) -> Iterator[Said]:
    """A broker with a queue `orders`; by default on any ports, so that it is in nobody's way."""
    command = [sys.executable, "-m", "twinbus", "serve", "--data", str(data), "--queue", "orders", *ANY_PORTS]
    with subprocess.Popen([*command, "--log-level", "error", *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == "ready\n":
                    break
            assert lines[-1:] == ["ready\n"], lines
            yield Said("".join(lines))
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def at_the_usual_port(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Said]:
    options = ("--host", OWN_HOST, "--tls", str(certificates), "--amqps-port", "5671")
    with serving(tmp_path_factory.mktemp("usual"), *options) as said:
        yield said


@pytest.fixture(scope="module")
def at_any_port(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Said]:
    """Two namespaces without a console, by a relative path to the certificates."""
    relative = os.path.relpath(certificates)
    names = ("--namespace", "contoso", "--namespace", "fabrikam")
    with serving(tmp_path_factory.mktemp("any"), "--tls", relative, "--no-console", *names) as said:
        yield said


def round_trip(string: str, **arguments: Any) -> str:
    with ServiceBusClient.from_connection_string(string, retry_total=0, **arguments) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            return str(message)


def by_javascript(said: Said) -> dict[str, str]:
    """All strings of a broker with the JavaScript clients: what came of each."""
    given = {"messages": said.strings("") + said.strings(TLS), "administration": said.strings(ADMINISTRATION)}
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": said.argument("connection_verify")}
    assert f"NODE_EXTRA_CA_CERTS={environment['NODE_EXTRA_CA_CERTS']}\n" in said.text
    done = subprocess.run(
        ["node", "strings.mjs", json.dumps(given)],
        cwd=JS, env=environment, capture_output=True, text=True, timeout=NODE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_a_string_without_tls(at_the_usual_port: Said, at_any_port: Said) -> None:
    strings = at_the_usual_port.strings("") + at_any_port.strings("")
    assert len(strings) == 3
    assert [round_trip(string) for string in strings] == ["hello"] * 3


def test_a_string_for_tls_with_the_argument_beside_it(at_the_usual_port: Said) -> None:
    (string,) = at_the_usual_port.strings(TLS)
    authority = at_the_usual_port.argument("connection_verify")
    assert Path(authority).is_absolute()
    assert round_trip(string, connection_verify=authority) == "hello"
    assert "custom_endpoint_address" not in at_the_usual_port.text


def test_a_string_for_tls_at_another_port_with_the_arguments_beside_it(at_any_port: Said) -> None:
    arguments = {name: at_any_port.argument(name) for name in ("connection_verify", "custom_endpoint_address")}
    assert "transport_type=TransportType.Amqp, " in at_any_port.text
    for string in at_any_port.strings(TLS):
        assert round_trip(string, transport_type=TransportType.Amqp, **arguments) == "hello"


def test_a_string_for_the_administration_client(at_the_usual_port: Said, at_any_port: Said) -> None:
    for said in (at_the_usual_port, at_any_port):
        authority = said.argument("connection_verify")
        for string in said.strings(ADMINISTRATION):
            with ServiceBusAdministrationClient.from_connection_string(string, connection_verify=authority) as client:
                assert client.get_queue("orders").name == "orders"


def test_strings_of_two_namespaces_lead_to_each(at_any_port: Said) -> None:
    for purpose in ("", TLS, ADMINISTRATION):
        assert len(set(at_any_port.strings(purpose))) == 2


def test_all_strings_with_the_javascript_clients(at_the_usual_port: Said, at_any_port: Said) -> None:
    for said in (at_the_usual_port, at_any_port):
        expected = dict.fromkeys(said.strings("") + said.strings(TLS), "hello")
        expected |= dict.fromkeys(said.strings(ADMINISTRATION), "orders")
        assert by_javascript(said) == expected


def status(url: str, authority: Path | None = None) -> int:
    trust = ssl.create_default_context(cafile=authority)
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
        assert "<html" in answer.read().decode()
        found: int = answer.status
        return found


def test_the_console_is_where_it_says_if_there_is_one(at_the_usual_port: Said, at_any_port: Said) -> None:
    assert at_the_usual_port.console is not None
    assert status(at_the_usual_port.console) == 200
    assert at_any_port.console is None


def test_on_all_addresses_strings_have_a_name_that_clients_can_use(tmp_path: Path, certificates: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--allow-plain", "--tls", str(certificates)) as said:
        (plain,), (tls,) = said.strings(""), said.strings(TLS)
        assert "//0.0.0.0" not in plain + tls + str(said.console)
        assert round_trip(plain) == "hello"
        arguments = {name: said.argument(name) for name in ("connection_verify", "custom_endpoint_address")}
        assert round_trip(tls, transport_type=TransportType.Amqp, **arguments) == "hello"
        assert status(str(said.console)) == 200


def test_without_plain_text_there_are_strings_for_tls_alone(tmp_path: Path, certificates: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--tls", str(certificates)) as said:
        assert said.strings("") == []
        authority = said.argument("connection_verify")
        (string,) = said.strings(ADMINISTRATION)
        with ServiceBusAdministrationClient.from_connection_string(string, connection_verify=authority) as client:
            assert client.get_queue("orders").name == "orders"
        assert said.console is not None
        assert said.console.startswith("https://")
        assert status(said.console, Path(authority)) == 200


def test_on_ipv6_the_urls_are_good_and_what_clients_cannot_do_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "::1") as said:
        assert status(str(said.console)) == 200
        (string,) = said.strings("")
        if "[" in string:  # No name of this machine leads there.
            assert "bare IPv6 address" in said.text
        else:
            assert round_trip(string) == "hello"
        sent = [sys.executable, "-m", "twinbus", "send", "orders", "hello", "-c", string]
        assert subprocess.run(sent, capture_output=True, text=True).stdout == "1 message accepted.\n"
