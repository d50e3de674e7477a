"""A command that brings a backlog home, in a process of its own that is killed in the midst and started again.

Says how often and when that is to happen; what is moved is the command's business, and what was lost the verdict's.
Ends only what it started.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from twinbus.client import ConnectionString
from twinbus.client.atom import Administration
from twinbus.client.connection_string import at_endpoint
from twinbus.drill.stage import Stage
from twinbus.faults.proxy import FaultProxy
from twinbus.pair.description import NamespaceDescription
from twinbus.pair.options import SendAvailabilityOptions

LOOK_S = 0.05
PATIENCE_S = 120.0  # For one run of the command; a Java machine may have to start first.
END_S = 20.0


@dataclass(frozen=True, slots=True)
class Killed:
    """One life of the command that was ended by force."""

    moved: int  # How many messages left the backlog in it.
    left: int  # How many were still there.

    @property
    def in_the_midst(self) -> bool:
        """Whether it had begun and was not done."""
        return self.moved > 0 and self.left > 0


class Command:
    """`twinbus …`, as somebody would start it at a prompt, with processes of its own below it."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._words = words
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, *more: str) -> int:
        """From its start to its end, with more words; its exit code."""
        try:
            await self.start(*more)
            return await self.ended()
        finally:
            await self.stop()

    async def start(self, *more: str) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "twinbus",
                *self._words,
                *more,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # So that what it starts, a Java machine perhaps, can be killed with it.
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """End it and all that it started, as a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it politely."""
        await self._end(signal.SIGTERM)

    async def ended(self) -> int:
        """Wait until it ends by itself; its exit code."""
        assert self._process is not None
        return await self._process.wait()

    def said(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    async def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


async def killed_again_and_again(stage: Stage, command: Command, times: int) -> list[Killed]:
    """Start the command and kill it in the midst, so many times; each time a share of what is left has been moved.

    The shares are drawn from the plan's seed. The lives that it had, in order.
    """
    chance = random.Random(stage.plan.seed)
    lives: list[Killed] = []
    async with stage.secondary.administered() as administration:
        for number in range(times):
            before = await _waiting(administration)
            # Of what is left, so that there is something for those that follow.
            share = chance.uniform(0.1, 1.0) / (times + 1 - number)
            await command.start()
            await _until_below(administration, before - max(int(before * share), 1), command)
            await command.kill()
            left = await _waiting(administration)
            lives.append(Killed(before - left, left))
            stage.course.say(f"killed after {before - left:,} messages, {left:,} are left in the backlog")
    return lives


async def _waiting(administration: Administration) -> int:
    """How many messages are in the backlog queues, locked ones included."""
    return sum([entry.counts.active async for entry in administration.queues()])


async def _until_below(administration: Administration, count: int, command: Command) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while command.is_running and time.monotonic() < deadline and await _waiting(administration) > count:
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def described_for_a_command(
    stage: Stage, options: SendAvailabilityOptions, latency_s: float, **given: int
) -> AsyncIterator[Path]:
    """A file that describes the pair, over wires of their own which are as slow as those between datacenters."""
    async with AsyncExitStack() as stack:
        lines = []
        for site in (stage.primary, stage.secondary):
            target = ConnectionString.parse(site.direct.connection_string)
            wire = await stack.enter_async_context(FaultProxy(target.port, target.host))
            wire.latency_s = latency_s
            lines += [f"[{site.name}]", *_namespace(site.direct, wire.port)]
        lines += ["[options]", f"backlog_queue_count = {options.backlog_queue_count}"]
        lines += [f"{name} = {value}" for name, value in given.items()]
        path = stage.directory / "pair.toml"
        path.write_text("\n".join([*lines, ""]))
        path.chmod(0o600)
        yield path


def _namespace(described: NamespaceDescription, port: int) -> list[str]:
    text = at_endpoint(described.connection_string, "127.0.0.1", port)
    return [f'connection_string = "{text}"', f'name = "{described.name}"']
