"""Which worker runs which file, and when: long files first, so that nobody waits for one at the end.

All tests that share a Spark session run on one worker, where it is started once; every other file is a unit by itself.
What a test is and what it may cost is not decided here.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# The folders by the length of their files; what is not named comes last, with the unit tests.
ORDER = ("pipeline", "faults", "pair", "replication", "outbox", "compat", "console", "contract", "fuzz")
WITHOUT_THE_SESSION = {
    "test_cluster.py",
    "test_custody.py",
    "test_drill.py",
    "test_example.py",
    "test_intake.py",
    "test_spark_crash.py",
    "test_syphon_killed.py",
}


def folder_of(nodeid: str) -> str:
    """The folder below `tests` that a test belongs to, wherever pytest was started."""
    parts = PurePath(nodeid.split("::", 1)[0]).parts
    return parts[1] if parts[0] == "tests" else parts[0]


def unit(nodeid: str) -> str:
    """What is run by one worker in one go: a file, or all of them that need the session."""
    file = nodeid.split("::", 1)[0]
    if folder_of(nodeid) == "pipeline" and PurePath(file).name not in WITHOUT_THE_SESSION:
        return "pipeline"
    return file


def _rank(nodeid: str) -> tuple[int, bool]:
    found = folder_of(nodeid)
    place = ORDER.index(found) if found in ORDER else len(ORDER)
    return place, unit(nodeid) != found


def long_ones_first(items: list[pytest.Item]) -> None:
    """Put tests into this order; within a file, and among the files of a folder, they stay as they are."""
    items.sort(key=lambda item: _rank(item.nodeid))


class LongOnesFirst(LoadFileScheduling):
    """Hands out units in the order of the collection, where its base would hand out those with most tests first."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
