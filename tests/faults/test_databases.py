"""What happens to the databases of a namespace in PostgreSQL: older, swapped, rows that cannot be read.

As with files: accepted messages stay, and what does not belong together is named and not served.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess
from support.gateways import new_database
from support.postgres import PostgresServer

NAMESPACE = "files"


class Databases:
    """Two databases, a store in each, and the catalog in the first."""

    def __init__(self, server: PostgresServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.urls = [new_database(server) for _ in range(2)]

    def broker(self, *urls: str) -> BrokerProcess:
        options = [word for url in urls or self.urls for word in ("--store", url)]
        return BrokerProcess(self.directory, namespace=NAMESPACE, options=("--no-console", *options))

    def execute(self, number: int, statement: str) -> None:
        self.server.execute_at(self.urls[number], statement)


@pytest.fixture
def databases(postgres: PostgresServer, tmp_path: Path) -> Databases:
    return Databases(postgres, tmp_path)


@pytest.fixture
def sent(databases: Databases) -> dict[str, list[str]]:
    """What was accepted, by queue; the broker is stopped."""
    log = {}
    with (
        databases.broker() as broker,
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
    ):
        for queue in ("first", "second"):
            broker.create_queue(queue)
            log[queue] = [f"{queue}-{number}" for number in range(10)]
            with client.get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(b"x", message_id=each) for each in log[queue]])
    return log


def is_all_there(broker: BrokerProcess, log: dict[str, list[str]]) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        for queue, ids in log.items():
            with client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
                found: list[str] = []
                while len(found) < len(ids):
                    messages = receiver.receive_messages(len(ids), max_wait_time=10)
                    assert messages, f"{queue}: only {len(found)} of {len(ids)} are there"
                    found += [str(message.message_id) for message in messages]
            assert sorted(found) == sorted(ids)


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> dict[str, list[dict[str, object]]]:
    status, text = broker.request(method, f"/$api/{path}", None if body is None else json.dumps(body))
    assert status == 200, text
    found: dict[str, list[dict[str, object]]] = json.loads(text)
    return found


def states(broker: BrokerProcess) -> list[object]:
    return [store["state"] for store in ask(broker, "GET", "stores")["stores"]]


def test_what_the_catalog_does_not_know_is_set_aside_and_adopted(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    databases.execute(0, f"DELETE FROM twinbus_{NAMESPACE}.entity WHERE name = 'second'")
    with databases.broker() as broker:
        (orphan,) = ask(broker, "GET", "orphans")["orphans"]
        assert (orphan["name"], orphan["messages"]) == ("second", 10)
        is_all_there(broker, {"first": sent["first"]})
        ask(broker, "POST", f"orphans/{orphan['number']}/adopt", {})
        is_all_there(broker, {"second": sent["second"]})


def test_an_older_catalog_is_refused_until_somebody_accepts_it(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    databases.execute(0, f"UPDATE twinbus_{NAMESPACE}.counter SET change = change - 5")
    broker = databases.broker()
    with pytest.raises(AssertionError, match="The catalog is older than its stores"):
        broker.start()
    words = ("catalog", "accept", *databases.urls, "--namespace", NAMESPACE, "--yes")
    subprocess.run([sys.executable, "-m", "twinbus", *words], check=True, timeout=60)
    with databases.broker() as again:
        is_all_there(again, sent)


def test_a_row_that_cannot_be_read_is_kept(databases: Databases, sent: dict[str, list[str]]) -> None:
    table = f"twinbus_{NAMESPACE}.entity"
    databases.execute(0, f"ALTER TABLE {table} ADD was text")
    databases.execute(0, f"UPDATE {table} SET was = document, document = '[]' WHERE name = 'second'")
    with databases.broker() as broker:
        (row,) = ask(broker, "GET", "orphans")["unreadable"]
        assert (row["name"], row["document"]) == ("second", "[]")
        assert broker.request("GET", "/second?api-version=2021-05")[0] == 503
        is_all_there(broker, {"first": sent["first"]})
    databases.execute(0, f"UPDATE {table} SET document = was WHERE name = 'second'")
    databases.execute(0, f"ALTER TABLE {table} DROP was")
    with databases.broker() as broker:
        is_all_there(broker, {"second": sent["second"]})


def test_swapped_addresses_make_no_new_namespace(databases: Databases, sent: dict[str, list[str]]) -> None:
    swapped = databases.broker(*reversed(databases.urls))
    with pytest.raises(AssertionError, match="There is no catalog of 'files'"):
        swapped.start()
    with databases.broker() as broker:
        assert states(broker) == ["up", "up"]
        is_all_there(broker, sent)


def test_a_store_that_went_back_in_time_is_set_aside_until_somebody_accepts_it(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    databases.execute(1, f"ALTER SEQUENCE twinbus_{NAMESPACE}_1.gateway_number_seq RESTART WITH 1")
    databases.execute(0, f"SELECT setval('twinbus_{NAMESPACE}_0.gateway_number_seq', 100)")
    with databases.broker() as broker:
        assert states(broker)[0] == "up"
    databases.execute(0, f"ALTER SEQUENCE twinbus_{NAMESPACE}_0.gateway_number_seq RESTART WITH 50")
    with databases.broker() as broker:
        assert states(broker) == ["set-aside", "up"]
        ask(broker, "POST", "stores/0/accept", {})
        assert states(broker) == ["up", "up"]
        is_all_there(broker, sent)
