"""Entities in both namespaces: created at once, and compared, at a prompt."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from support.broker import BrokerProcess
from twinbus.cli import app
from twinbus.pair import DescriptionError, Ledger, ReplicatedClient, aio


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


def test_entities_that_are_called_otherwise_in_the_secondary_are_found_there(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    pair = tmp_path / "pair.toml"
    lines = [
        f'[{role}]\nconnection_string = "{broker.connection_string()}"\nname = "{broker.namespace}"'
        for role, broker in zip(("primary", "secondary"), brokers, strict=True)
    ]
    entities = '"mapped" = "mapped-b"\n"deals/subscriptions/all" = "deals-b/subscriptions/every"\n"deals" = "deals-b"'
    pair.write_text(
        "\n".join([*lines, "[options]\nordered = true\nbacklog_queue_count = 2", f"[entities]\n{entities}"])
    )
    file = str(pair)
    run("entity", "create", "mapped", "--pair", file)
    run("entity", "create", "deals", "--topic", "--pair", file)
    run("entity", "create", "deals:all", "--pair", file)
    assert brokers[1].queue("mapped-b")["RequiresSession"] == "false"

    told = run("pair", "status", "--entities", "--pair", file)[1]
    assert "mapped" not in told
    assert "deals" not in told
    assert "contoso/x-servicebus-transfer-ordered/1' is missing" in told
    brokers[1].delete_queue("mapped-b")
    made, _ = run("pair", "create", "--pair", file)
    assert made.count("transfer-ordered") == 2
    shown, told = run("pair", "status", "--entities", "--pair", file)
    assert "'mapped' is missing in the secondary, where it would be 'mapped-b'." in told
    rows = [line.split() for line in shown.splitlines() if "transfer-ordered" in line]
    empty = ["ordered", "0", "-", "0", "-"]  # Nobody has put anything in, and nobody drains them.
    assert rows == [[f"contoso/x-servicebus-transfer-ordered/{index}", *empty] for index in range(2)]


async def test_a_replicated_client_is_made_of_the_description_in_both_flavours(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    pair = tmp_path / "pair.toml"
    lines = [
        f'[{role}]\nconnection_string = "{broker.connection_string()}"\nname = "{broker.namespace}"'
        for role, broker in zip(("primary", "secondary"), brokers, strict=True)
    ]
    pair.write_text("\n".join([*lines, '[options]\nattempts = 1\n[entities]\n"described" = "described-b"']))
    for broker, name in zip(brokers, ("described", "described-b"), strict=True):
        broker.create_queue(name)

    def synchronous() -> list[str]:
        with Ledger(tmp_path / "ledger.db") as ledger:
            client = ReplicatedClient.from_description(pair, mode="active", ledger=ledger)
            with client, client.get_queue_sender("described") as sender:
                sender.send_messages(ServiceBusMessage(b"x", message_id="a"))
                with client.get_queue_receiver("described") as receiver:
                    ids = []
                    while brokers[0].count("described") + brokers[1].count("described-b"):
                        for message in receiver.receive_messages(5, max_wait_time=1):
                            ids.append(str(message.message_id))
                            receiver.complete_message(message)
            return ids

    assert await asyncio.to_thread(synchronous) == ["a"]
    async with aio.ReplicatedClient.from_description(pair, mode="passive") as client:
        assert client.names == ("contoso", "fabrikam")
        await client.get_queue_sender("described").send_messages(ServiceBusMessage(b"x", message_id="b"))
    assert (brokers[0].count("described"), brokers[1].count("described-b")) == (1, 0)
    with pytest.raises(DescriptionError, match="cannot be read"):
        ReplicatedClient.from_description(tmp_path / "missing.toml", mode="active")
