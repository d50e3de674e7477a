"""Verifications and backups of a running namespace: one at a time, each in a process of its own.

Commits are held for the moment in which that process begins to read, so that it sees all stores and the catalog at one
instant. What it then does is told in `examiner`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twinbus.broker.opening import Data
from twinbus.entities.namespace import Namespace
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog

_log = EventLog(__name__)

START_S = 30.0  # A busy machine takes a while to start a process.
INSTANT_S = 1.0  # Commits are held for no longer.
TRIES, PAUSE_S = 40, 0.05
LINE_BYTES = 16 * 1024 * 1024
_COMMAND = (sys.executable, "-m", "twinbus.broker.examiner")


class Examinations:
    """What an operator asks about one namespace's data."""

    def __init__(self, namespace: Namespace, data: Data, now_ms: Callable[[], int]) -> None:
        self._namespace = namespace
        self._data = data
        self._now_ms = now_ms
        self._latest: dict[str, dict[str, Any]] = {}
        self._task: asyncio.Task[None] | None = None

    def latest(self, what: str) -> dict[str, Any] | None:
        """How far the latest `verify` or `backup` is, or what came out of it."""
        return self._latest.get(what)

    async def begin(self, what: str, destination: str | None = None) -> dict[str, Any]:
        """Start one; how it stands then."""
        if self._task is not None and not self._task.done():
            raise BusError(Fault.ENTITY_EXISTS, "A verification or a backup of this namespace is under way already.")
        asked = {**self._data.place(), "name": self._namespace.name}
        if destination is not None:
            if "directory" not in asked:
                text = "The stores are databases of PostgreSQL: back these up with its own tools (docs/operating.md)."
                raise BusError(Fault.NOT_ALLOWED, text)
            asked["destination"] = destination
        state = {"what": what, "state": "running", "began_ms": self._now_ms(), "ended_ms": None, "why": None}
        state |= {"destination": destination, "progress": None, "result": None, "held_ms": None}
        self._latest[what] = state
        self._task = asyncio.create_task(self._run(state, asked))
        return state

    async def _run(self, state: dict[str, Any], asked: dict[str, Any]) -> None:
        what, name = state["what"], self._namespace.name
        _log.info("examination.begun", "the {what} of '{namespace}' has begun", what=what, namespace=name)
        try:
            await self._examine(state, asked)
        except BusError as error:
            state["why"] = error.text
        except (OSError, ValueError, TimeoutError) as error:
            state["why"] = f"The process that does it failed: {error!r}"
        finally:
            state["state"] = "done" if state["result"] is not None else "failed"
            state["why"] = state["why"] or (None if state["result"] is not None else "It was given up.")
            state["ended_ms"] = self._now_ms()
            self._tell_end(state)

    def _tell_end(self, state: dict[str, Any]) -> None:
        what, name = state["what"], self._namespace.name
        if state["result"] is None:
            text = "the {what} of '{namespace}' failed: {error}"
            _log.error("examination.failed", text, what=what, namespace=name, error=state["why"])
        elif state["result"].get("whole", True):
            _log.info("examination.ended", "the {what} of '{namespace}' is done", what=what, namespace=name)
        else:
            text = "the verification of '{namespace}' has {findings} findings"
            _log.error("examination.findings", text, namespace=name, findings=len(state["result"]["findings"]))

    async def _examine(self, state: dict[str, Any], asked: dict[str, Any]) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=pipe, stdout=pipe, limit=LINE_BYTES)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            if await self._hear(process.stdout, state, "ready", START_S):
                await self._at_one_instant(process, state)
            while await self._hear(process.stdout, state, "result", None) is False:
                pass
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def _at_one_instant(self, process: asyncio.subprocess.Process, state: dict[str, Any]) -> None:
        """While nothing is being made or removed, hold all commits until the process has begun to read."""
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(TRIES):
            if not self._namespace.is_changing:
                break
            await asyncio.sleep(PAUSE_S)
        loop = asyncio.get_running_loop()
        async with self._data.holding():
            began = loop.time()
            process.stdin.write(b"now\n")
            await self._hear(process.stdout, state, "begun", INSTANT_S)
            state["held_ms"] = round((loop.time() - began) * 1000, 3)

    async def _hear(
        self, output: asyncio.StreamReader, state: dict[str, Any], awaited: str, timeout_s: float | None
    ) -> bool:
        """Read a line; whether it is the one that is awaited. Raises what went wrong."""
        line = await asyncio.wait_for(output.readline(), timeout_s)
        if not line:
            raise BusError(Fault.INTERNAL, "The process that does it has ended.")
        told = json.loads(line)
        if "error" in told:
            raise BusError(Fault.NOT_ALLOWED, str(told["error"]))
        if "progress" in told:
            state["progress"] = told["progress"]
        if "result" in told:
            state["result"] = told["result"]
        return awaited in told

    async def close(self) -> None:
        """Give up what is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
