"""What a connection string says about where and how to connect."""

from __future__ import annotations

import pytest

from twinbus.client import ConnectionString
from twinbus.client.connection_string import at_endpoint

PROOF = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0="


@pytest.mark.parametrize(
    ("text", "host", "port", "tls"),
    [
        (f"Endpoint=sb://ns.servicebus.windows.net/;{PROOF}", "ns.servicebus.windows.net", 5671, True),
        (f"Endpoint=sb://localhost;{PROOF};UseDevelopmentEmulator=true", "localhost", 5672, False),
        (f"Endpoint=sb://127.0.0.1:7000;{PROOF};UseDevelopmentEmulator=true;", "127.0.0.1", 7000, False),
        (f"Endpoint=sb://localhost:7001/;{PROOF}", "localhost", 7001, True),
        (f"Endpoint=sb://localhost;{PROOF};UseDevelopmentEmulator=True", "localhost", 5671, True),
        (f"HostName=ns.example;{PROOF}", "ns.example", 5671, True),
        (f" endpoint=sb://[::1]:5000;{PROOF};usedevelopmentemulator=true", "::1", 5000, False),
    ],
)
def test_the_endpoint_decides_host_port_and_tls(text: str, host: str, port: int, tls: bool) -> None:
    target = ConnectionString.parse(text)
    assert (target.host, target.port, target.tls) == (host, port, tls)


def test_a_key_keeps_its_equals_signs() -> None:
    assert ConnectionString.parse(f"Endpoint=sb://h;{PROOF}").key == "c2VjcmV0="


def test_the_entity_path_and_a_ready_made_signature_are_read() -> None:
    target = ConnectionString.parse(
        "Endpoint=sb://h;SharedAccessSignature=SharedAccessSignature sr=x&se=1;EntityPath=a/b"
    )
    assert target.entity_path == "a/b"
    assert target.signature == "SharedAccessSignature sr=x&se=1"


def test_keys_that_nobody_knows_are_left_alone() -> None:
    assert ConnectionString.parse(f"Endpoint=sb://h;OperationTimeout=60;{PROOF}").host == "h"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no Endpoint"),
        (PROOF, "no Endpoint"),
        (f"Endpoint=sb:///;{PROOF}", "names no host"),
        (f"Endpoint=sb://h:port;{PROOF}", "is not a port"),
        ("Endpoint=sb://h", "SharedAccessKeyName and SharedAccessKey"),
        ("Endpoint=sb://h;SharedAccessKeyName=root", "SharedAccessKeyName and SharedAccessKey"),
        (f"Endpoint=sb://h;{PROOF};{PROOF}", "twice"),
        (f"Endpoint=sb://h;{PROOF};secret", "without '='"),
    ],
)
def test_what_is_no_connection_string_is_refused_without_showing_secrets(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        ConnectionString.parse(text)
    assert "c2VjcmV0" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_the_key_is_not_shown() -> None:
    assert "c2VjcmV0" not in repr(ConnectionString.parse(f"Endpoint=sb://h;{PROOF}"))


@pytest.mark.parametrize(
    ("target", "audience"),
    [
        (ConnectionString("h"), "sb://h/q"),
        (ConnectionString("h", 7000), "sb://h:7000/q"),
        (ConnectionString("h", 5672, tls=False), "sb://h:5672/q"),
        (ConnectionString("::1", 5672, tls=False), "sb://[::1]:5672/q"),
    ],
)
def test_an_audience_is_the_address_of_the_entity(target: ConnectionString, audience: str) -> None:
    assert target.audience("q") == audience


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("Endpoint=sb://localhost;SharedAccessKeyName=k", "Endpoint=sb://127.0.0.1:7;SharedAccessKeyName=k"),
        ("SharedAccessKey=a=;endpoint=sb://Host:5672/;X=y", "SharedAccessKey=a=;endpoint=sb://127.0.0.1:7;X=y"),
        ("HostName=host.example:1;UseDevelopmentEmulator=true", "HostName=127.0.0.1:7;UseDevelopmentEmulator=true"),
    ],
)
def test_a_connection_string_is_moved_to_another_place_however_it_is_written(text: str, moved: str) -> None:
    assert at_endpoint(text, "127.0.0.1", 7) == moved
