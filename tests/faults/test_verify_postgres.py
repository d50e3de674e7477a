"""`twinbus verify` on PostgreSQL: through a gateway that runs, and by the addresses of the databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess
from support.gateways import new_database
from support.postgres import PostgresServer
from support.prompt import Prompt

CONFIG = """
[[queues]]
Name = "plain"
[[queues]]
Name = "empty"
[[queues]]
Name = "parts"
EnablePartitioning = true
"""
SCHEMA = "twinbus_compat"


class Gateway(BrokerProcess):
    """A gateway, and the address of its database."""

    url: str


@pytest.fixture(scope="module")
def broker(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    url = new_database(postgres)
    options = ("--store", url, "--stores", "2")
    process = Gateway(tmp_path_factory.mktemp("verify"), config=CONFIG, options=options)
    process.url = url
    try:
        process.start()
        with ServiceBusClient.from_connection_string(process.connection_string()) as client:
            for name in ("plain", "parts"):
                with client.get_queue_sender(name) as sender:
                    sender.send_messages([ServiceBusMessage(b"%d" % index) for index in range(20)])
        yield process
    finally:
        process.kill()


@pytest.fixture
def run(broker: Gateway) -> Prompt:
    return Prompt(broker)


def found(run: Prompt, *words: str, code: int) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("verify", *words, "--json", code=code).stdout)
    return report


@pytest.fixture
def database(broker: Gateway) -> Iterator[psycopg.Connection]:
    """Whatever a test does to the tables is undone; the gateway is idle meanwhile."""
    with psycopg.connect(broker.url, autocommit=True) as connection:
        yield connection


def test_it_is_whole_by_either_way(run: Prompt, broker: Gateway) -> None:
    for words in ((), (broker.url,), (broker.url, "--namespace", "compat")):
        report = found(run, *words, code=0)
        assert (report["whole"], len(report["stores"])) == (True, 2)
        assert sum(store["messages"] for store in report["stores"]) == 40
        assert sum(store["journal_rows"] for store in report["stores"]) > 0


def test_a_backup_is_left_to_the_database(run: Prompt, tmp_path: Path) -> None:
    assert "its own tools" in run("backup", str(tmp_path / "backup"), code=1).stderr


def test_what_cannot_be_looked_at_is_told(run: Prompt, broker: Gateway) -> None:
    assert "no namespace 'other'" in run("verify", broker.url, "--namespace", "other", code=2).stderr
    gone = broker.url.replace("/" + broker.url.rsplit("/", 1)[1], "/nowhere")
    assert "nowhere" in run("verify", gone, code=2).stderr
    assert "addresses were given" in run("verify", broker.url, broker.url, broker.url, code=2).stderr


DAMAGES: list[tuple[str, str, str, str]] = [
    (
        "counts",
        "UPDATE {store}.entity SET counts[2] = counts[2] + 1",
        "UPDATE {store}.entity SET counts[2] = counts[2] - 1",
        "active: its row says",
    ),
    (
        "catalog-row",
        "UPDATE {catalog}.entity SET document = 'x' || document WHERE name = 'empty'",
        "UPDATE {catalog}.entity SET document = substr(document, 2) WHERE name = 'empty'",
        "'empty'",
    ),
    (
        "queue-without-entity",
        "UPDATE {catalog}.entity SET store = 1 - store WHERE name = 'plain'",
        "UPDATE {catalog}.entity SET store = 1 - store WHERE name = 'plain'",
        "queue 'plain'",
    ),
    (
        "transfers",
        # Of now: an old one is swept away by a gateway that is running.
        "INSERT INTO {store}.transfer VALUES (400000, 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)",
        "DELETE FROM {store}.transfer WHERE queue = 400000",
        "queue 400000",
    ),
    (
        "entity-without-queue",
        "UPDATE {store}.entity SET id = id + 100000",
        "UPDATE {store}.entity SET id = id - 100000",
        "are not there",
    ),
]


@pytest.mark.parametrize(("check", "damage", "mend", "told"), DAMAGES, ids=[damage[0] for damage in DAMAGES])
def test_a_damage_is_found(
    run: Prompt, broker: Gateway, database: psycopg.Connection, check: str, damage: str, mend: str, told: str
) -> None:
    change: Callable[[str], object] = lambda text: database.execute(  # noqa: E731
        text.format(catalog=f'"{SCHEMA}"', store=f'"{SCHEMA}_0"').encode()
    )
    change(damage)
    try:
        findings = found(run, broker.url, code=1)["findings"]
    finally:
        change(mend)
    assert check in {finding["check"] for finding in findings}, findings
    assert told in str([finding for finding in findings if finding["check"] == check])
    assert found(run, broker.url, code=0)["whole"]
