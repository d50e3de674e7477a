"""How long sends take while a broker is backed up, against how long they take before: p99 of both, backup by backup.

    PYTHONPATH=src:tests python tests/support/measure_backup.py --messages 200000 --rate 300

A broker with four stores is filled; then single messages are sent at a steady rate, and each backup is compared with
the seconds before it. With `--control` nothing is backed up: what differs then, the machine did, and if that is much,
it is too busy to measure anything. Everything is below the temporary directory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from support.broker import BrokerProcess
from twinbus.client import connect
from twinbus.wire import outgoing

LOT = 2_000
BODY_BYTES = 1_000
NORMAL_S = 5.0
ASK_S = 0.25


class Sends:
    """Messages sent at a steady rate, with when each began and how long it took."""

    def __init__(self) -> None:
        self.took: list[tuple[float, float]] = []
        self.ending = asyncio.Event()

    async def run(self, connection_string: str, rate: float) -> None:
        """Send until `ending`, each when it is due, whether or not the one before has been acknowledged."""
        async with connect(connection_string) as connection:
            sender = await connection.sender("live")
            tasks: set[asyncio.Task[None]] = set()

            async def send(number: int) -> None:
                began = time.monotonic()
                await sender.send([outgoing.build(b"x" * BODY_BYTES, message_id=f"live-{number}")])
                self.took.append((began, time.monotonic() - began))

            began, number = time.monotonic(), 0
            while not self.ending.is_set():
                await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
                task = asyncio.create_task(send(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number += 1
            await asyncio.gather(*tasks)

    def p99_ms(self, since: float, until: float) -> float:
        """Of what began between two instants."""
        took = sorted(took for began, took in self.took if since <= began < until)
        return took[int(len(took) * 0.99)] * 1000


async def fill(connection_string: str, messages: int) -> None:
    """Put messages into a queue that nobody reads."""
    async with connect(connection_string) as connection:
        sender = await connection.sender("full")
        for first in range(0, messages, LOT):
            names = [f"full-{number}" for number in range(first, first + LOT)]
            await sender.send([outgoing.build(b"x" * BODY_BYTES, message_id=name) for name in names])


async def back_up(broker: BrokerProcess, destination: Path, control: bool) -> float:
    """One backup to its end; for how many milliseconds commits were held."""
    if control:
        await asyncio.sleep(NORMAL_S)
        return 0.0

    def ask(method: str, body: str | None = None) -> dict[str, object]:
        status, text = broker.request(method, "/$api/backup", body)
        assert status == 200, text
        found: dict[str, object] = json.loads(text)
        return found

    state = await asyncio.to_thread(ask, "POST", json.dumps({"destination": str(destination)}))
    while state["state"] == "running":
        await asyncio.sleep(ASK_S)
        state = await asyncio.to_thread(ask, "GET")
    assert state["state"] == "done", state["why"]
    assert isinstance(state["held_ms"], float)
    return state["held_ms"]


async def measure(directory: Path, messages: int, rate: float, runs: int, control: bool) -> None:
    """Fill, send, and back up again and again."""
    broker = BrokerProcess(directory, options=("--stores", "4", "--queue", "full", "--queue", "live"))
    try:
        broker.start()
        await fill(broker.connection_string(), messages)
        size = sum(path.stat().st_size for path in broker.data.glob("*.db"))
        print(f"{messages:,} messages, {size / 1e6:,.0f} MB, {rate:g} sends a second")
        sends = Sends()
        sending = asyncio.create_task(sends.run(broker.connection_string(), rate))
        await asyncio.sleep(NORMAL_S)
        figures = []
        for number in range(runs):
            began = time.monotonic()
            await asyncio.sleep(NORMAL_S)
            middle = time.monotonic()
            held_ms = await back_up(broker, directory / f"backup-{number}", control)
            ended = time.monotonic()
            normal, during = sends.p99_ms(began, middle), sends.p99_ms(middle, ended)
            figures.append((normal, during))
            shutil.rmtree(directory / f"backup-{number}", ignore_errors=True)
            print(
                f"backup of {ended - middle:.1f} s, commits held for {held_ms:.1f} ms: p99 {normal:.1f} ms before,"
                f" {during:.1f} ms during, {during / normal:.2f} times; load {os.getloadavg()[0]:.1f}"
            )
        sends.ending.set()
        await sending
        before, after = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"median: {before:.1f} ms before, {after:.1f} ms during, {after / before:.2f} times")
    finally:
        broker.kill()


def main() -> None:
    """Read the options and measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rate", type=float, default=300)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--control", action="store_true", help="back nothing up")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinbus-measure-") as scratch:
        asyncio.run(measure(Path(scratch), chosen.messages, chosen.rate, chosen.runs, chosen.control))


if __name__ == "__main__":
    main()
