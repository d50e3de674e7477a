"""One Spark session for all tests of a process that need one: it takes ten seconds to start. And pairs of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.closing import quick_closing
from support.pair_scene import brokers, pytest_collection_modifyitems, scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["brokers", "pytest_collection_modifyitems", "quick_closing", "scene", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a laptop has it."""
    from twinbus.pipeline.session import open_session

    session = open_session("twinbus tests", scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
