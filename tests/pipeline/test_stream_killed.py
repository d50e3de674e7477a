"""A streaming query whose driver and workers are killed without notice: every message comes out, and in one batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import stream_worker
from support.broker import BrokerProcess, wait_for
from support.streams import StreamScene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 2_400
START_S = 150.0  # Java and workers on a busy machine.
pytestmark = pytest.mark.timeout(500)


class QueryProcess:
    """One run of the query, and all that it has started."""

    def __init__(self, directory: Path, queue: str) -> None:
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, stream_worker.__file__, str(directory), queue, "local[2,4]"]
        self._log = directory / "log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something while the process runs."""

        def happened() -> bool:
            assert self.process.poll() is None, f"the query ended before {what}:\n{self._log.read_text()[-4000:]}"
            return condition()

        wait_for(happened, what, START_S)

    def below(self) -> dict[int, int]:
        """All processes that it has started, directly or not, with their parents."""
        parents = dict(_parents())
        mine = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
            mine |= more
        return {pid: parents[pid] for pid in mine if pid in parents}

    def task_workers(self) -> list[int]:
        """The Python processes that do tasks: children of a daemon that serves no driver."""
        below = self.below()
        daemons = {pid for pid in below if _command(pid).rstrip().endswith("pyspark.daemon pyspark.worker")}
        return [pid for pid, parent in below.items() if parent in daemons]

    def kill(self) -> None:
        """Everything at once, as a machine that loses power."""
        for pid in [self.process.pid, *self.below()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def test_killed_drivers_and_workers_lose_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """What the killed ones left is brought to its end on the session that is there."""
    (tmp_path / "batches").mkdir()
    ids = [f"m{number}" for number in range(MESSAGES)]
    done = lambda: len(list((tmp_path / "batches").glob("*.json")))  # noqa: E731
    with BrokerProcess(tmp_path / "broker") as broker:
        scene = StreamScene(None, broker, tmp_path)  # type: ignore[arg-type]
        queue = scene.queue(MaxDeliveryCount=10)
        scene.send(queue, ids)
        (tmp_path / stream_worker.CONNECTION_STRING).write_text(broker.connection_string())
        first = QueryProcess(tmp_path, queue)
        try:
            first.until(lambda: done() >= 2, "two batches")
        finally:
            first.kill()
        second = QueryProcess(tmp_path, queue)
        try:
            for _ in range(2):
                wanted = done() + 2
                second.until(lambda least=wanted: done() >= least and bool(second.task_workers()), "tasks in work")  # type: ignore[misc]
                for pid in second.task_workers():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            wanted = done() + 1
            second.until(lambda: done() >= wanted, "a batch after its workers were killed")
        finally:
            second.kill()
        stream_worker.run(spark, tmp_path, queue, to_the_end=True)
        written = [json.loads(path.read_text()) for path in (tmp_path / "batches").glob("*.json")]
        assert Counter(each for batch in written for each in batch) == Counter(ids)
        assert broker.count(queue) == 0
        assert broker.count(queue, "DeadLetterMessageCount") == 0
