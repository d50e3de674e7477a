"""Files that a released version made are opened, brought up to date and served; a second start leaves them alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.broker import BrokerProcess
from support.released import KEY, NAMESPACE, directories, is_all_there, restore_files
from twinbus.store import catalog, schema


@pytest.mark.parametrize("folder", directories(), ids=lambda folder: folder.name)
async def test_what_a_release_left_in_files_is_served(folder: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, namespace=NAMESPACE, key=KEY, options=("--no-console",))
    restore_files(folder, broker.data)
    broker.start()
    assert broker.stop() == 0
    assert versions(broker.data) == {
        "catalog.db": str(catalog.VERSION),
        "store-0.db": str(schema.VERSION),
        "store-1.db": str(schema.VERSION),
    }
    with broker:
        await is_all_there(broker)
        assert broker.stop() == 0
    assert "Traceback" not in broker.log
    assert "set aside" not in broker.log


def versions(data: Path) -> dict[str, str]:
    found = {}
    for path in sorted(data.glob("*.db")):
        with closing(sqlite3.connect(path)) as database:
            (found[path.name],) = database.execute("SELECT value FROM meta WHERE key LIKE '%version'").fetchone()
    return found
