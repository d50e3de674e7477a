"""Ten thousand entities: lists and pages stay quick, because only what is shown is counted for them."""

from __future__ import annotations

import http.cookiejar
import json
import sqlite3
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import BrokerProcess

MANY = 9_990
PATIENCE_S = 1.0  # Calm machines take a tenth of it; what would count everything takes longer than this.


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
    with connection:
        connection.executemany("INSERT INTO entity (id, name, kind, store, document) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("UPDATE meta SET value = '20000' WHERE key = 'next-entity-id'")
    connection.close()


def test_every_page_is_quick(crowded: BrokerProcess) -> None:
    place = f"http://127.0.0.1:{crowded.http_port}/$console/"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    form = urllib.parse.urlencode({"key": crowded.connection_string()}).encode()
    signing = urllib.request.Request(f"{place}sign-in", form, {"Origin": place.partition("/$")[0]})
    opener.open(signing).read()
    for page in ("entities", "entities?skip=5000", "entities?sort=active", "entities?filter=queue-099", "messages",
                 "system"):  # fmt: skip
        began = time.monotonic()
        text = opener.open(f"{place}{page}").read().decode()
        assert time.monotonic() - began < PATIENCE_S, page
        assert "Sign out" in text
    assert "queue-09900" in opener.open(f"{place}entities?filter=queue-099").read().decode()
