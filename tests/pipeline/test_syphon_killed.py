"""`twinbus pipeline syphon` as a process of its own that is killed again and again, judged by what arrives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.filled_backlog import FilledBacklog
from support.pair_scene import Scene, until
from twinbus.cli.running import INTERRUPTED
from twinbus.pair.syphon.standalone import StandaloneSyphon

MESSAGES = 6_000
START_S = 120.0  # Java and workers on a busy machine.
pytestmark = pytest.mark.timeout(600)


class Running:
    """One run of the command."""

    def __init__(self, backlog: FilledBacklog, directory: Path, *options: str) -> None:
        number = len(list(directory.glob("*.out")))
        self.output = directory / f"{number}.out"
        self.errors = directory / f"{number}.err"
        command = [sys.executable, "-m", "twinbus", "pipeline", "syphon", "--json", *options]
        # Executors of a cluster have working directories of their own.
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                env={**backlog.environment(), "PYTHONPATH": path},
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def children(self, words: str) -> list[int]:
        """Processes below this one whose command line has these words."""
        parents = dict(_parents())
        mine = [pid for pid in parents if self.process.pid in _ancestors(pid, parents)]
        return [pid for pid in mine if words in _command_line(pid)]

    def workers(self) -> list[int]:
        """The Python processes that do the tasks, without those that only start them."""
        parents = dict(_parents())
        daemons = self.children("pyspark.daemon")
        return [pid for pid in daemons if parents.get(pid) in daemons]

    def kill(self) -> None:
        """The driver and its Java at once, as a machine that loses power."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    async def end(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.process.wait, START_S + 60)

    def lines(self) -> list[dict[str, Any]]:
        """What it has printed so far."""
        whole = self.output.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry.name), int(fields[1])


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def running(backlog: FilledBacklog, directory: Path, *options: str) -> Iterator[Running]:
    run = Running(backlog, directory, *options)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.kill()


async def filled(scene: Scene, **settings: bool) -> tuple[FilledBacklog, list[str]]:
    backlog = FilledBacklog(scene, queues=3)
    destinations = [scene.queue(**settings) for _ in range(3)]
    await backlog.fill([f"m{number}" for number in range(MESSAGES)], destinations)
    return backlog, destinations


async def below(backlog: FilledBacklog, count: int, run: Running) -> None:
    """Wait until so few are left, in the midst of the moving."""
    async with asyncio.timeout(START_S):
        while await asyncio.to_thread(backlog.left) >= count:
            assert run.process.poll() is None, run.errors.read_text()[-3000:]
            await asyncio.sleep(0.2)


async def test_workers_and_drivers_killed_twice_lose_nothing_and_double_nothing(scene: Scene, tmp_path: Path) -> None:
    """In one go, because every run starts a Java: at last Ctrl-C ends one, and what that left is brought by a pump."""
    backlog, destinations = await filled(scene, RequiresDuplicateDetection=True)
    # Slowly enough that what the tasks of a killed driver still move leaves something for the next run.
    with running(backlog, tmp_path, "--drain", "--rate-limit", "400") as run:
        for left in (5_500, 4_500):
            await below(backlog, left, run)
            workers = run.workers()
            assert workers
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
        await below(backlog, 3_750, run)
        run.kill()
    with running(backlog, tmp_path, "--watch", "--rate-limit", "150") as run:
        await below(backlog, 2_500, run)
        run.kill()
    with running(backlog, tmp_path, "--drain", "--rate-limit", "50") as run:
        await until(lambda: any(line["moved"] for line in run.lines()), "the first messages", START_S)
        run.process.send_signal(signal.SIGINT)
        assert await run.end() == INTERRUPTED, run.errors.read_text()[-3000:]
    first, last = run.lines()[0], run.lines()[-1]
    assert last["ended"]
    assert last["left"] == backlog.left() > 0
    assert last["moved"] == first["moved"] + first["left"] - last["left"]

    async with StandaloneSyphon(backlog.description()) as pump:
        await pump.pair()
        await pump.drain()  # Nothing is locked, so that it gets all of it.
    assert backlog.left() == 0
    await backlog.arrived(*destinations)
    assert scene.verdict().holds


@pytest.mark.skipif("TWINBUS_TEST_CLUSTER" not in os.environ, reason="three Java machines: make test-cluster")
async def test_on_a_cluster_a_lost_executor_loses_nothing_and_doubles_nothing(scene: Scene, tmp_path: Path) -> None:
    backlog, destinations = await filled(scene, RequiresDuplicateDetection=True)
    options = ("--drain", "--rate-limit", "800", "--master", "local-cluster[2,1,1024]")
    with running(backlog, tmp_path, *options) as run:
        await below(backlog, 4_500, run)
        executors = run.children("CoarseGrainedExecutorBackend")
        assert len(executors) >= 2
        os.kill(executors[0], signal.SIGKILL)
        assert await run.end() == 0, run.errors.read_text()[-3000:]
    assert run.lines()[-1]["left"] == 0
    await backlog.arrived(*destinations)
    assert scene.verdict().holds
