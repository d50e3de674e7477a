"""A prompt at the module's broker: a plugin of the modules that are about commands."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from support.broker import BrokerProcess
from support.prompt import Follow, Prompt


@pytest.fixture
def run(broker: BrokerProcess) -> Prompt:
    return Prompt(broker)


@pytest.fixture
def follow(run: Prompt) -> Iterator[Follow]:
    """Starts a command that goes on, and makes sure that it ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        started.append(run.start(*words))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
