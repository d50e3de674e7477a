"""What a released version leaves behind: a small namespace in files and in PostgreSQL, and what it says to the latter.

`python tests/support/released.py SOURCE NAME`, with the `src` of a checkout of that release, writes all of it below
tests/contract/released: once for each release, by its own code. Tests open the namespaces, and try the statements on
what they made of the database, because gateways of two versions share one while the first is being replaced.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from support.broker import BrokerProcess

RELEASED = Path(__file__).parents[1] / "contract" / "released"
NAMESPACE = "released"
CATALOG, STORE = f"twinbus_{NAMESPACE}", f"twinbus_{NAMESPACE}_0"
KEY = "a-key-of-the-release-that-opens-nothing-else"
CONFIG = """
[[queues]]
Name = "orders"
[[queues]]
Name = "once"
RequiresDuplicateDetection = true
DuplicateDetectionHistoryTimeWindow = "P7D"
[[queues]]
Name = "talks"
RequiresSession = true
[[topics]]
Name = "news"
[[topics.subscriptions]]
Name = "all"
[[topics.subscriptions]]
Name = "some"
"""
_MODULES = ("dialect", "execution", "journal", "loading", "store", "surveying", "sweeping", "work", "writing")
_VERBS = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ")


class Release(NamedTuple):
    """What is kept of one."""

    name: str
    dump: str
    statements: list[str]


def releases() -> Iterator[Release]:
    """All that are kept."""
    for folder in sorted(RELEASED.iterdir()):
        if (folder / "postgres.sql").exists():
            statements = json.loads((folder / "statements.json").read_text())
            yield Release(folder.name, (folder / "postgres.sql").read_text(), statements)


def directories() -> list[Path]:
    """Where the files of each release are, as text."""
    return [folder for folder in sorted(RELEASED.iterdir()) if (folder / "catalog.sql").exists()]


def restore_files(folder: Path, data: Path) -> None:
    """Make the files of a release again."""
    data.mkdir(parents=True)
    for text in folder.glob("*.sql"):
        if text.name != "postgres.sql":
            with closing(sqlite3.connect(data / f"{text.stem}.db")) as database:
                database.executescript(text.read_text())


async def is_all_there(broker: BrokerProcess) -> None:
    """What the release left can be received."""
    from azure.servicebus import ServiceBusSubQueue

    from support.sdk import Bus, receive, receive_one

    bus = Bus("aio", broker)
    async with bus.receiver("orders") as orders:
        waiting = await receive_one(orders)
        assert (str(waiting), waiting.sequence_number) == ("waiting", 4)
        assert [str(each) for each in await orders.receive_deferred_messages(2)] == ["deferred"]
    async with bus.receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        dead = await receive_one(letters)
        assert (str(dead), dead.dead_letter_reason) == ("dead", "the reason")
    async with bus.receiver("talks", session_id="a") as talk:
        assert await talk.session.get_state() == b"half way"
        assert str(await receive_one(talk)) == "talk"
    for name in ("all", "some"):
        receiver = bus.client().get_subscription_receiver("news", name)
        async with receiver:
            assert [str(each) for each in await receive(receiver, 1)] == ["news"]
    await bus.closed()


# Making one


def main(source: Path, name: str) -> None:
    folder = RELEASED / name
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(source))
    (folder / "statements.json").write_text(json.dumps(sorted(set(_statements(source))), indent=1) + "\n")
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(_fill(source, Path(place), "--stores", "2"))
        for file in sorted((Path(place) / "data").glob("*.db")):
            with closing(sqlite3.connect(file)) as database:
                (folder / f"{file.stem}.sql").write_text("\n".join(database.iterdump()) + "\n")
    from support.postgres import PostgresServer

    server = PostgresServer().start()
    try:
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(_fill(source, Path(place), "--store", server.connection_url))
        dump = server.account.run("pg_dump", "--inserts", "--no-owner", "--no-privileges", server.connection_url)
        (folder / "postgres.sql").write_text(_without_remarks(dump))
    finally:
        server.remove()


def _without_remarks(dump: str) -> str:
    lines = [line for line in dump.splitlines() if line and not line.startswith("--")]
    return "\n".join(lines) + "\n"


def _statements(source: Path) -> Iterator[str]:
    """What the store's modules have as constants, and what stands in the catalog's methods."""
    for module in _MODULES:
        found = importlib.import_module(f"twinbus.store.postgres.{module}")
        assert str(source) in str(found.__file__), found.__file__
        for value in vars(found).values():
            for text in [value] if isinstance(value, str) else list(value.values()) if isinstance(value, dict) else []:
                if isinstance(text, str) and text.strip().startswith(_VERBS):
                    yield _numbered(text)
    tree = ast.parse((source / "twinbus/store/postgres/catalog.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip().startswith(_VERBS):
            yield _numbered(node.value.replace("{s}", f'"{CATALOG}"').replace("{{", "{").replace("}}", "}"))


def _numbered(text: str) -> str:
    """Parameters as the server knows them."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or f" {len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return " ".join(re.sub(r"%\((\w+)\)s|%s|%%", number, text).split())


async def _fill(source: Path, place: Path, *options: str) -> None:
    """The release serves, and a client leaves something of everything in it."""
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

    from support.broker import BrokerProcess

    broker = BrokerProcess(place, namespace=NAMESPACE, key=KEY, config=CONFIG, options=options, forked=False)
    os.environ["PYTHONPATH"] = str(source)
    told = subprocess.run(
        [sys.executable, "-c", "import twinbus; print(twinbus.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(source) in told.stdout
    with broker:
        async with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
            async with client.get_queue_sender("orders") as sender:
                for body in ("done", "deferred", "dead", "waiting"):
                    await sender.send_messages(ServiceBusMessage(body, message_id=body))
            async with client.get_queue_receiver("orders") as receiver:
                done, deferred, dead = await receiver.receive_messages(max_message_count=3, max_wait_time=5)
                await receiver.complete_message(done)
                await receiver.defer_message(deferred)
                await receiver.dead_letter_message(dead, reason="the reason")
            async with client.get_queue_sender("once") as sender:
                await sender.send_messages(ServiceBusMessage("first", message_id="same"))
            async with client.get_queue_sender("talks") as sender:
                await sender.send_messages(ServiceBusMessage("talk", session_id="a"))
            async with client.get_queue_receiver("talks", session_id="a") as receiver:
                await receiver.session.set_state("half way")
            async with client.get_topic_sender("news") as sender:
                await sender.send_messages(ServiceBusMessage("news", message_id="news"))
        assert broker.stop() == 0, broker.log


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2])
