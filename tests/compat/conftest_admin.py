"""A broker process that serves HTTPS, for the official administration clients, which speak nothing else.

A plugin of the modules that use it, with the Python client's fixtures; everything else about brokers in tests is
`support.broker`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compat.admin_python import Admin, Connect
from support.broker import ROOT_POLICY, BrokerProcess, free_ports
from support.gateways import ON_POSTGRES, Gateways, new_database
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
def admin_endpoint(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[AdminEndpoint]:
    """The HTTPS door of a broker that serves this module's tests, with the module's `BROKER_OPTIONS` if it has any.

    Its clock can be moved in a module with MOVABLE_CLOCK.
    """
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"), [])
    directory, options = tmp_path_factory.mktemp("broker"), getattr(request.module, "BROKER_OPTIONS", ())
    if ON_POSTGRES:
        stores = [new_database(request.getfixturevalue("postgres"))]
        process: BrokerProcess = (gateways := Gateways(directory, stores, options=options, tls=certificates.ca.parent))
        https_port = gateways.https_port
    else:
        amqps_port, https_port = free_ports(2)
        options += ("--test-clock",) if getattr(request.module, "MOVABLE_CLOCK", False) else ()
        options += ("--tls", str(certificates.ca.parent))
        options += ("--amqps-port", str(amqps_port), "--https-port", str(https_port))
        process = BrokerProcess(directory, options=options)
    with process as broker:
        yield AdminEndpoint(broker, f"localhost:{https_port}", certificates.ca)
        code = broker.stop()
    assert code == 0, broker.log[-4000:]
    assert "Traceback" not in broker.log, broker.log[-8000:]


@pytest.fixture(params=["sync", "aio"])
async def connect(request: pytest.FixtureRequest, admin_endpoint: AdminEndpoint) -> AsyncIterator[Connect]:
    """Makes clients of one flavour, and closes them."""
    clients: list[Admin] = []

    def client(connection_string: str, **options: Any) -> Admin:
        clients.append(Admin(request.param, admin_endpoint, connection_string, **options))
        return clients[-1]

    yield client
    for made in clients:
        await made.close()


@pytest.fixture
async def admin(connect: Connect, admin_endpoint: AdminEndpoint) -> AsyncIterator[Admin]:
    """A client with the root policy; what a test creates is gone after it."""
    client = connect(admin_endpoint.connection_string())
    yield client
    for queue in await client.list_queues():
        await client.delete_queue(queue.name)
    for topic in await client.list_topics():
        await client.delete_topic(topic.name)
