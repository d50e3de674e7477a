"""Where a namespace is administered that cannot be asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from twinbus.cli import connection
from twinbus.client.errors import CONNECTION_LOST, ClientError

KEY = "a2V5"
PLACE = f"Endpoint=sb://localhost:6001;SharedAccessKeyName=Root;SharedAccessKey={KEY};UseDevelopmentEmulator=true"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local pair, neither of whose namespaces answers."""
    for number, role in enumerate(("primary", "secondary")):
        settings = f'amqp_port = {6000 + number}\nhttp_port = {7000 + number}\nkey = "{KEY}"\n'
        (tmp_path / f"{role}.toml").write_text(settings)
        (tmp_path / f"{role}.connection").write_text(PLACE.replace("6001", str(6000 + number)))

    def connect(*_: Any, **__: Any) -> Any:
        raise ClientError(CONNECTION_LOST, "nobody is there")

    monkeypatch.setenv("TWINBUS_UP", str(tmp_path))
    monkeypatch.setattr(connection, "connect", connect)
    return tmp_path


async def test_one_of_the_local_pair_is_where_its_settings_say() -> None:
    assert await connection.namespace(PLACE).address() == "http://127.0.0.1:7001"


async def test_another_is_sought_at_the_usual_port() -> None:
    assert await connection.namespace(PLACE.replace("6001", "6005")).address() == "http://localhost:5300"
    assert await connection.namespace(PLACE.replace(KEY, "b3RoZXI=")).address() == "http://localhost:5300"


async def test_settings_that_cannot_be_read_are_no_obstacle(home: Path) -> None:
    (home / "primary.toml").write_text("amqp_port = ")
    assert await connection.namespace(PLACE).address() == "http://localhost:5300"


async def test_what_somebody_gave_is_taken() -> None:
    assert await connection.namespace(PLACE, http_port=8000).address() == "http://localhost:8000"
