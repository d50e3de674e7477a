"""A broker process that serves HTTPS, for the official administration clients, which speak nothing else.

A plugin of the two modules that use it; everything else about brokers in tests is `support.broker`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.broker import ROOT_POLICY, BrokerProcess, free_ports
from twinbus.broker.certs import make_certificates


class AdminEndpoint(NamedTuple):
    """Where the door is, and how to enter."""

    broker: BrokerProcess
    host: str  # With its port.
    ca_file: Path

    @property
    def namespace(self) -> str:
        return self.broker.namespace

    def connection_string(self, policy: str = ROOT_POLICY, key: str | None = None) -> str:
        return f"Endpoint=sb://{self.host}/;SharedAccessKeyName={policy};SharedAccessKey={key or self.broker.key}"

    def signed_connection_string(self, token: str) -> str:
        return f"Endpoint=sb://{self.host}/;SharedAccessSignature={token}"


@pytest.fixture(scope="module")
def admin_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminEndpoint]:
    """The HTTPS door of a broker that serves this module's tests."""
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"), [])
    amqps_port, https_port = free_ports(2)
    options = ("--tls", str(certificates.ca.parent), "--amqps-port", str(amqps_port), "--https-port", str(https_port))
    with BrokerProcess(tmp_path_factory.mktemp("broker"), options=options) as broker:
        yield AdminEndpoint(broker, f"localhost:{https_port}", certificates.ca)
        code = broker.stop()
    assert code == 0, broker.log[-4000:]
    assert "Traceback" not in broker.log, broker.log[-8000:]
