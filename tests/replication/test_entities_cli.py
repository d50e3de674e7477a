"""Entities in both namespaces: created at once, and compared, at a prompt."""

from __future__ import annotations

import os
from pathlib import Path

from typer.testing import CliRunner

from support.broker import BrokerProcess
from twinbus.cli import app


def run(*words: str, code: int = 0) -> tuple[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")}
    result = CliRunner().invoke(app, list(words), env=environment)
    assert result.exit_code == code, f"{words}: {result.stdout}{result.stderr}"
    return result.stdout, result.stderr


def test_entities_are_created_in_both_and_what_differs_is_reported(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    primary, secondary = brokers
    pair = tmp_path / "pair.toml"
    pair.write_text(
        "\n".join(
            f'[{role}]\nconnection_string = "{broker.connection_string()}"'
            for role, broker in (("primary", primary), ("secondary", secondary))
        )
    )
    file = str(pair)
    created, _ = run("entity", "create", "both-queue", "--lock-duration", "1m", "--pair", file)
    assert created.count("Created 'both-queue'.") == 2
    run("entity", "create", "both-topic", "--topic", "--pair", file)
    run("entity", "create", "both-topic:sub", "--filter", "colour = 'red'", "--pair", file)
    assert [broker.queue("both-queue")["LockDuration"] for broker in brokers] == ["PT1M", "PT1M"]

    def told() -> str:
        return run("pair", "status", "--entities", "--pair", file)[1]

    assert "both-" not in told()
    primary.create_queue("only-first")
    secondary.create_queue("only-second")
    secondary.update_queue("both-queue", LockDuration="PT30S")
    warnings = told()
    assert "'only-first' is missing in the secondary." in warnings
    assert "'only-second' is missing in the primary." in warnings
    assert "'both-queue' differs: lock_duration_ms is 60000 in the primary, and 30000 in the secondary." in warnings
    assert "both-topic" not in warnings
    run("pair", "status", "--entities", "--check", "--pair", file, code=1)
