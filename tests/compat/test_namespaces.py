"""Several namespaces in one process: told apart by host name or by key, with nothing shared but the ports."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from proton import Link, Message
from proton.utils import LinkDetached

from support import atom
from support.broker import ROOT_POLICY, SOON_S, BrokerProcess, wait_for
from support.peer import Modes, Receiver, connected
from twinbus.wire.sas import make_token

pytestmark = pytest.mark.feature("several-namespaces")

KEYS = {"contoso": "the-key-of-contoso", "fabrikam": "the-key-of-fabrikam"}
LISTENER = "the-key-of-a-listener-in-both"
CONFIG = "".join(
    f"""
[[namespaces]]
name = "{name}"
key = "{key}"
datacenter = "{name}-hall"
stores = 1
[[namespaces.queues]]
Name = "orders"
[[namespaces.policies]]
Name = "listener"
Rights = ["Listen"]
PrimaryKey = "{LISTENER}"
SecondaryKey = "{LISTENER}"
"""
    for name, key in KEYS.items()
)


class Several(BrokerProcess):
    """A process whose namespaces are named by a file or by options."""

    @property
    def command(self) -> list[str]:
        words = super().command
        for option in ("--namespace", "--key"):
            at = words.index(option)
            del words[at : at + 2]
        return words

    def as_namespace(self, name: str, method: str, path: str, host: str = "", key: str = "") -> tuple[int, str]:
        """One request of an administrator of a namespace, with another Host header if one is given."""
        host = host or f"{self.host}:{self.http_port}"
        token = make_token(f"http://{host}/", ROOT_POLICY, key or KEYS[name], int(time.time()) + 300)
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=SOON_S)
        try:
            connection.request(method, path, headers={"Authorization": token, "Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def active(self, name: str, queue: str = "orders") -> int:
        status, text = self.as_namespace(name, "GET", f"/{queue}?api-version=2021-05")
        assert status == 200, text
        return int(atom.leaves(text)["ActiveMessageCount"])

    def client(self, name: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string(key=KEYS[name]), retry_total=0)

    def send(self, name: str, body: str, queue: str = "orders") -> None:
        with connected(self, password=KEYS[name]) as connection:
            connection.create_sender(queue).send(Message(body=body))

    def drain(self, name: str, queue: str = "orders") -> list[str]:
        """All that is in a queue, as the count says."""
        with connected(self, password=KEYS[name]) as connection:
            count = self.active(name, queue)
            receiver = Receiver(connection, queue, credit=100, options=Modes(snd=Link.SND_SETTLED))
            return [receiver.take()[0].body for _ in range(count)]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    process = Several(tmp_path_factory.mktemp("several"), config=CONFIG)
    with process:
        yield process
        assert process.stop() == 0
    assert "Traceback" not in process.log, process.log[-8000:]


def test_the_key_tells_which_namespace_is_meant(several: Several) -> None:
    with several.client("contoso") as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("to contoso"))
    assert (several.active("contoso"), several.active("fabrikam")) == (1, 0)
    with several.client("contoso") as client, client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(5, max_wait_time=SOON_S)
        receiver.complete_message(message)
    assert (several.active("contoso"), several.active("fabrikam")) == (0, 0)


def test_entities_of_one_are_not_in_the_other(several: Several) -> None:
    path = "/only-here?api-version=2021-05"
    token = make_token(
        f"http://{several.host}:{several.http_port}/", ROOT_POLICY, KEYS["contoso"], int(time.time()) + 300
    )
    assert several.request("PUT", path, atom.entry({}), {"Authorization": token})[0] == 201
    assert several.as_namespace("contoso", "GET", path)[0] == 200
    assert several.as_namespace("fabrikam", "GET", path)[0] == 404
    assert several.as_namespace("fabrikam", "DELETE", path)[0] == 404
    with pytest.raises(LinkDetached, match="SystemTracker:fabrikam:only-here"):
        several.send("fabrikam", "lost", "only-here")
    assert several.as_namespace("contoso", "DELETE", path)[0] == 200


def test_a_key_of_nobody_is_refused_by_both_doors(several: Several) -> None:
    status, text = several.as_namespace("contoso", "GET", "/orders?api-version=2021-05", key="a-key-of-nobody")
    assert status == 401
    assert "SystemTracker:*:orders" in text
    text = several.connection_string(key="a-key-of-nobody")
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("never"))


@pytest.mark.parametrize("host", ["contoso.localhost", "CONTOSO.servicebus.windows.net", "contoso"])
def test_the_host_header_tells_before_the_key(several: Several, host: str) -> None:
    assert several.as_namespace("contoso", "GET", "/$namespaceinfo", host)[0] == 200
    status, text = several.as_namespace("fabrikam", "GET", "/$namespaceinfo", host)
    assert status == 401
    assert "SystemTracker:contoso:" in text


@pytest.mark.parametrize("host", ["fabrikam.localhost", "Fabrikam.servicebus.windows.net", "fabrikam"])
def test_the_hostname_of_an_amqp_open_tells_before_the_key(several: Several, host: str) -> None:
    with connected(several, password=KEYS["fabrikam"], virtual_host=host) as connection:
        connection.create_sender("orders").send(Message(body=f"by {host}"))
    assert several.drain("fabrikam") == [f"by {host}"]
    with (
        connected(several, password=KEYS["contoso"], virtual_host=host) as connection,
        pytest.raises(LinkDetached, match="SystemTracker:fabrikam:orders"),
    ):
        connection.create_sender("orders")


def test_a_key_that_is_good_in_both_needs_a_host_name(several: Several) -> None:
    with (
        connected(several, user="listener", password=LISTENER) as connection,
        pytest.raises(LinkDetached, match=r"unauthorized-access.*SystemTracker:\*:orders"),
    ):
        connection.create_receiver("orders")
    with connected(several, user="listener", password=LISTENER, virtual_host="contoso.localhost") as connection:
        connection.create_receiver("orders")
        with pytest.raises(LinkDetached, match="SystemTracker:contoso:orders"):
            connection.create_sender("orders")
    assert "The key of listener is good in several namespaces" in several.log


def test_a_connection_stays_with_the_namespace_of_its_first_token(several: Several) -> None:
    with connected(several, user=None) as connection:
        replies = Receiver(connection, "$cbs", credit=10)
        requests = connection.create_sender("$cbs")

        def put(name: str) -> int:
            audience = f"sb://{several.host}:{several.amqp_port}/orders"
            asked = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
            token = several.token("orders", key=KEYS[name])
            requests.send(Message(id="1", reply_to="$cbs", properties=asked, body=token))
            return int(replies.take()[0].properties["status-code"])

        with pytest.raises(LinkDetached, match=r"SystemTracker:\*:orders"):
            connection.create_sender("orders")
        assert (put("contoso"), put("fabrikam")) == (202, 401)
        connection.create_sender("orders").send(Message(body="to contoso"))
    assert (several.drain("contoso"), several.active("fabrikam")) == (["to contoso"], 0)


def test_a_connection_that_breaks_off_drops_its_own_namespaces_locks_only(several: Several) -> None:
    for name in KEYS:
        several.send(name, f"locked in {name}")
    with several.client("fabrikam") as client, client.get_queue_receiver("orders") as receiver:
        (kept,) = receiver.receive_messages(1, max_wait_time=SOON_S)
        broken = _lock_and_break_off(several)
        again = _receive_again(several)
        assert (broken.lock_token != again.lock_token, again.delivery_count) == (True, broken.delivery_count + 1)
        receiver.complete_message(kept)
    assert (several.active("contoso"), several.active("fabrikam")) == (0, 0)


def _lock_and_break_off(several: Several) -> ServiceBusReceivedMessage:
    client = several.client("contoso")
    receiver = client.get_queue_receiver("orders")
    (locked,) = receiver.receive_messages(1, max_wait_time=SOON_S)
    # Behind the client's back: no close of AMQP, as when a process dies.
    with receiver._handler._connection._transport.sock as wire:
        wire.shutdown(socket.SHUT_RDWR)
    with suppress(Exception):
        client.close()
    return locked


def _receive_again(several: Several) -> ServiceBusReceivedMessage:
    with several.client("contoso") as client, client.get_queue_receiver("orders") as receiver:
        (again,) = receiver.receive_messages(1, max_wait_time=SOON_S)
        receiver.complete_message(again)
        return again


def test_metrics_are_counted_for_each_and_name_the_datacenter(several: Several) -> None:
    before = several.metrics().get('twinbus_messages_accepted_total{namespace="fabrikam"}', 0)
    several.send("fabrikam", "counted")
    assert several.drain("fabrikam") == ["counted"]
    wait_for(
        lambda: several.metrics()['twinbus_messages_accepted_total{namespace="fabrikam"}'] == before + 1,
        "the send is counted",
    )
    metrics = several.metrics()
    assert metrics['twinbus_namespace_info{datacenter="contoso-hall",namespace="contoso"}'] == 1
    assert metrics['twinbus_queues{namespace="contoso"}'] == 1


def test_status_tells_the_datacenter_of_the_namespace_that_is_asked(several: Several) -> None:
    for name in KEYS:
        status, text = several.as_namespace(name, "GET", "/$api/status")
        assert status == 200
        assert json.loads(text)["datacenter"] == f"{name}-hall"


def test_each_has_its_own_directory_and_survives_a_restart(several: Several) -> None:
    several.send("contoso", "kept")
    several.restart()
    assert sorted(path.name for path in several.data.iterdir()) == ["contoso", "fabrikam"]
    assert (several.drain("contoso"), several.drain("fabrikam")) == (["kept"], [])


def test_names_from_options_get_keys_of_their_own_that_are_printed(tmp_path: Path) -> None:
    options = ("--namespace", "east", "--namespace", "west", "--queue", "orders", "--datacenter", "north")
    with Several(tmp_path, options=(*options, "--stores", "1")) as process:
        printed = dict(
            re.findall(r"Namespace '(\w+)' in datacenter 'north'.*\nConnection string of \w+:\n +(\S+)", process.output)
        )
        assert list(printed) == ["east", "west"]
        keys = {name: re.findall(";SharedAccessKey=([^;]+)", text)[0] for name, text in printed.items()}
        for name, key in keys.items():
            with connected(process, password=key) as connection:
                connection.create_sender("orders").send(Message(body=f"to {name}"))
        for name, key in keys.items():
            with connected(process, password=key) as connection:
                assert Receiver(connection, "orders", credit=2).take()[0].body == f"to {name}"


def test_one_namespace_takes_any_host_name(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, options=("--queue", "orders", "--stores", "1")) as broker:
        with connected(broker, virtual_host="contoso.servicebus.windows.net") as connection:
            connection.create_sender("orders").send(Message(body="m"))
        assert broker.count("orders") == 1
        wait_for(lambda: broker.metric("twinbus_messages_accepted_total") == 1, "the send is counted")
