"""The page about the relay is true: its commands are run as they stand there, and print what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.broker import BrokerProcess, free_ports

PAGE = Path(__file__).parents[2] / "docs" / "relay.md"
END_OF_BLOCK = "-- end of block --"
COMMANDS = {"twinbus": '"{python}" -m twinbus', "python3": '"{python}"'}

pytestmark = pytest.mark.feature("relay")


def blocks() -> list[tuple[str, str]]:
    """Each block of commands with the output that stands behind it; none if no block of text follows."""
    found: list[tuple[str, str]] = []
    for kind, content in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if kind == "bash":
            found.append((content, ""))
        elif kind == "text" and found:
            found[-1] = (found[-1][0], content)
    return found


def relay(directory: Path, name: str) -> BrokerProcess:
    return BrokerProcess(directory, namespace=name, config=f'[[hybrid_connections]]\nName = "my{name}Service"\n')


@pytest.mark.timeout(120)  # Six programs start here.
def test_the_relay_s_page_prints_what_it_says(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, words in COMMANDS.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {words.format(python=sys.executable)} "$@"\n')
        (commands / name).chmod(0o755)
    with relay(tmp_path / "one", "Primary") as primary, relay(tmp_path / "two", "Secondary") as secondary:
        environment = os.environ | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "TWINBUS_CONNECTION_STRING": primary.connection_string(),
            "PORT": str(free_ports(1)[0]),
            "PRIMARY": f"http://{primary.host}:{primary.http_port}",
            "SECONDARY": f"http://{secondary.host}:{secondary.http_port}",
            "KEY": primary.key,
        }
        parts = [content + f"echo '{END_OF_BLOCK}'\n" for content, _ in blocks()]
        script = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", "".join(parts)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, problems = script.communicate(timeout=100)
        finally:
            with suppress(ProcessLookupError):  # What the script left behind, if it did not come to its end.
                os.killpg(script.pid, signal.SIGKILL)
            script.communicate()
    assert (script.returncode, problems) == (0, "")
    assert printed.split(f"{END_OF_BLOCK}\n")[:-1] == [output for _, output in blocks()]
