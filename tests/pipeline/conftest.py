"""One Spark session for all tests of a process that need one: it takes ten seconds to start. And pairs of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.pair_scene import brokers, scene
from support.quick_client import quick_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["brokers", "quick_client", "scene", "spark"]


# Compiling a plan takes longer than running it over the few rows of a test, and so does a task for each empty share.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session as a laptop has it, for a few rows; what measures time measures it as it is."""
    from twinbus.pipeline.session import open_session

    settings = {} if request.config.option.markexpr == "alone" else SMALL
    session = open_session("twinbus tests", settings=settings, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
