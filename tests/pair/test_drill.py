"""`twinbus drill` as a newcomer runs it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from twinbus.cli import app
from twinbus.client import ConnectionString
from twinbus.client.connection_string import at_endpoint
from twinbus.drill.standing import breach_in, prefix_of
from twinbus.faults.proxy import FaultProxy, Mode
from twinbus.model.entity import QueueDescription
from twinbus.pair.aio import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.ledger.decisions import State
from twinbus.pair.ledger.ledger import records
from twinbus.pair.survey import survey
from twinbus.testing import pair

DRILL = [sys.executable, "-m", "twinbus", "drill"]
WAIT_S = 150.0
# The first test waits for all drills, and these for their brokers.
pytestmark = pytest.mark.timeout(2 * WAIT_S)
VERDICT = (
    r"verdict: attempted (\d+), acknowledged (\d+), received (\d+), lost 0, duplicated 0, diverted (\d+),"
    r" recovered (\d+); divert ([\d.]+) s, heal ([\d.]+) s, drain ([\d.]+) s\n"
)


@dataclass(frozen=True)
class Run:
    """A drill that has ended."""

    directory: Path
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The description of a pair that is up."""
    directory = tmp_path_factory.mktemp("standing")
    with pair() as (primary, secondary):
        text = "".join(
            f'[{role}]\nconnection_string = "{namespace.connection_string}"\n'
            for role, namespace in (("primary", primary), ("secondary", secondary))
        )
        (directory / "pair.toml").write_text(f"{text}[options]\nbacklog_queue_count = 2\n")
        yield directory


@pytest.fixture(scope="module")
def runs(standing: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Drills mostly wait, so these wait together."""
    own = tmp_path_factory.mktemp("own")
    commands = {
        "own": (own, ["--no-spark", "--for", "3", "--rate", "60", "--lost-answers", "4"]),
        "standing": (standing, ["--pair", "pair.toml", "--for", "3", "--record", "d1/record.json"]),
        "dry": (standing, ["--pair", "pair.toml", "--dry-run"]),
    }
    # Beside another drill there would be something in the way.
    dry = subprocess.run([*DRILL, *commands["dry"][1]], cwd=standing, capture_output=True, text=True, timeout=WAIT_S)
    found = {"dry": Run(standing, dry.returncode, dry.stdout, dry.stderr)}
    started = {
        name: subprocess.Popen(
            [*DRILL, *options, "--keep", "drill", "--report", "report.html"],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, (directory, options) in commands.items()
        if name != "dry"
    }
    for name, process in started.items():
        stdout, stderr = process.communicate(timeout=WAIT_S)
        found[name] = Run(commands[name][0], process.returncode, stdout, stderr)
    return found


def test_the_drill_ends_with_a_verdict_that_holds_by_the_ledger_alone(runs: dict[str, Run]) -> None:
    """Answers are lost before the outage, and nothing but the ledger is there to tell the second copies."""
    run = runs["own"]

    assert run.returncode == 0, run.stdout + run.stderr
    numbers = re.fullmatch(rf"report: report.html\nsuppressed by the ledger (\d+)\n{VERDICT}", run.stdout)
    assert numbers is not None, run.stdout
    suppressed, attempted, acknowledged, received, diverted, recovered = map(int, numbers.groups()[:6])
    assert attempted >= acknowledged >= diverted == recovered > 0
    assert received >= acknowledged
    drill = run.directory / "drill"
    assert "DuplicateDetection" not in (drill / "primary.toml").read_text()
    known = list(records(str(drill / "ledger.db")))
    assert sum(row.suppressed for row in known) == suppressed > 0
    assert {row.state for row in known} == {State.DONE}
    assert "the primary is gone" in run.stderr
    assert "failed over -> healthy" in run.stderr
    entries = [json.loads(line) for line in (drill / "sent.jsonl").read_text().splitlines()]
    assert sum("acknowledged" in entry for entry in entries) == acknowledged
    assert "It holds." in (run.directory / "report.html").read_text()


def test_a_pair_that_is_up_is_drilled_on_entities_of_the_drills_own(runs: dict[str, Run]) -> None:
    run = runs["standing"]

    assert run.returncode == 0, run.stdout + run.stderr
    numbers = re.search(VERDICT, run.stdout)
    assert numbers is not None, run.stdout
    assert int(numbers[4]) == int(numbers[5]) > 0
    record = json.loads((run.directory / "d1" / "record.json").read_text())
    assert (record["state"], record["scenario"], record["counts"]["lost"]) == ("held", "outage", 0)
    assert record["verdict"] == numbers[0].strip()
    assert any(moment["what"] == "the drill's entities are removed" for moment in record["moments"])
    target = PairDescription.read(run.directory / "pair.toml").primary.connection_string
    assert asyncio.run(_entities(target)) == []


def test_a_dry_run_says_what_it_would_do_and_does_nothing(runs: dict[str, Run]) -> None:
    run = runs["dry"]

    assert run.returncode == 0, run.stdout + run.stderr
    *steps, ready = run.stdout.splitlines()
    assert ready == "ready"
    assert all(step.startswith("would ") for step in steps)
    assert "twinbus-drill-" in steps[0]


async def _entities(connection_string: str) -> list[str]:
    namespace = NamespaceDescription(connection_string).namespace("primary", 10)
    try:
        async with await namespace.administer() as administration:
            queues = [entry.description.name async for entry in administration.queues()]
            return queues + [entry.description.name async for entry in administration.topics()]
    finally:
        await namespace.close()


async def test_a_client_in_this_very_process_that_diverts_ends_a_drill(standing: Path) -> None:
    """As where every client is process 1 of its container: what it sends to says that it is none of the drill's."""
    described = PairDescription.read(standing / "pair.toml")
    direct = described.primary.connection_string
    target = ConnectionString.parse(direct)
    await _create(direct, "orders")
    options = SendAvailabilityOptions(
        backlog_queue_count=1, failover_interval=0, ping_primary_interval=1, enable_syphon=True
    )
    async with FaultProxy(target.port, target.host) as proxy:
        strings = at_endpoint(direct, "127.0.0.1", proxy.port), described.secondary.connection_string
        async with PairedServiceBusClient.from_connection_strings(*strings, options) as client:
            sender = client.get_queue_sender("orders")
            await sender.send_messages(ServiceBusMessage(b"x"))
            proxy.set(Mode.REFUSE)
            await sender.send_messages(ServiceBusMessage(b"x"))
            found = await survey(described)
            while not any(record["state"]["ill"] for record in found.clients or []):
                await asyncio.sleep(0.05)
                found = await survey(described)
            assert "other clients divert" in (breach_in(found, prefix_of("ab12")) or "")
            proxy.set(Mode.PASS)
            while any(queue.messages for queue in (await survey(described)).queues or []):
                await asyncio.sleep(0.05)


async def _create(connection_string: str, *queues: str) -> None:
    namespace = NamespaceDescription(connection_string).namespace("primary", 10)
    async with await namespace.administer() as administration:
        for queue in queues:
            await administration.create(QueueDescription(name=queue))
    await namespace.close()


def test_an_unknown_drill_is_refused() -> None:
    run = CliRunner().invoke(app, ["drill", "earthquake"])

    assert run.exit_code == 2
    assert "earthquake" in run.stderr


def test_a_drill_that_breaks_brokers_is_not_played_on_a_pair_that_is_up(standing: Path) -> None:
    run = CliRunner().invoke(app, ["drill", "disaster", "--pair", str(standing / "pair.toml")])

    assert run.exit_code == 2
    assert "breaks brokers" in run.stderr
