"""A pair as a file describes it: the primary over TLS on a port of its own, the secondary plain."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from support.broker import ROOT_POLICY, BrokerProcess, free_ports, running
from twinbus.pair.aio import PairedServiceBusClient


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    """The primary, and the file."""
    directory = tmp_path_factory.mktemp("pair")
    subprocess.run([sys.executable, "-m", "twinbus", "certs", str(directory)], check=True, capture_output=True)
    amqps, https = free_ports(2)
    options = ("--tls", str(directory), "--amqps-port", str(amqps), "--https-port", str(https))
    primary = BrokerProcess(directory / "primary", namespace="contoso", options=options)
    secondary = BrokerProcess(directory / "secondary", namespace="fabrikam")
    key = f"SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={primary.key}"
    (directory / "secret").write_text(f"Endpoint=sb://localhost:{amqps};{key}\n")
    file = directory / "pair.toml"
    file.write_text(
        '[primary]\nconnection_string_file = "secret"\nca = "ca.pem"\n'
        f'[secondary]\nconnection_string = "{secondary.connection_string()}"\n'
        '[options]\nbacklog_queue_count = 1\nfailover_interval = 0\nattempt_timeout = "PT20S"\n'
    )
    with running(primary, secondary):
        yield primary, file


async def test_a_described_pair_sends_over_tls_and_is_diverted(described: tuple[BrokerProcess, Path]) -> None:
    primary, file = described
    primary.create_queue("orders")
    async with PairedServiceBusClient.from_description(file) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage(b"direct"))
        assert primary.count("orders") == 1
        primary.kill()
        await sender.send_messages(ServiceBusMessage(b"diverted"))
        status = client.status()

    assert status.primary == "contoso"
    assert (status.diverted, status.ill) == (1, {"orders": "failed over"})
