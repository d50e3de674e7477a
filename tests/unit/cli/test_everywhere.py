"""`-h`, `--help` and `--version` behind every command and every group."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from twinbus import __version__
from twinbus.cli import app
from twinbus.cli.commands import MODULES, program_for

PROGRAM = typer.main.get_command(app)
ALONE = {name: typer.main.get_command(program_for([name, "--any"])) for name in (*MODULES, "version")}


def all_paths(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from all_paths(command, (*path, name))


PATHS = list(all_paths(PROGRAM))
EACH = [(PROGRAM, path) for path in PATHS] + [(ALONE["serve"], path) for path in all_paths(ALONE["serve"])]


def said(program: Any, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ending:
        program.main(list(words), prog_name="twinbus")
    assert ending.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("program", "path"), EACH)
def test_help_and_version_are_there(program: Any, path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Help is not written out here, which takes a while: it is parsed, and nothing else has its letter."""
    assert said(program, (*path, "--version"), capsys) == f"twinbus {__version__}\n"
    command, context = program, None
    for name in ("twinbus", *path):
        command = command.commands[name] if context is not None else command
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    assert context is not None
    assert context.help_option_names == ["-h", "--help"]
    assert [sorted(each.opts) for each in command.get_params(context) if "-h" in each.opts] == [["--help", "-h"]]


@pytest.mark.parametrize("path", [(), ("serve",), ("keys",), ("keys", "list")])
def test_help_is_the_same_by_either_name(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    short = said(PROGRAM, (*path, "-h"), capsys)
    assert f"Usage: {' '.join(('twinbus', *path))} " in short
    assert said(PROGRAM, (*path, "--help"), capsys) == short


def test_all_commands_are_among_them() -> None:
    assert {("serve",), ("keys",), ("keys", "list"), ("pipeline", "reconcile")} <= set(PATHS)


def test_each_command_is_there_alone_with_all_that_is_below_it() -> None:
    assert set(ALONE) == set(PROGRAM.commands)  # type: ignore[attr-defined]
    for name, program in ALONE.items():
        assert set(all_paths(program)) == {(), *(path for path in PATHS if path[:1] == (name,))}


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["no-such-command"], ["--install-completion"]])
def test_who_names_no_command_gets_all_of_them(words: list[str]) -> None:
    assert set(all_paths(typer.main.get_command(program_for(words)))) == set(PATHS)


def test_who_names_a_command_imports_no_other() -> None:
    asked = (
        "import sys; from twinbus.cli.commands import program_for; program_for(['certs']);"
        " print(sorted({'twinbus.cli.certs', 'twinbus.cli.serve', 'twinbus.cli.send'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "['twinbus.cli.certs']"


@pytest.mark.parametrize("words", [("--version",), ("serve", "--version")])
def test_the_module_is_the_command(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "twinbus", *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"twinbus {__version__}\n", "")
