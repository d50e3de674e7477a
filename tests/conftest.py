"""What all tests share: the processes that they start, one PostgreSQL server, and the plugins that watch over them.

What a folder may cost is in `support.budgets`, which worker runs what in `support.scheduling`; a test that hangs is
left to pytest-timeout.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from hypothesis import settings

import support.assertions  # noqa: F401 - Before the first module of Twinbus is imported.
from support import java_archive, parsing
from support.budgets import Budgets
from support.forgotten_sockets import close_when_forgotten
from support.home import use_own_home
from support.optional import skip_on_import
from support.postgres import PostgresServer
from support.scheduling import LongOnesFirst, step_back

# A slow example on a busy machine is no failure: the budgets above are what counts.
settings.register_profile("twinbus", deadline=None)
settings.load_profile("twinbus")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests that share it; each makes a schema of its own."""
    server = PostgresServer().start()
    yield server
    server.remove()


use_own_home()
skip_on_import()
parsing.keep_whole()

# Hundreds of brokers and commands are started below; without bytecode on disk each of them would compile its source.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Arrow and Spark bring numpy, whose threads spin for a while in each process that imports it; nobody here calculates.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Whoever starts the tests in the background may have the interrupt ignored, which every process below would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


END = "-----END CERTIFICATE-----\n"


def _trust_one() -> None:
    """No test meets one of the world's authorities, so the first of them is enough.

    The official client reads the file of all of them for every connection, over plain text too, and that is most of
    what connecting costs.
    """
    everybody = Path(certifi.where()).read_text()
    one = tempfile.NamedTemporaryFile("w", prefix="twinbus-authority-", suffix=".pem")  # noqa: SIM115
    one.write(everybody.partition(END)[0] + END)
    one.flush()
    certifi.where = lambda: one.name


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "alone":  # What measures time, measures Spark as it is.
        java_archive.use()
        _trust_one()
    close_when_forgotten()
    config.pluginmanager.register(Budgets(), "twinbus-budgets")
    step_back()


def pytest_collection_finish() -> None:
    """Thousands of tests are there until the end; nobody needs to look through them for what can be thrown away."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """What is still frozen at the end of the process counts as leaked, and DuckDB lists it."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongOnesFirst | None:
    return LongOnesFirst(config, log) if config.getvalue("dist") == "loadfile" else None
