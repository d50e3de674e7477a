"""Run in an environment without extras: imports every module, asks every command for help, and runs a list of them.

Reads the list as JSON from a file and writes what happened into another; judging it is the test's work. One process
for all, because starting one for each command would take a minute. The commands have a namespace to talk to.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

import twinbus
from twinbus.cli import app
from twinbus.cli.commands import program_for
from twinbus.testing import namespace

# Made once: to make all commands takes longer than to run most of them.
ALL = typer.main.get_command(app)


@cache
def alone(name: str) -> Any:
    """One command as the prompt has it: without the others."""
    return typer.main.get_command(program_for([name]))


def _skip(name: str) -> None:
    """A package that cannot be imported is told of when it is its turn; modules inside it are not reached."""


def imported() -> dict[str, tuple[str, str]]:
    """What the import of each module ended with: the kind of its problem, and its words; neither if it is there."""
    found = {}
    names = ["pyspark_servicebus", *(each.name for each in pkgutil.walk_packages(twinbus.__path__, "twinbus.", _skip))]
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except ImportError as problem:
            found[name] = (type(problem).__name__, str(problem))
        else:
            found[name] = ("", "")
    return found


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Every command by its words, and whether it is a group of others."""
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        yield (*path, name), is_group
        if is_group:
            yield from commands(command, (*path, name))


def ran(words: Sequence[str]) -> dict[str, Any]:
    """What a command did, and how it ended."""
    stdout, stderr = io.StringIO(), io.StringIO()
    code, crashed = 0, None
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            alone(words[0])(words, prog_name="twinbus")
        except SystemExit as end:
            code = end.code or 0
        except BaseException as problem:
            crashed = repr(problem)
    return {"code": code, "stdout": stdout.getvalue(), "stderr": stderr.getvalue(), "crashed": crashed}


def main(asked: Path, answers: Path) -> None:
    """Everything, once."""
    os.chdir(asked.parent)
    every = list(commands(ALL))
    helped = {" ".join(words): ran([*words, "--help"]) for words, _ in every}
    with namespace("plain") as made:
        os.environ["TWINBUS_CONNECTION_STRING"] = made.connection_string
        done = [ran(words) for words in json.loads(asked.read_text())]
    leaves = [" ".join(words) for words, is_group in every if not is_group]
    answers.write_text(json.dumps({"imported": imported(), "leaves": leaves, "helped": helped, "done": done}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
