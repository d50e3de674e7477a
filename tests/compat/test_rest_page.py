"""The page about REST is true: its commands are run as they stand there, and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
END_OF_BLOCK = "-- end of block --"

pytestmark = pytest.mark.feature("rest")


def blocks() -> list[tuple[str, str]]:
    """Each block of commands with the output that stands behind it; none if no block of text follows."""
    fenced = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found: list[tuple[str, str]] = []
    for kind, content in fenced:
        if kind == "bash":
            found.append((content, ""))
        elif kind == "text" and found:
            found[-1] = (found[-1][0], content)
    return found


def test_the_commands_print_what_the_page_says(broker: BrokerProcess, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "twinbus").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m twinbus "$@"\n')
    (commands / "twinbus").chmod(0o755)
    broker.create_queue("orders")
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "TWINBUS_CONNECTION_STRING": broker.connection_string(),
        "BUS": f"http://{broker.host}:{broker.http_port}",
    }
    parts = [content + f"echo '{END_OF_BLOCK}'\n" for content, _ in blocks()]
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(parts)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    printed = run.stdout.split(f"{END_OF_BLOCK}\n")[:-1]
    assert printed == [output for _, output in blocks()]
    assert len(printed) > 5
