"""The profiles of a session, and what its start leaves of the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from twinbus.pipeline.session import LAPTOP_MASTER, _environment, is_local, profile


def test_a_laptop_is_quiet_and_keeps_to_itself(tmp_path: Path) -> None:
    found = profile(LAPTOP_MASTER, tmp_path)
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert "rootLogger.level = error" in (tmp_path / "log4j2.properties").read_text()


def test_a_task_on_a_laptop_is_tried_again() -> None:
    assert LAPTOP_MASTER == "local[2,4]"


def test_a_cluster_keeps_its_own_settings(tmp_path: Path) -> None:
    found = profile("spark://host:7077", tmp_path)
    assert "spark.driver.host" not in found
    assert found["spark.speculation"] == "false"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("master", "local"),
    [("local[2,4]", True), ("local-cluster[2,1,1024]", True), ("spark://h:1", False), ("yarn", False)],
)
def test_what_runs_on_this_machine_is_known_by_its_master(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_the_environment_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "before")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with _environment({"JAVA_HOME": "within", "PYSPARK_PYTHON": "x"}):
        assert os.environ["JAVA_HOME"] == "within"
    assert os.environ["JAVA_HOME"] == "before"
    assert "PYSPARK_PYTHON" not in os.environ
