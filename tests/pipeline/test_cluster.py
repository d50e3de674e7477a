"""Source and sink where driver and executors are different processes: a small cluster, and a real one.

The second takes six Java machines, so that it has a make target of its own: `make test-cluster`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from support import cluster_worker
from support.broker import BrokerProcess, free_ports, wait_for
from support.streams import StreamScene
from twinbus.pipeline.java import java_home

START_S = 500.0
MESSAGES = 500
pytestmark = pytest.mark.timeout(650)


def environment(broker: BrokerProcess, directory: Path) -> dict[str, str]:
    """What driver, master and workers are started with; executors have working directories of their own."""
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    return {
        **os.environ,
        "JAVA_HOME": str(java_home(os.environ, directory / "java")),
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        cluster_worker.VARIABLE: broker.connection_string(),
    }


def moved_on(master: str, tmp_path: Path, broker: BrokerProcess) -> str:
    """Move messages from one queue to another on that master; what the program printed."""
    scene = StreamScene(None, broker, tmp_path)  # type: ignore[arg-type]
    source, destination = scene.queue(), scene.queue()
    scene.send(source, [f"m{number}" for number in range(MESSAGES)])
    command = [sys.executable, cluster_worker.__file__, master, str(tmp_path), source, destination]
    done = subprocess.run(
        command, env=environment(broker, tmp_path), capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert broker.count(source) == 0
    assert broker.count(destination) == MESSAGES
    return done.stdout


def test_a_stream_runs_where_executors_are_processes_of_their_own(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        assert "executors 2" in moved_on("local-cluster[2,1,1024]", tmp_path, broker)


@contextmanager
def running(tmp_path: Path, words: list[str], env: dict[str, str]) -> Iterator[None]:
    """A process of the pip package's cluster; ended by its own id."""
    import pyspark

    script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    with (tmp_path / f"{words[0]}.log").open("ab") as log:
        process = subprocess.Popen([str(script), *words], env=env, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.poll() is None:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.skipif("TWINBUS_TEST_CLUSTER" not in os.environ, reason="six Java machines: make test-cluster")
def test_a_stream_runs_on_a_standalone_master_with_two_workers(tmp_path: Path) -> None:
    port, *pages = free_ports(4)
    deploy = "org.apache.spark.deploy"
    with BrokerProcess(tmp_path / "broker") as broker, ExitStack() as cluster:
        env = environment(broker, tmp_path)
        master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages[0])]
        cluster.enter_context(running(tmp_path, master, env))
        wait_for(lambda: answers(port), "the master", START_S)
        for page in pages[1:]:
            worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "700m"]
            worker += ["--webui-port", str(page), f"spark://127.0.0.1:{port}"]
            cluster.enter_context(running(tmp_path, worker, env))
        assert "executors 2" in moved_on(f"spark://127.0.0.1:{port}", tmp_path, broker)
