"""`twinbus drill` for killed syphons, replication, relays, tokens and days, as somebody runs it at a prompt."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SEED = 7
AT_ONCE = 3
# Rates are low and times short, since each drill is three processes.
DRILLS: dict[str, tuple[str, ...]] = {
    "syphon-crash": ("--for", "3", "--rate", "15"),
    "active": ("--for", "3", "--rate", "15"),
    "passive": ("--for", "3", "--rate", "15"),
    "relay": ("--for", "3", "--rate", "40"),
    "token-service": ("--for", "3", "--rate", "15"),
    "outage": ("--for", "3d", "--rate", "15", "--no-spark"),
}
WAIT_S = 250.0
pytestmark = pytest.mark.timeout(2 * WAIT_S)


class Ended(NamedTuple):
    """A drill that has ended."""

    code: int
    found: dict[str, Any]
    told: str

    def remark(self, words: str) -> str:
        """The one that has these words."""
        (remark,) = [each for each in self.found["remarks"] if words in each]
        return str(remark)


@pytest.fixture(scope="module")
def drills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ended]]:
    """Some at once, since they mostly wait."""
    directory = tmp_path_factory.mktemp("drills")

    def play(name: str) -> Ended:
        command = [sys.executable, "-m", "twinbus", "drill", name, "--json", "--seed", str(SEED), *DRILLS[name]]
        command += ["--report", str(directory / f"{name}.html")]
        run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
        assert run.stdout, run.stderr
        return Ended(run.returncode, json.loads(run.stdout), f"{run.stdout}\n{run.stderr}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        playing = {name: pool.submit(play, name) for name in DRILLS}
        yield lambda name: playing[name].result()


def check(drill: Ended) -> None:
    """What every drill claims."""
    assert drill.code == 0, drill.told
    found = drill.found
    assert (found["lost"], found["duplicated"], found["broken"], found["holds"]) == ([], [], [], True)
    assert found["acknowledged"] > 0
    assert Path(found["report"]).read_text().startswith("<!doctype html>")


def test_a_syphon_killed_in_the_midst_loses_nothing_and_doubles_nothing(drills: Callable[[str], Ended]) -> None:
    drill = drills("syphon-crash")

    check(drill)
    assert drill.found["diverted"] == drill.found["recovered"] >= 800
    assert "killed 4 times in the midst" in drill.remark("killed")


def test_active_replication_diverts_nothing_and_suppresses_second_copies(drills: Callable[[str], Ended]) -> None:
    drill = drills("active")

    check(drill)
    assert drill.found["diverted"] == 0
    assert drill.found["suppressed"] > 0


def test_passive_replication_sends_once_and_delivers_what_was_shut_in(drills: Callable[[str], Ended]) -> None:
    drill = drills("passive")

    check(drill)
    assert drill.remark("without a fault").endswith(" 0 at the backup")


def test_calls_through_two_relays_are_answered_while_one_is_dead(drills: Callable[[str], Ended]) -> None:
    drill = drills("relay")

    check(drill)
    assert drill.found["received"] >= drill.found["acknowledged"] > 0


def test_who_signs_with_a_key_needs_no_token_service(drills: Callable[[str], Ended]) -> None:
    drill = drills("token-service")

    check(drill)
    assert drill.remark("signs for itself").endswith(" 0 failed")


def test_an_outage_of_three_days_expires_what_waited_and_nothing_else(drills: Callable[[str], Ended]) -> None:
    drill = drills("outage")

    check(drill)
    assert drill.found["diverted"] == drill.found["recovered"] > 0
    assert drill.remark("moved clocks").startswith("3 days, 0:00:00 passed")
