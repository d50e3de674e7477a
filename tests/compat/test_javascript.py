"""The official JavaScript client, unmodified, against a broker process: one test here for each test in `js`.

A file is run once, by node's own test runner, and its results are told apart by name; what is tested stands there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support import optional
from support.broker import ROOT_POLICY, BrokerProcess
from twinbus.wire.sas import make_token

JS = Path(__file__).parent / "js"
FILES = {
    "sending": "send-javascript",
    "receiving": "receive-javascript",
    "settling": "settle-javascript",
    "looking": "peek-and-schedule-javascript",
    "sessions": "sessions-javascript",
    "refusals": "refusals-javascript",
    "topics": "topics-javascript",
    "partitions": "partitions-javascript",
}
RUN_S = 55  # For one file; all its tests run at the same time.
AT_A_TIME = 3  # Files.


def names(file: str) -> list[str]:
    return re.findall(r'^ +test\("(.+?)",', (JS / f"{file}.test.mjs").read_text(), re.MULTILINE)


CASES = [
    pytest.param(file, name, id=f"{file}: {name}", marks=pytest.mark.feature(feature))
    for file, feature in FILES.items()
    for name in names(file)
]


class Run(NamedTuple):
    """What came of one file: an entry for each of its tests, and whether node then ended by itself."""

    results: dict[str, dict[str, Any]]
    ended: bool


class Runs:
    """Runs all files, a few at the same time since most of them wait, and waits for the one that is asked for."""

    def __init__(self, broker: BrokerProcess, pool: ThreadPoolExecutor, files: Iterable[str]) -> None:
        self._broker = broker
        self._runs = {file: pool.submit(self._run, file) for file in files}

    def of(self, file: str) -> Run:
        return self._runs[file].result()

    def _run(self, file: str) -> Run:
        broker, expires = self._broker, int(time.time()) + 3600
        http = f"http://{broker.host}:{broker.http_port}"
        environment = {
            **os.environ,
            "TWINBUS_CONNECTION_STRING": broker.connection_string(),
            "TWINBUS_HTTP": http,
            "TWINBUS_HTTP_TOKEN": make_token(f"{http}/", ROOT_POLICY, broker.key, expires),
        }
        command = ["node", "--test", "--test-reporter=./report.mjs", f"{file}.test.mjs"]
        output, errors, ended = run_in_its_own_group(command, environment)
        results = {each["name"]: each for each in map(json.loads, output.splitlines())}
        # A test that did not run has not passed.
        for name in names(file):
            results.setdefault(name, {"passed": False, "error": f"did not run:\n{output}\n{errors}"})
        return Run(results, ended)


def run_in_its_own_group(command: list[str], environment: dict[str, str]) -> tuple[str, str, bool]:
    """Output, errors, and whether the command ended by itself.

    Node may sit behind a wrapper and starts a process per file: all of them end here, whatever happens.
    """
    process = subprocess.Popen(
        command,
        cwd=JS,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        return *process.communicate(timeout=RUN_S), True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return *process.communicate(), False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(scope="module")
def runs(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """The files whose tests were asked for, on their way."""
    optional.needs("node")
    wanted = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    files = dict.fromkeys(spec.params["file"] for spec in wanted if spec is not None)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield Runs(broker, pool, files)


@pytest.mark.parametrize(("file", "name"), CASES)
def test_javascript(runs: Runs, file: str, name: str) -> None:
    result = runs.of(file).results[name]
    assert result["passed"], result["error"]


@pytest.mark.parametrize("file", FILES)
def test_node_ends_when_its_tests_do(runs: Runs, file: str) -> None:
    """A client that still waits for something of the broker would keep it alive."""
    assert runs.of(file).ended


def test_every_file_is_run_and_no_name_is_used_twice() -> None:
    present = {path.name.removesuffix(".test.mjs") for path in JS.glob("*.test.mjs")}
    assert present == {*FILES, "admin"}  # The administration client has a driver of its own.
    for file in FILES:
        assert len(names(file)) == len(set(names(file))) > 0
        text = (JS / f"{file}.test.mjs").read_text()
        assert len(re.findall(r"\btest\(", text)) == len(names(file))
