"""Which worker runs which file, and when: long files first, so that nobody waits for one at the end.

Spark keeps both processors busy by itself, and most other tests wait for somebody. So one worker runs what needs Spark,
one thing after another, while the others wait for their brokers. All tests that share a Spark session are one unit, and
every other file is a unit by itself. What a test is and what it may cost is not decided here.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# More than there are processors, because most tests wait; a worker more costs four seconds of collecting.
WORKERS = 5
SPARK = "pipeline"
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


def step_back() -> None:
    """The workers beside Spark's leave the processors to it: Spark gives up a Python worker that takes ten seconds."""
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        os.nice(5)


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
    """Hands out units in the order of the collection, where its base would hand out those with most tests first.

    The first worker begins with Spark's units, the others with all other ones; who has none left helps with the rest.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        is_first = node is self.nodes[0]
        mine = (waiting for waiting in self.workqueue if (folder_of(waiting) == SPARK) == is_first)
        self.workqueue.move_to_end(next(mine, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)
