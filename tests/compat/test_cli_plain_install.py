"""Without any extra: every module and every command either does its work or names the extra that it needs.

All in one process that finds the plain dependencies and nothing else (`support.plain`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support import plain
from twinbus.model.extras import PACKAGES

pytestmark = pytest.mark.feature("a plain installation")

RUN = Path(plain.__file__).with_name("plain_run.py")
LIMIT_S = 50
DATABASE = "postgresql://somebody@127.0.0.1:1/nothing"
GIVEN = {
    "pair.toml": '[primary]\nconnection_string_file = "a"\n[secondary]\nconnection_string_file = "b"\n',
    "plain.toml": 'namespace = "contoso"\n',
    "database.toml": f'namespace = "contoso"\nstore = ["{DATABASE}"]\n',
}
ANY_PORT = ("--amqp-port", "0", "--http-port", "0", "--amqps-port", "0", "--https-port", "0", "--stop-with-stdin")


class Case(NamedTuple):
    """A command, what it ends with, and the extras that it names then."""

    command: str
    arguments: str = ""
    code: int = 0
    extras: str = ""


def without(extras: str, command: str, arguments: str = "") -> Case:
    return Case(command, arguments, 1, extras)


# In this order: some need what an earlier one has made.
CASES = [
    Case("version"),
    Case("entity create", "orders"),
    Case("entity list"),
    Case("entity show", "orders"),
    Case("entity update", "orders --max-delivery-count 5"),
    Case("send", "orders hello"),
    Case("send", "orders again"),
    Case("peek", "orders"),
    Case("receive", "orders --count 1 --dead-letter --reason test"),
    Case("dlq list", "orders"),
    Case("dlq show", "orders 1"),
    Case("dlq redrive", "orders"),
    Case("dlq purge", "orders --yes"),
    Case("purge", "orders --yes"),
    Case("status"),
    Case("keys list"),
    Case("keys add", "orders reader --right Listen"),
    Case("keys rotate", "orders reader --yes"),
    Case("keys token", "orders"),
    Case("keys remove", "orders reader --yes"),
    Case("policy list"),
    Case("policy add", "shop --right send"),
    Case("policy update", "shop --right listen --yes"),
    Case("policy rotate", "shop --yes"),
    Case("policy remove", "shop --yes"),
    Case("store list"),
    Case("store down", "0"),
    Case("store up", "0"),
    Case("store journal"),
    Case("store accept", "0 --yes", code=1),
    Case("store replace", "0 --yes", code=1),
    Case("store orphans"),
    Case("store adopt", "orders", code=1),
    Case("store move", "orders bills", code=1),
    Case("store export", "orders lines.jsonl", code=1),
    Case("store drop", "orders --yes", code=1),
    Case("catalog rebuild", "nowhere --yes", code=1),
    Case("catalog accept", "nowhere --yes", code=1),
    without("postgres", "store migrate", f"data {DATABASE}"),
    Case("verify"),
    without("postgres", "verify", DATABASE),
    Case("backup", "copied"),
    Case("restore", "copied restored"),
    Case("verify", "restored"),
    Case("clock show"),
    Case("clock advance", "1s"),
    Case("fault list"),
    Case("fault begin", "namespace-down", code=1),
    Case("fault lift", "namespace-down", code=1),
    Case("relay call", "--path nowhere", code=1),
    Case("relay expose", "http://127.0.0.1:1 --path nowhere --second-path nowhere", code=1),
    Case("entity delete", "orders --yes"),
    Case("reset", "--yes"),
    Case("certs", "tls"),
    Case("check-config", "plain.toml"),
    Case("check-config", "database.toml", extras="postgres"),
    Case("serve", f"--data served {' '.join(ANY_PORT)}"),
    Case("serve", f"--data served --tls tls {' '.join(ANY_PORT)}"),
    without("postgres", "serve", f"--store {DATABASE}"),
    without("parquet", "serve", "--data served --journal default"),
    without("postgres,parquet", "serve", f"--store {DATABASE} --journal files"),
    without("pair", "serve", "--data served --console-pair pair.toml"),
    without("pair", "up", "--data up"),
    Case("down", "--data up"),
    Case("logs", "--data up", code=1),
    without("pair", "pair create", "--pair pair.toml"),
    without("pair", "pair replace", "--pair pair.toml --with Endpoint=sb://nowhere --yes"),
    without("pair", "pair status", "--pair pair.toml"),
    without("pair", "syphon", "--pair pair.toml"),
    without("spark,java", "drill"),
    without("pair", "drill", "--no-spark"),
    without("pair", "drill", "flap"),
    without("spark,java", "drill", "spark-crash"),
    without("pair", "drill", "outage --pair pair.toml"),
    without("parquet", "explain", "a --journal ."),
    without("parquet,pair", "explain", "a --pair pair.toml"),
    *(without("pair", f"outbox {each}", "outbox.db") for each in ("show", "peek", "dispatch", "drain")),
    without("pair", "outbox retry", "outbox.db --all"),
    without("pair", "outbox drop", "outbox.db 1"),
    without("pair,postgres", "outbox show", DATABASE),
    *(without("pair", f"ledger {each}", "ledger.db") for each in ("show", "export", "trim")),
    *(without("pair,postgres", f"ledger {each}", DATABASE) for each in ("show", "export", "trim")),
    without("spark,java", "pipeline syphon", "--pair pair.toml"),
    without("spark,java", "pipeline merge", "orders --pair pair.toml --to-files merged"),
    without("spark,java", "pipeline capture", "--to captured orders"),
    without("parquet", "pipeline capture", "--to captured --journal ."),
    without("spark,java", "pipeline cost", "--journal ."),
    Case("pipeline cost", "--messages 1000"),
    without("spark,java", "pipeline reconcile", "--journal . --report report.html"),
    without("parquet", "pipeline release", "orders --claim a --yes"),
    Case("bench", "--messages 20 --connection-string nothing", code=1),
    Case("bench-filters", "--short --data nowhere", code=1),
    without("pair", "bench-ledger", "--entries 2000"),
    without("pair", "bench-outbox", "--seconds 0.1"),
    without("pair", "bench-pair", "--rounds 3 --sends 1"),
    without("spark,java", "bench-syphon"),
    without("spark,java", "bench-source"),
]


def words(case: Case) -> list[str]:
    return [*case.command.split(), *case.arguments.split()]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.fixture(scope="module")
def told(directory: Path) -> dict[str, Any]:
    """What happened to everything, in an environment without extras, Java, or a home directory."""
    for name, text in GIVEN.items():
        (directory / name).write_text(text)
    (directory / "asked.json").write_text(json.dumps([words(case) for case in CASES]))
    extras = {module.partition(".")[0] for module in PACKAGES}
    assert plain.modules_of(plain.dependencies()).isdisjoint(extras)  # Else nothing would be shown.
    environment = plain.environment(directory / "site")
    environment |= {"HOME": str(directory), "PATH": str(directory), "JAVA_HOME": ""}
    command = [sys.executable, str(RUN), str(directory / "asked.json"), str(directory / "answers.json")]
    # `serve` stops when its input ends, which is at once.
    ended = subprocess.run(command, env=environment, input="", capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads((directory / "answers.json").read_text())
    return found


def test_every_command_has_a_case(told: dict[str, Any]) -> None:
    assert {case.command for case in CASES} == set(told["leaves"])


@pytest.mark.parametrize("number", range(len(CASES)), ids=[" ".join(words(case)) for case in CASES])
def test_a_command_works_or_names_its_extra(number: int, told: dict[str, Any]) -> None:
    case, done = CASES[number], told["done"][number]
    assert done["crashed"] is None, done
    assert done["code"] == case.code, done
    assert "Traceback" not in done["stderr"]
    assert "No module named" not in done["stderr"]
    lines = [line for line in done["stderr"].splitlines() if "This needs" in line]
    named = [line.rpartition("[")[2] for line in lines]
    assert named == ([f"{case.extras}]'"] if case.extras else []), done
    assert all("pip install " in line for line in lines)


def test_every_command_helps(told: dict[str, Any]) -> None:
    wrong = {name: done for name, done in told["helped"].items() if done["code"] != 0 or done["crashed"]}
    assert wrong == {}
    assert len(told["helped"]) > len(told["leaves"])


def test_a_module_is_there_or_names_its_extra(told: dict[str, Any]) -> None:
    wrong = {name: problem for name, problem in told["imported"].items() if problem[0] not in ("", "MissingExtraError")}
    # pytest imports it, and nobody else.
    assert wrong.pop("twinbus.testing.plugin") == ["ModuleNotFoundError", "No module named 'pytest'"]
    assert wrong == {}


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("twinbus.pair", "pair"),
        ("twinbus.pair.aio", "pair"),
        ("twinbus.pipeline.session", "spark"),
        ("twinbus.pipeline.proof.reconcile", "spark"),
        ("pyspark_servicebus", "spark"),
        ("twinbus.pipeline.costs.cost", ""),
        ("twinbus.testing", ""),
        ("twinbus.relay", ""),
        ("twinbus.client", ""),
        ("twinbus.console", ""),
        ("twinbus.drill.history", ""),
        ("twinbus.store.journal", ""),
    ],
)
def test_what_applications_import(module: str, extra: str, told: dict[str, Any]) -> None:
    kind, text = told["imported"].get(module) or told["imported"][module.rpartition(".")[0]]
    assert kind == ("MissingExtraError" if extra else "")
    assert text.endswith(f"[{extra}]'" if extra else "")


def test_tls_needs_no_extra(told: dict[str, Any]) -> None:
    (served,) = (
        done
        for case, done in zip(CASES, told["done"], strict=True)
        if case.command == "serve" and "--tls" in case.arguments and case.code == 0
    )
    assert "amqps://" in served["stdout"]
    assert served["stdout"].endswith("ready\n")


def test_nothing_is_left_of_what_could_not_begin(told: dict[str, Any], directory: Path) -> None:
    made = {"asked.json", "answers.json", "site", "tls", "served", "copied", "restored"}
    assert {path.name for path in directory.iterdir()} == {*GIVEN, *made}
