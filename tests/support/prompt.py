"""Commands as a person or a script runs them against a broker process.

What they must print is for the tests to say.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from typer.testing import CliRunner

from support.broker import BrokerProcess
from support.forking import run_twinbus
from twinbus.cli import app

SOON_S = 30


class Done(NamedTuple):
    """A command that has ended, and what it printed."""

    code: int
    stdout: str
    stderr: str


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Prompt:
    """Runs commands against one broker."""

    def __init__(self, broker: BrokerProcess, connection_string: str | None = None) -> None:
        self.environment = {
            **os.environ,
            "TWINBUS_CONNECTION_STRING": connection_string or broker.connection_string(),
        }

    def __call__(self, *words: str, typed: str | None = None, code: int = 0) -> Done:
        """One command to its end, which must be `code`; in this process, which is quicker, unless somebody types."""
        if typed is None and not _in_a_loop():
            result = CliRunner().invoke(app, words, env=self.environment)
            done = Done(result.exit_code, result.stdout, result.stderr)
        else:
            ended = run_twinbus(list(words), self.environment, typed=typed or "", timeout_s=SOON_S)
            done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert done.code == code, f"{words} ended with {done.code}:\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> list[dict[str, Any]]:
        """What a command prints for scripts."""
        return [json.loads(line) for line in self(*words, "--json").stdout.splitlines()]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "twinbus", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )


Follow = Callable[..., "subprocess.Popen[str]"]


def bodies(found: list[dict[str, Any]]) -> list[str]:
    """What messages say, as `--json` tells them."""
    return [message["body"] for message in found]


def kill_off(run: Prompt, queue: str, reason: str, *texts: str) -> None:
    """Sends messages and moves them to the dead letters."""
    run("send", queue, *texts, "-p", "kept=yes")
    run("receive", queue, "--count", str(len(texts)), "--dead-letter", "--reason", reason, "--description", "in words")
