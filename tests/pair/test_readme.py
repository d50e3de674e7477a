"""The README works from the first line to the last: its commands and samples, in order, in a fresh environment.

Each block of text after a block of commands is what these print. `make drill` and `make test` are not run here; it is
only checked that there are such targets.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from support.broker import free_ports
from twinbus.cli.commands import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
END_OF_BLOCK = "-- end of block --"
NO_INDEX = re.compile(r"No matching distribution found|Could not find a version|ConnectTimeout|NewConnectionError")


# What the page says about an application that is started in the middle of an outage, and restarted: it is killed after
# its fourth message, and goes on with the fifth. Then everything else is restarted.
IN_THE_MIDDLE = """
twinbus fault begin namespace-down --for 1h > fault.log
sed 's/range(40)/range(8)/; s/order/late/g' outage.py | sed 's/lates/orders/g' > late.py
sed 's/^import time/import os, time/; s/time.sleep(0.5)/number < 3 or os.kill(os.getpid(), 9)/' late.py > killed.py
python -u killed.py > late.log 2>> warnings.log || test $? = 137
sed -i 's/range(8)/range(4, 8)/' late.py
python -u late.py >> late.log 2>> warnings.log
twinbus down > down.log
"""
RECEIVED = "twinbus receive orders --count 8 --wait 15 --raw | sort -u | grep -c '^late'\n"


class Block(NamedTuple):
    """A block of the page: its kind, what is in it, and the paragraph before it."""

    kind: str
    content: str
    before: str


def blocks() -> list[Block]:
    page = README.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [Block(each[1], each[2], page[: each.start()].rstrip().rpartition("\n\n")[2]) for each in found]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of this repository, without what was made of them."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "README.md", "LICENSE", "pyproject.toml", "src"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    files = listed or [str(path.relative_to(ROOT)) for path in [*ROOT.glob("src/**/*"), README] if path.is_file()]
    place = tmp_path / "clone"
    for name in files:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
    return place


def _is_free(port: int) -> bool:
    """Whether the secondary can have it."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def script(place: Path) -> tuple[str, list[str]]:
    """Everything that a reader would type, and what each block shall print; samples are saved under their names."""
    amqp, http = next(both for both in iter(lambda: free_ports(2), None) if all(map(_is_free, (p + 100 for p in both))))
    typed, printed = [], []
    for block in blocks():
        if block.kind == "python":
            (name,) = re.findall(r"Save this as `(\w+\.py)`:$", block.before)
            (place / name).write_text(block.content)
        elif block.kind == "bash":
            # Somebody else may use the ports that are there without an option.
            commands = block.content.replace("twinbus up", f"twinbus up --amqp-port {amqp} --http-port {http}")
            typed.append(f"{commands}echo '{END_OF_BLOCK}'\n")
            printed.append("")
        elif block.kind == "text":
            printed[-1] = block.content
    up = next(line for commands in typed for line in commands.splitlines() if line.startswith("twinbus up"))
    typed.append(
        f"{up} > up.log\n{IN_THE_MIDDLE}{up} > up.log\n{RECEIVED}twinbus down > down.log\necho '{END_OF_BLOCK}'\n"
    )
    return "".join(typed), [*printed, "8"]


@pytest.fixture
def run(clone: Path, tmp_path: Path) -> Iterator[tuple[subprocess.CompletedProcess[str], list[str]]]:
    text, printed = script(clone)
    home = tmp_path / "home"
    home.mkdir()
    outside = {name: os.environ[name] for name in os.environ if not name.startswith(("TWINBUS", "PYTHON", "VIRTUAL"))}
    words = [part for part in os.environ["PATH"].split(":") if ".venv" not in part]
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text], cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**outside, "HOME": str(home), "PATH": ":".join(words), "PIP_NO_COMPILE": "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        output, problems = process.communicate(timeout=190)
        yield subprocess.CompletedProcess([], process.returncode, output, problems), printed
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        twinbus = clone / ".venv" / "bin" / "twinbus"
        if twinbus.exists():
            subprocess.run([twinbus, "down"], env={**os.environ, "HOME": str(home)}, capture_output=True)


@pytest.mark.timeout(220)  # A new environment, an outage that lasts, and one with restarts in it.
def test_the_readme_prints_what_it_says(run: tuple[subprocess.CompletedProcess[str], list[str]]) -> None:
    done, printed = run
    if done.returncode and not done.stdout and NO_INDEX.search(done.stderr):
        pytest.skip("needs a package index that pip can reach")
    said = done.stdout.split(f"{END_OF_BLOCK}\n")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for text, shown in zip(said[:-1], printed, strict=True):
        if shown:
            assert text.split() == shown.split()


def test_every_command_and_target_that_it_names_exists() -> None:
    import typer.main

    page = README.read_text()
    top = typer.main.get_command(app)
    known = set(top.commands)  # type: ignore[attr-defined]
    named = set(re.findall(r"`twinbus ([a-z][a-z-]+)", page))
    assert named <= known
    assert named
    for line in re.findall(r"(?m)^\| `twinbus .*$", page):
        group = None
        for word in re.findall(r"`([^`]+)`", line.split("|")[1]):
            first, *rest = word.removeprefix("twinbus ").split()
            if word.startswith("twinbus "):
                group = top.commands[first]  # type: ignore[attr-defined]
                first = rest[0] if rest else ""
            if hasattr(group, "commands") and re.fullmatch("[a-z]+", first):
                assert first in group.commands, f"{word} in {line}"
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    assert set(re.findall(r"(?m)^(?:\| `)?make ([a-z-]+)", page)) <= targets


def test_every_path_that_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README.read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
