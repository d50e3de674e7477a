"""docs/outbox.md is true: its programs run as they stand there, and survive what the page says they survive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import wait_for
from support.order import SessionReader
from support.pair_scene import Scene, until
from twinbus.pair.order.table import Place
from twinbus.pair.route.health import Route
from twinbus.pair.route.router import Answer, Situation, Step, next_step

PAGE = (Path(__file__).parents[2] / "docs" / "outbox.md").read_text()
ALONE, PAIRED, TRANSACTION = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

SOON_S = 90.0
pytestmark = pytest.mark.timeout(3 * SOON_S)


class Program:
    """A program of the page, in a folder of its own."""

    def __init__(self, text: str, folder: Path, **environment: str) -> None:
        self._text = text
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")}
        self._environment = kept | environment
        self._out = folder / "out"
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *args: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def start(self, orders: int) -> subprocess.Popen[bytes]:
        with self._out.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", self._text],
                cwd=self._folder,
                env=self._environment | {"ORDERS": str(orders)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def told(self, word: str) -> list[str]:
        lines = self._out.read_text().splitlines() if self._out.exists() else []
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


@pytest.fixture
def environment(scene: Scene) -> dict[str, str]:
    return {
        "TWINBUS_PRIMARY": scene.primary.connection_string(),
        "TWINBUS_SECONDARY": scene.secondary.connection_string(),
        "TWINBUS_PRIMARY_NAME": scene.name,
        "TWINBUS_PAIR_FAILOVER_INTERVAL": "0",
        "TWINBUS_PAIR_PING_PRIMARY_INTERVAL": "1",
        "TWINBUS_PAIR_BACKLOG_QUEUE_COUNT": "2",
        "TWINBUS_PAIR_ENABLE_SYPHON": "true",
        "TWINBUS_PAIR_ORDERED": "true",
        "TWINBUS_PAIR_ATTEMPTS": "1",
    }


async def test_the_first_program_survives_its_broker_and_its_own_death(
    scene: Scene, environment: dict[str, str], tmp_path: Path
) -> None:
    queue = "orders"
    scene.primary.create_queue(queue, RequiresSession=True, RequiresDuplicateDetection=True)
    with Program(ALONE, tmp_path, **environment) as program:
        process = program.start(600)
        wait_for(lambda: len(program.told("safe")) >= 5, "the first orders", SOON_S)
        scene.primary.kill()
        before = len(program.told("safe"))
        wait_for(lambda: len(program.told("safe")) >= before + 20, "orders without a broker", SOON_S)
        process.kill()
        process.wait()
        scene.primary.start()

        assert program.start(0).wait(SOON_S) == 0

        expected = program.told("safe")
        seen = await _orders(scene, queue, len(expected))
        assert set(expected) <= {message_id for ids in seen.values() for message_id in ids}
        for ids in seen.values():
            numbers = [int(message_id.rsplit("-", 1)[1]) for message_id in ids]
            assert numbers == sorted(set(numbers))


async def test_the_paired_program_survives_both_namespaces_and_its_own_death(
    scene: Scene, environment: dict[str, str], tmp_path: Path
) -> None:
    queue = "carts"
    scene.primary.create_queue(queue, RequiresSession=True, RequiresDuplicateDetection=True)
    with Program(PAIRED, tmp_path, **environment) as program:
        process = program.start(600)
        wait_for(lambda: len(program.told("sent")) >= 5, "the first lines", SOON_S)
        scene.primary.kill()
        before = len(program.told("sent"))
        wait_for(lambda: len(program.told("sent")) >= before + 5, "diverted lines", SOON_S)
        scene.secondary.kill()
        wait_for(lambda: len(program.told("kept here")) >= 10, "lines that are kept", SOON_S)
        process.kill()
        process.wait()
        scene.primary.start()
        scene.secondary.start()

        again = program.start(0)
        expected = program.told("sent") + program.told("kept here")
        async with scene.client(enable_syphon=True, poll=2):  # The program's own ends with it.
            seen = await _orders(scene, queue, len(expected))
        assert again.wait(SOON_S) == 0
        assert set(expected) <= {message_id for ids in seen.values() for message_id in ids}
        for ids in seen.values():
            numbers = [int(message_id.rsplit("-", 1)[1]) for message_id in ids]
            assert numbers == sorted(set(numbers))


async def _orders(scene: Scene, queue: str, count: int) -> dict[str, list[str]]:
    """What each session of a queue received, in order."""
    async with SessionReader(scene, queue, by_session=True) as reader:
        await until(lambda: reader.count >= count, "arrival", SOON_S)
        return {name: list(ids) for name, ids in reader.ids.items()}


def test_the_program_with_a_transaction_prints_what_the_page_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRANSACTION], cwd=tmp_path, capture_output=True, text=True, timeout=SOON_S
    )

    assert done.stderr == ""
    assert f"It prints `{done.stdout.strip()}`" in PAGE


def test_the_table_of_steps_is_the_one_that_is_obeyed() -> None:
    for place in Place:
        situations = [Situation(route, must_look=place is not Place.HOME) for route in Route]
        steps = " | ".join(next_step(Step.BEGIN, Answer.READY, situation).value for situation in situations)
        assert f"| {place.value} | {steps} |" in PAGE
