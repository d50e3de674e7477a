"""The official client over TLS, with certificates from `twinbus certs`.

Without the emulator's switch the client speaks TLS to a fixed port; its custom endpoint address names another one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from support.broker import ROOT_POLICY, SOON_S, BrokerProcess, free_ports

pytestmark = pytest.mark.feature("tls")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    command = [sys.executable, "-m", "twinbus", "certs", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def amqps_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Path, amqps_port: int) -> Iterator[BrokerProcess]:
    ports = "--amqps-port", str(amqps_port), "--https-port", str(free_ports(1)[0])
    options = "--tls", str(certificates), *ports
    with BrokerProcess(tmp_path_factory.mktemp("broker"), options=options) as process:
        process.create_queue("q")
        yield process


def client(broker: BrokerProcess, port: int, ca: Path | None) -> ServiceBusClient:
    policy = f"SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={broker.key}"
    return ServiceBusClient.from_connection_string(
        f"Endpoint=sb://localhost/;{policy}",
        custom_endpoint_address=f"sb://localhost:{port}",
        transport_type=TransportType.Amqp,
        connection_verify=None if ca is None else str(ca),
        retry_total=0,
    )


def test_send_and_receive_over_tls(broker: BrokerProcess, amqps_port: int, certificates: Path) -> None:
    with client(broker, amqps_port, certificates / "ca.pem") as trusting:
        with trusting.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage(bytes(200_000)))
        with trusting.get_queue_receiver("q") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=SOON_S)
            assert len(b"".join(message.body)) == 200_000
            receiver.complete_message(message)
    assert broker.queue("q")["MessageCount"] == "0"


def test_a_client_that_does_not_trust_the_authority_does_not_connect(broker: BrokerProcess, amqps_port: int) -> None:
    with client(broker, amqps_port, ca=None) as distrusting:
        sender = distrusting.get_queue_sender("q")
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("m"), timeout=5)
        sender.close()
    assert broker.queue("q")["MessageCount"] == "0"
