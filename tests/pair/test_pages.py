"""The pages about pairing are true: their programs run as they stand there, one of them while its primary is killed."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from support.broker import BrokerProcess, wait_for

DOCS = Path(__file__).parents[2] / "docs"
END_OF_BLOCK = "-- end of block --"
ORDERS = 40
SOON_S = 150.0
pytestmark = pytest.mark.timeout(2 * SOON_S)

Brokers = tuple[BrokerProcess, BrokerProcess]


def fenced(page: str) -> list[tuple[str, str]]:
    """Kind and content of every block of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def programs(page: str) -> list[str]:
    return [content for kind, content in fenced(page) if kind == "python"]


@pytest.fixture
def environment(brokers: Brokers) -> dict[str, str]:
    primary, secondary = brokers
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")},
        "TWINBUS_PRIMARY": primary.connection_string(),
        "TWINBUS_SECONDARY": secondary.connection_string(),
        "TWINBUS_PAIR_FAILOVER_INTERVAL": "1",
        "TWINBUS_PAIR_PING_PRIMARY_INTERVAL": "1",
        "TWINBUS_PAIR_ENABLE_SYPHON": "true",
    }


@pytest.fixture
def started(brokers: Brokers, environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The second program of the page, on its way."""
    brokers[0].create_queue("orders", RequiresDuplicateDetection=True)
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", programs("pairing.md")[1]],
            env=environment | {"ORDERS": str(ORDERS)},
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
        yield process
    process.kill()
    process.wait()
    if brokers[0].process is None:
        brokers[0].start()
    brokers[0].delete_queue("orders")


def test_one_line_and_an_import_make_an_ordinary_program_a_paired_one() -> None:
    before, after = (text.splitlines() for text in programs("pairing.md"))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert changed == [
        "- from azure.servicebus import ServiceBusClient, ServiceBusMessage",
        "+ from azure.servicebus import ServiceBusMessage",
        "+ from twinbus.pair import PairedServiceBusClient",
        '- client = ServiceBusClient.from_connection_string(os.environ["TWINBUS_PRIMARY"])',
        "+ client = PairedServiceBusClient.from_description()",
    ]


def test_the_ordinary_program_runs(brokers: Brokers, environment: dict[str, str]) -> None:
    brokers[0].create_queue("orders")
    run = subprocess.run(
        [sys.executable, "-c", programs("pairing.md")[0]],
        env=environment | {"ORDERS": "3"},
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    brokers[0].delete_queue("orders")
    assert (run.returncode, run.stdout) == (0, "sent order-0\nsent order-1\nsent order-2\n"), run.stderr


def test_the_paired_program_goes_on_while_its_primary_is_killed_and_restarted(
    brokers: Brokers, started: subprocess.Popen[str], tmp_path: Path
) -> None:
    primary, secondary = brokers

    def sent() -> int:
        return (tmp_path / "out").read_text().count("sent ")

    wait_for(lambda: sent() >= 5, "the first orders", SOON_S)
    primary.kill()
    before = sent()
    wait_for(lambda: sent() >= before + 10, "orders without a primary", SOON_S)
    diverted = sum(secondary.count(f"contoso/x-servicebus-transfer/{index}") for index in range(10))
    assert diverted > 0
    primary.start()
    assert started.wait(SOON_S) == 0, (tmp_path / "out").read_text()
    received: Counter[str] = Counter()
    bus = ServiceBusClient.from_connection_string(primary.connection_string())
    with bus, bus.get_queue_receiver("orders") as receiver:
        while primary.count("orders"):
            for message in receiver.receive_messages(100, max_wait_time=1):
                received[str(message.message_id)] += 1
                receiver.complete_message(message)

    assert received == Counter({f"order-{number}": 1 for number in range(ORDERS)})


def test_the_programs_about_sending_and_receiving_print_what_the_page_says(
    brokers: Brokers, environment: dict[str, str]
) -> None:
    brokers[0].create_queue("orders")
    brokers[0].create_queue("readings")
    brokers[0].create_queue("invoices", RequiresDuplicateDetection=True)
    expected: list[str] = []
    parts: list[str] = []
    for kind, content in fenced("sending-and-receiving.md"):
        if kind == "python":
            parts.append(f"{content}print('{END_OF_BLOCK}')\n")
            expected.append("")
        elif kind == "text":
            expected[-1] = content
    run = subprocess.run(
        [sys.executable, "-c", "".join(parts)], env=environment, capture_output=True, text=True, timeout=SOON_S
    )
    for queue in ("orders", "readings", "invoices"):
        brokers[0].delete_queue(queue)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split(f"{END_OF_BLOCK}\n")[:-1] == expected
    assert len(expected) > 5
