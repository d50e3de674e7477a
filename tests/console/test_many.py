"""Ten thousand entities: lists and pages stay quick, because only what is shown is counted for them."""

from __future__ import annotations

import http.cookiejar
import json
import os
import sqlite3
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import BrokerProcess
from twinbus.store.catalog import checksum_of
from twinbus.store.identity import known_stores

MANY = 9_990
# Of the broker's own processor time, whoever else is at work. A page takes a tenth of it; what would count everything
# takes longer than this.
PATIENCE_S = 1.0


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose catalog was filled by hand: making so many one by one takes minutes."""
    broker = BrokerProcess(tmp_path_factory.mktemp("many"), namespace="crowded")
    with broker:
        broker.create_queue("seed")
        broker.stop()
        _fill(broker.data / "catalog.db")
        broker.start(timeout_s=60)
        yield broker


def _fill(catalog: Path) -> None:
    connection = sqlite3.connect(catalog)
    kind, document = connection.execute("SELECT kind, document FROM entity WHERE name = 'seed'").fetchone()
    names = [f"queue-{at:05}" for at in range(MANY)]
    rows = [
        (1000 + at, name, kind, at % 4, document.replace('"seed"', json.dumps(name))) for at, name in enumerate(names)
    ]
    meta = dict(connection.execute("SELECT key, value FROM meta WHERE key LIKE 'store-_'"))
    # As if an operator had said that the stores are right, although they lack entities: these are made anew.
    changed = {key: known_stores({key: value})[int(key[-1])] for key, value in meta.items()}
    values = {key: known._replace(is_incomplete=True).to_text() for key, known in changed.items()}
    values["next-entity-id"] = "20000"
    with connection:
        connection.executemany(
            "INSERT INTO entity (id, name, kind, store, document, checksum) VALUES (?, ?, ?, ?, ?, ?)",
            [(*row, checksum_of(*row)) for row in rows],
        )
        connection.executemany(
            "UPDATE meta SET value = ?, checksum = ? WHERE key = ?",
            [(value, checksum_of(key, value), key) for key, value in values.items()],
        )
    connection.close()


def spent_s(broker: BrokerProcess) -> float:
    """What a broker has had of the processor, its threads included."""
    assert broker.process is not None
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_every_page_is_quick(crowded: BrokerProcess) -> None:
    place = f"http://127.0.0.1:{crowded.http_port}/$console/"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    form = urllib.parse.urlencode({"key": crowded.connection_string()}).encode()
    signing = urllib.request.Request(f"{place}sign-in", form, {"Origin": place.partition("/$")[0]})
    opener.open(signing).read()
    for page in ("entities", "entities?skip=5000", "entities?sort=active", "entities?filter=queue-099", "messages",
                 "system"):  # fmt: skip
        began_s = spent_s(crowded)
        text = opener.open(f"{place}{page}").read().decode()
        assert spent_s(crowded) - began_s < PATIENCE_S, page
        assert "Sign out" in text
    assert "queue-09900" in opener.open(f"{place}entities?filter=queue-099").read().decode()
