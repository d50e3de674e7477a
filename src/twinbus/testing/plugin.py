"""Fixtures for pytest: a namespace, or a pair, for each test or for the whole session.

Registered as a plug-in, so that an application's tests need no import. Processes are kept over the session and made as
good as new for each test, which takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # Every run of pytest loads this module, with or without a test that needs a broker.
    from twinbus.testing.local import LocalNamespace, Pair


@pytest.fixture(scope="session")
def twinbus_config() -> str | Path | None:
    """Override this with the path of a TOML or Config.json, whose entities each namespace then has from the start."""
    return None


@pytest.fixture(scope="session")
def twinbus_session_namespace(twinbus_config: str | Path | None) -> Iterator[LocalNamespace]:
    """One namespace for all tests, which see what the others leave in it."""
    from twinbus.testing.local import namespace

    with namespace("session", config=twinbus_config) as made:
        yield made


class _Processes:
    """What was started for single tests, by the configuration file that it was started with."""

    def __init__(self) -> None:
        self._namespaces: dict[object, LocalNamespace] = {}
        self._pairs: dict[object, Pair] = {}

    def namespace(self, config: str | Path | None) -> LocalNamespace:
        from twinbus.testing.local import namespace

        if config not in self._namespaces:
            self._namespaces[config] = namespace("test", config=config)
        return self._namespaces[config]

    def pair(self, config: str | Path | None) -> Pair:
        from twinbus.testing.local import new_pair

        if config not in self._pairs:
            self._pairs[config] = new_pair(config=config)
        return self._pairs[config]

    def close(self) -> None:
        for one in (*self._namespaces.values(), *(half for pair in self._pairs.values() for half in pair)):
            one.close()


@pytest.fixture(scope="session")
def _twinbus_processes() -> Iterator[_Processes]:
    processes = _Processes()
    yield processes
    processes.close()


@pytest.fixture
def twinbus_namespace(_twinbus_processes: _Processes, twinbus_config: str | Path | None) -> LocalNamespace:
    """A namespace that is as good as new for each test."""
    from twinbus.testing.local import renew_all

    made = _twinbus_processes.namespace(twinbus_config)
    renew_all([made])
    return made


@pytest.fixture
def twinbus_pair(_twinbus_processes: _Processes, twinbus_config: str | Path | None) -> Pair:
    """Two namespaces in different datacenters, as good as new for each test."""
    from twinbus.testing.local import renew_all

    made = _twinbus_processes.pair(twinbus_config)
    renew_all(made)
    return made
