"""What happens to the databases of a namespace in PostgreSQL: older, swapped, rows that cannot be read.

As with files: accepted messages stay, and what does not belong together is named and not served.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from support.broker import BrokerProcess, running, wait_for
from support.gateways import new_database
from support.postgres import PostgresServer
from twinbus.cli import app

NAMESPACE = "files"


class Databases:
    """Two databases, a store in each, and the catalog in the first."""

    def __init__(self, server: PostgresServer, directory: Path, copies_of: Sequence[str | None] = (None, None)) -> None:
        self.server = server
        self.directory = directory
        self.urls = [new_database(server, url) for url in copies_of]

    def broker(self, *urls: str, directory: str = "here") -> BrokerProcess:
        options = [word for url in urls or self.urls for word in ("--store", url)]
        return BrokerProcess(self.directory / directory, namespace=NAMESPACE, options=("--no-console", *options))

    def execute(self, number: int, statement: str) -> None:
        self.server.execute_at(self.urls[number], statement)


@pytest.fixture(scope="module")
def prepared(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Databases, dict[str, list[str]]]:
    """A namespace that was stopped, and what was accepted in it, by queue."""
    databases, log = Databases(postgres, tmp_path_factory.mktemp("prepared")), {}
    with (
        databases.broker() as broker,
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
    ):
        for queue in ("first", "second"):
            broker.create_queue(queue)
            log[queue] = [f"{queue}-{number}" for number in range(10)]
            with client.get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(b"x", message_id=each) for each in log[queue]])
        assert broker.stop() == 0
    return databases, log


@pytest.fixture
def databases(prepared: tuple[Databases, dict[str, list[str]]], tmp_path: Path) -> Databases:
    """A copy of its databases."""
    return Databases(prepared[0].server, tmp_path, prepared[0].urls)


@pytest.fixture
def sent(prepared: tuple[Databases, dict[str, list[str]]]) -> dict[str, list[str]]:
    return dict(prepared[1])


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


def test_what_one_gateway_took_up_no_other_can_drop(databases: Databases, sent: dict[str, list[str]]) -> None:
    databases.execute(0, f"DELETE FROM twinbus_{NAMESPACE}.entity WHERE name = 'second'")
    here, there = databases.broker(), databases.broker(directory="there")
    with running(here, there):
        (orphan,) = ask(there, "GET", "orphans")["orphans"]
        ask(here, "POST", f"orphans/{orphan['number']}/adopt", {})
        status, text = there.request("POST", f"/$api/orphans/{orphan['number']}/drop", '{"confirm": "second"}')
        assert status == 404, text
        assert ask(there, "GET", "orphans")["orphans"] == []
        is_all_there(there, sent)


def test_an_older_catalog_is_refused_until_somebody_accepts_it(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    databases.execute(0, f"UPDATE twinbus_{NAMESPACE}.counter SET change = change - 5")
    broker = databases.broker()
    with pytest.raises(AssertionError, match="The catalog is older than its stores"):
        broker.start()
    words = ("catalog", "accept", *databases.urls, "--namespace", NAMESPACE, "--yes")
    assert CliRunner().invoke(app, words).exit_code == 0
    with databases.broker() as again:
        is_all_there(again, sent)


def test_a_lost_catalog_is_made_anew_from_what_the_stores_remember(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    catalog = f"twinbus_{NAMESPACE}"
    words = ("catalog", "rebuild", *databases.urls, "--namespace", NAMESPACE, "--yes")
    with databases.broker() as broker:
        databases.execute(0, f"DROP SCHEMA {catalog} CASCADE")
        assert "gateways use the schema" in CliRunner().invoke(app, words).stderr
        broker.stop()
    with pytest.raises(AssertionError, match="twinbus catalog rebuild"):
        databases.broker().start()
    swapped = CliRunner().invoke(app, ("catalog", "rebuild", *reversed(databases.urls), *words[4:]))
    assert "Give all addresses in the order" in swapped.stderr
    done = CliRunner().invoke(app, (*words, "--json"))
    made = json.loads(done.stdout)
    assert (made["entities"], made["missing"], made["moved_to"]) == (["first", "second"], [], None)
    with databases.broker() as broker:
        assert ask(broker, "GET", "orphans") == {"orphans": [], "unreadable": []}
        assert states(broker) == ["up", "up"]
        is_all_there(broker, sent)


def test_a_catalog_in_doubt_is_put_out_of_the_way_and_a_missing_store_is_waited_for(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    catalog = f"twinbus_{NAMESPACE}"
    databases.execute(0, f"DELETE FROM {catalog}.counter")
    databases.execute(0, f"ALTER SCHEMA {catalog}_0 RENAME TO kept")
    words = ("catalog", "rebuild", *databases.urls, "--namespace", NAMESPACE, "--yes", "--json")
    made = json.loads(CliRunner().invoke(app, words).stdout)
    assert (made["entities"], made["missing"]) == (["second"], [0])
    assert databases.server.execute_at(databases.urls[0], f"SELECT count(*) FROM {made['moved_to']}.entity") == [(2,)]
    with databases.broker() as broker:
        assert states(broker) == ["set-aside", "up"]
        is_all_there(broker, {"second": sent["second"]})
        databases.execute(0, f"ALTER SCHEMA kept RENAME TO {catalog}_0")
        ask(broker, "POST", "stores/0/up", {})
        wait_for(lambda: bool(ask(broker, "GET", "orphans")["orphans"]), "what only this store knows")
        (orphan,) = ask(broker, "GET", "orphans")["orphans"]
        ask(broker, "POST", f"orphans/{orphan['number']}/adopt", {})
        is_all_there(broker, {"first": sent["first"]})


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


def test_a_store_that_is_replaced_through_one_gateway_comes_up_at_the_other(
    databases: Databases, sent: dict[str, list[str]]
) -> None:
    databases.execute(1, f"ALTER SCHEMA twinbus_{NAMESPACE}_1 RENAME TO kept")
    here, there = databases.broker(), databases.broker(directory="there")
    with running(here, there):
        assert states(here) == states(there) == ["up", "set-aside"]
        ask(here, "POST", "stores/1/replace", {"confirm": 1})
        ask(there, "POST", "stores/1/up", {})
        assert states(here) == states(there) == ["up", "up"]
        is_all_there(there, {"first": sent["first"], "second": []})


def test_a_catalog_that_has_lost_its_own_values_is_refused(databases: Databases, sent: dict[str, list[str]]) -> None:
    catalog = f"twinbus_{NAMESPACE}"
    databases.execute(0, f"CREATE TABLE {catalog}.kept AS SELECT * FROM {catalog}.meta")
    databases.execute(0, f"DELETE FROM {catalog}.meta")
    with pytest.raises(AssertionError, match="The catalog belongs to the namespace with the id"):
        databases.broker().start()
    databases.execute(0, f"INSERT INTO {catalog}.meta SELECT * FROM {catalog}.kept")  # Nothing was put there.
    databases.execute(0, f"CREATE TABLE {catalog}.counted AS SELECT * FROM {catalog}.counter")
    databases.execute(0, f"DELETE FROM {catalog}.counter")
    with pytest.raises(AssertionError, match=r"The catalog in the schema .* is damaged"):
        databases.broker().start()
    databases.execute(0, f"INSERT INTO {catalog}.counter SELECT * FROM {catalog}.counted")
    with databases.broker() as broker:
        is_all_there(broker, sent)


def test_swapped_addresses_make_no_new_namespace(databases: Databases, sent: dict[str, list[str]]) -> None:
    swapped = databases.broker(*reversed(databases.urls))
    with pytest.raises(AssertionError, match="There is no catalog of 'files'"):
        swapped.start()
    with databases.broker() as broker:
        assert states(broker) == ["up", "up"]
        is_all_there(broker, sent)


def test_no_other_namespace_of_the_same_name_is_served_where_the_id_is_given(
    postgres: PostgresServer, databases: Databases, sent: dict[str, list[str]], tmp_path: Path
) -> None:
    elsewhere = Databases(postgres, tmp_path / "elsewhere")
    broker, stranger = databases.broker(), elsewhere.broker()
    with running(broker, stranger):
        namespace_id = str(ask(broker, "GET", "status")["id"])
        assert namespace_id != ask(stranger, "GET", "status")["id"]
    empty = Databases(postgres, tmp_path / "empty")
    for place, found in ((elsewhere, "has the id"), (empty, "is not there")):
        lost = place.broker(directory="lost")
        lost.options += ("--namespace-id", namespace_id)
        with pytest.raises(AssertionError, match=rf"The namespace at .* {found}"):
            lost.start()
    assert postgres.execute_at(empty.urls[0], "SELECT 1 FROM pg_tables WHERE schemaname LIKE 'twinbus%'") == []
    broker.options += ("--namespace-id", namespace_id)
    with broker:
        is_all_there(broker, sent)


def test_a_schema_that_is_gone_under_a_gateway_is_waited_for(databases: Databases, sent: dict[str, list[str]]) -> None:
    schema = f"twinbus_{NAMESPACE}_1"
    with databases.broker() as broker:
        databases.execute(1, f"ALTER SCHEMA {schema} RENAME TO kept")
        wait_for(lambda: states(broker) == ["up", "disconnected"], "the store to notice it")
        assert broker.request("POST", "/second/messages", "x")[0] == 503
        databases.execute(1, f"ALTER SCHEMA kept RENAME TO {schema}")
        wait_for(lambda: states(broker) == ["up", "up"], "the store's return")
        is_all_there(broker, sent)
        assert "Traceback" not in broker.log


def test_databases_that_go_back_in_time_under_a_gateway_are_set_aside(
    prepared: tuple[Databases, dict[str, list[str]]], databases: Databases, sent: dict[str, list[str]]
) -> None:
    """The first to a point after the gateway came, the second to one before: then it does not know the gateway."""
    server = databases.server
    with databases.broker() as broker:
        for queue in sent:
            for number in range(3):
                assert broker.request("POST", f"/{queue}/messages", f"{number}")[0] == 201
        databases.execute(0, f"DELETE FROM twinbus_{NAMESPACE}_0.journal WHERE id > 1")
        names = [url.rpartition("/")[2] for url in (*databases.urls, new_database(server, prepared[0].urls[1]))]
        server.execute(f'ALTER DATABASE "{names[1]}" ALLOW_CONNECTIONS false')
        for name in names[:2]:
            server.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))
        server.execute(f'ALTER DATABASE "{names[1]}" RENAME TO "{names[1]}_newer"')
        server.execute(f'ALTER DATABASE "{names[2]}" RENAME TO "{names[1]}"')
        wait_for(lambda: states(broker) == ["set-aside", "set-aside"], "both to be noticed")
        reasons = [str(store["reason"]) for store in ask(broker, "GET", "stores")["stores"]]
        assert all("older than what was served" in reason for reason in reasons)
        assert broker.request("POST", "/first/messages", "x")[0] == 503
        ask(broker, "POST", "stores/0/up", {})
        ask(broker, "POST", "stores/1/accept", {})
        assert states(broker) == ["up", "up"]


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
