"""`twinbus pair` and `twinbus syphon` against two broker processes: what they make, show, warn of and bring home."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from support.broker import SOON_S, BrokerProcess, running, wait_for
from twinbus.cli import app
from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions

pytestmark = pytest.mark.feature("paired namespaces")


class Pair(NamedTuple):
    """Two brokers, and a description of them for one test, whose backlog queues go by its own name."""

    primary: BrokerProcess
    secondary: BrokerProcess
    name: str
    file: Path

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        result = CliRunner().invoke(app, [*words, "--pair", str(self.file)], env=clean_environment())
        assert result.exit_code == code, f"{words} ended with {result.exit_code}:\n{result.stdout}{result.stderr}"
        assert "Traceback" not in result.stderr
        return result.stdout, result.stderr

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*words, "--json", code=code)[0])
        return found

    def backlog(self, index: int) -> str:
        return f"{self.name}/x-servicebus-transfer/{index}"

    def divert(self, path: str, *bodies: str, index: int = 0) -> None:
        """Messages in a backlog queue, as a paired sender would leave them there."""
        with ServiceBusClient.from_connection_string(self.secondary.connection_string()) as client:
            sender = client.get_queue_sender(self.backlog(index))
            sender.send_messages(
                [ServiceBusMessage(body, application_properties={"x-ms-path": path}) for body in bodies]
            )


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    north, south = ("--datacenter", "north"), ("--datacenter", "south")
    primary = BrokerProcess(tmp_path_factory.mktemp("primary"), namespace="contoso", options=north)
    secondary = BrokerProcess(tmp_path_factory.mktemp("secondary"), namespace="fabrikam", options=south)
    with running(primary, secondary):
        yield primary, secondary


@pytest.fixture
def pair(brokers: tuple[BrokerProcess, BrokerProcess], request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    primary, secondary = brokers
    name = request.node.name.removeprefix("test_")[:40].replace("_", "-")
    file = tmp_path / "pair.toml"
    (tmp_path / "secret").write_text(f"{secondary.connection_string()}\n")
    file.write_text(
        f'[primary]\nconnection_string = "{primary.connection_string()}"\nname = "{name}"\n\n'
        '[secondary]\nconnection_string_file = "secret"\n\n'
        "[options]\nbacklog_queue_count = 2\nfailover_interval = 0\npoll = 2\n"
    )
    return Pair(primary, secondary, name, file)


class TestCreate:
    def test_missing_queues_are_made_and_the_others_left(self, pair: Pair) -> None:
        first, _ = pair.run("pair", "create")
        assert first == f"Created '{pair.backlog(0)}'.\nCreated '{pair.backlog(1)}'.\n"
        assert pair.secondary.queue(pair.backlog(1))["MaxDeliveryCount"] == "2147483647"
        assert pair.run("pair", "create") == ("2 were there already.\n", "")

    def test_differing_and_extra_queues_are_named(self, pair: Pair) -> None:
        pair.secondary.create_queue(pair.backlog(0), LockDuration="PT30S", MaxSizeInMegabytes=5120)
        pair.secondary.create_queue(pair.backlog(7))
        out, remarks = pair.run("pair", "create")
        assert out == f"Created '{pair.backlog(1)}'.\n1 was there already.\n"
        assert "lock_duration_ms is 30000 instead of 60000" in remarks
        assert f"'{pair.backlog(7)}' is extra" in remarks
        found = pair.json("pair", "create")
        assert found["existing"] == [pair.backlog(0), pair.backlog(1)]
        assert list(found["differing"]) == [pair.backlog(0)]
        assert found["extra"] == {pair.backlog(7): 0}

    def test_who_may_not_make_them_is_told_why(self, pair: Pair) -> None:
        wrong = pair.secondary.connection_string(key="not-the-key")
        result = CliRunner().invoke(
            app, ["pair", "create", "--pair", str(pair.file), "--secondary", wrong], env=clean_environment()
        )
        assert result.exit_code == 1
        assert "could not be made" in result.stderr


class TestStatus:
    def test_a_pair_that_is_well(self, pair: Pair) -> None:
        pair.run("pair", "create")
        out, remarks = pair.run("pair", "status", "--check")
        lines = out.splitlines()
        assert lines[0].split() == ["ROLE", "NAMESPACE", "DATACENTER", "ADDRESS", "STATE"]
        assert lines[1].split()[:3] == ["primary", pair.name, "north"]
        assert lines[2].split()[:3] == ["secondary", "fabrikam", "south"]
        assert "as documented" in out
        assert "No paired client and no syphon is alive." in out
        assert remarks == ""

    def test_a_backlog_that_nobody_brings_home_is_a_warning(self, pair: Pair) -> None:
        pair.run("pair", "create")
        pair.divert("orders", "a", "b")
        found = pair.json("pair", "status", code=3)
        assert [(queue["messages"], queue["dead"]) for queue in found["queues"]] == [(2, 0), (0, 0)]
        assert found["warnings"] == ["2 messages are in the backlog, and no syphon runs: start `twinbus syphon`."]
        assert found["stranded"] == found["warnings"]
        assert 0 <= found["queues"][0]["oldest_s"] < 60
        assert "no syphon runs" in pair.run("pair", "status", "--check", code=3)[1]

    def test_what_is_missing_differs_or_is_stuck_is_a_warning(self, pair: Pair) -> None:
        pair.secondary.create_queue(pair.backlog(0), LockDuration="PT30S")
        pair.secondary.create_queue(pair.backlog(7))
        pair.divert("orders", "stuck", index=7)
        found = pair.json("pair", "status", code=3)
        assert [queue["state"] for queue in found["queues"]] == ["differing", "missing", "differing"]
        told = " ".join(found["warnings"])
        assert f"'{pair.backlog(1)}' is missing" in told
        assert "lock_duration_ms" in told
        assert found["stranded"] == ["1 message is in the backlog, and no syphon runs: start `twinbus syphon`."]

    def test_halves_in_one_datacenter_are_a_warning(self, pair: Pair, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path / "third", namespace="third", options=("--datacenter", "South")) as third:
            words = ["pair", "status", "--json", "--secondary", pair.secondary.connection_string()]
            env = {**clean_environment(), "TWINBUS_PRIMARY": third.connection_string()}
            result = CliRunner().invoke(app, words, env=env)
        assert "would be lost together" in " ".join(json.loads(result.stdout)["warnings"])

    def test_a_primary_that_is_down_does_not_hide_the_backlog(self, pair: Pair) -> None:
        pair.run("pair", "create")
        pair.divert("orders", "a")
        pair.primary.kill()
        try:
            found = pair.json("pair", "status", code=3)
            assert (found["primary"]["reachable"], found["secondary"]["reachable"]) == (False, True)
            assert found["queues"][0]["messages"] == 1
            assert any("cannot be reached" in warning for warning in found["warnings"])
            pair.run("pair", "status", "--check", code=3)
        finally:
            pair.primary.start()

    def test_clients_states_and_backlog_are_known_while_a_primary_without_a_name_is_down(
        self, pair: Pair, tmp_path: Path
    ) -> None:
        """Nobody described the primary's name: the secondary knows it, by its queues."""
        queue = pair.primary.create_queue(f"{pair.name}-orders")
        with BrokerProcess(tmp_path / "third", namespace="third") as third, ExitStack() as stack:
            namespaces = pair.primary.connection_string(), third.connection_string()
            clients = [
                stack.enter_context(
                    PairedServiceBusClient.from_connection_strings(
                        *namespaces,
                        SendAvailabilityOptions(
                            backlog_queue_count=2, failover_interval=0, attempts=1, enable_syphon=enable_syphon
                        ),
                    )
                )
                for enable_syphon in (True, False)
            ]
            env = {**clean_environment(), "TWINBUS_PRIMARY": namespaces[0], "TWINBUS_SECONDARY": namespaces[1]}
            env["TWINBUS_PAIR_BACKLOG_QUEUE_COUNT"] = "2"

            def status() -> dict[str, Any]:
                result = CliRunner().invoke(app, ["pair", "status", "--json"], env=env)
                assert result.exit_code == 0, result.stdout
                found: dict[str, Any] = json.loads(result.stdout)
                return found

            pair.primary.kill()
            try:
                for client in clients:
                    client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))

                def is_known() -> bool:
                    states = [record["state"] for record in status()["clients"]]
                    syphons = [state["syphon"] for state in states if state["syphon"] is not None]
                    return [state["ill"] for state in states] == [{queue: "failed over"}] * 2 and [
                        syphon["waits_for"] for syphon in syphons
                    ] == ["primary"]

                wait_for(is_known, "what the clients say")
                found = status()
            finally:
                pair.primary.start()
        assert (found["primary"]["name"], found["primary"]["reachable"]) == ("contoso", False)
        assert sum(each["messages"] for each in found["queues"]) == 2
        assert all(each["drained_by"] and each["oldest_s"] >= 0 for each in found["queues"] if each["messages"])
        assert found["stranded"] == []
        (note,) = found["notes"]
        assert note.startswith("2 messages are in the backlog until the primary answers; ready to bring them home: ")


