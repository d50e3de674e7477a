"""A pair as a file describes it: the primary over TLS on a port of its own, the secondary plain."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, TransportType

from support.broker import ROOT_POLICY, BrokerProcess, free_ports, running
from support.sdk import uses_tls_on_loopback
from twinbus.pair import ReplicatedClient as BlockingReplicatedClient
from twinbus.pair.aio import PairedServiceBusClient, ReplicatedClient
from twinbus.pair.description import PairDescription


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


def strings(file: Path) -> tuple[str, str]:
    """The connection strings of the primary, over TLS, and of the secondary."""
    described = PairDescription.read(file)
    return described.primary.connection_string, described.secondary.connection_string


@uses_tls_on_loopback
@pytest.mark.parametrize("way", ["tls", "websocket"])
async def test_a_replicated_client_goes_to_the_port_of_the_connection_string(
    described: tuple[BrokerProcess, Path], way: str
) -> None:
    """Both flavours, each with its own connections; the secondary has no such queue, so that nobody stands in."""
    primary, file = described
    first, second = strings(file)
    queue = primary.create_queue(f"jobs-{way}")
    settings: dict[str, object] = {"connection_verify": str(file.parent / "ca.pem")}
    if way == "websocket":
        (amqps, https) = (primary.options[primary.options.index(name) + 1] for name in ("--amqps-port", "--https-port"))
        first = first.replace(f":{amqps};", f":{https};")
        settings["transport_type"] = TransportType.AmqpOverWebsocket
    more: dict[str, object] = {"mode": "passive", "attempts": 1, "client_settings": settings}

    def blocking() -> None:
        client = BlockingReplicatedClient.from_connection_strings(first, second, **more)
        with client, client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(b"x", message_id="blocking"))

    await asyncio.to_thread(blocking)
    client = ReplicatedClient.from_connection_strings(first, second, **more)
    async with client, client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="asyncio"))
    assert primary.count(queue) == 2


@uses_tls_on_loopback
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