class TestSyphon:
    def test_once_brings_everything_home_and_ends(self, pair: Pair) -> None:
        queue = pair.primary.create_queue(f"{pair.name}-orders")
        pair.run("pair", "create")
        pair.divert(queue, "a", "b", "c")
        out, remarks = pair.run("syphon", "--once")
        assert out.splitlines()[-1] == f"moved 3 ({queue} 3), dead 0"
        assert remarks == ""
        assert pair.primary.count(queue) == 3
        assert pair.json("pair", "status")["queues"][0]["messages"] == 0

    def test_once_with_dead_letters_says_which_and_fails(self, pair: Pair) -> None:
        """What waits for a queue to be made is left, and is no success either."""
        queue = pair.primary.create_queue(f"{pair.name}-orders")
        pair.run("pair", "create")
        pair.divert(queue, "a")
        pair.divert("nowhere-at-all", *(f"lost-{number}" for number in range(22)), index=1)
        out, remarks = pair.run("syphon", "--once", code=1)
        assert out.splitlines()[-1].startswith(f"moved 1 ({queue} 1), dead 0; nowhere-at-all: waits until")
        assert "22 messages could not be moved: nowhere-at-all: waits until" in remarks
        pair.file.write_text(pair.file.read_text() + "missing_entity_wait = 0\n")
        out, remarks = pair.run("syphon", "--once", code=1)
        assert out.splitlines()[-1] == "moved 0, dead 22"
        assert "22 messages went to the dead letters of the backlog queues: see `twinbus dlq list`." in remarks
        assert f"dead in '{pair.backlog(1)}': 'nowhere-at-all' refuses the message: amqp:not-found" in remarks
        found = pair.json("pair", "status", code=3)
        assert [(each["messages"], each["dead"]) for each in found["queues"]] == [(0, 0), (0, 22)]
        dead = f"22 messages are dead in '{pair.backlog(1)}': what could not be brought home."
        assert found["warnings"] == found["stranded"] == [dead]

    def test_once_with_messages_that_stay_fails(self, pair: Pair) -> None:
        pair.run("pair", "create")
        with ServiceBusClient.from_connection_string(pair.secondary.connection_string()) as client:
            later = datetime.now(UTC) + timedelta(hours=1)
            client.get_queue_sender(pair.backlog(0)).schedule_messages(ServiceBusMessage("later"), later)
        _, remarks = pair.run("syphon", "--once", code=1)
        assert f"1 message left in the backlog ('{pair.backlog(0)}' 1)" in remarks

    def test_once_says_what_had_to_be_left(self, pair: Pair) -> None:
        queue = pair.primary.create_queue(f"{pair.name}-orders")
        pair.run("pair", "create")
        pair.divert(queue, "a")
        pair.primary.kill()
        try:
            _, remarks = pair.run("syphon", "--once", code=1)
        finally:
            pair.primary.start()
        assert "1 message could not be moved" in remarks
        assert pair.secondary.count(pair.backlog(0)) == 1

    def test_a_port_for_metrics_that_is_in_use_is_named_with_its_option(self, pair: Pair) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            _, told = pair.run("syphon", "--metrics-port", str(port), code=1)
        assert told == f"twinbus: Port {port} (metrics) is in use; choose another with --metrics-port.\n"

    def test_it_goes_on_until_it_is_told_to_end_and_is_seen_meanwhile(self, pair: Pair) -> None:
        queue = pair.primary.create_queue(f"{pair.name}-orders")
        command = [sys.executable, "-m", "twinbus", "syphon", "--pair", str(pair.file)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
        )
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"The syphon watches 2 backlog queues of '{pair.name}'.\n"
            pair.divert(queue, "a", "b")
            wait_for(lambda: pair.primary.count(queue) == 2, "the messages at home")
            wait_for(lambda: bool(pair.json("pair", "status")["clients"]), "the syphon's record")
            (record,) = pair.json("pair", "status")["clients"]
            assert (record["kind"], record["process"]) == ("syphon", process.pid)
            assert "syphon" in pair.run("pair", "status", "--check")[0]
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=SOON_S)
        finally:
            process.kill()
        assert process.returncode == 0
        assert out.splitlines()[-1] == f"moved 2 ({queue} 2), dead 0"
        assert pair.json("pair", "status")["clients"] == []


def test_problems_of_a_description_have_their_lines(pair: Pair) -> None:
    pair.file.write_text(
        '[primary]\nconnection_string_env = "NOT_SET"\n\n[options]\nfailover_intervall = 3\npoll = "soon"\n'
    )
    _, told = pair.run("pair", "status", code=1)
    assert f"{pair.file}:2: [primary] connection_string_env: the variable NOT_SET is not set" in told
    assert f"{pair.file}:5: [options] has no 'failover_intervall'; did you mean 'failover_interval'?" in told
    assert f"{pair.file}:6: [options] poll must be seconds or a duration such as PT30S, not 'soon'" in told
    assert "no secondary namespace: give [secondary] connection_string, or set TWINBUS_SECONDARY" in told
