"""docs/cli.md is complete: every command has a section, and every option its row with the words of `--help`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer.main

from twinbus.cli import app

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "cli.md"
README = ROOT / "README.md"
COMMON = "Options of every command that talks to a namespace"


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands())


def rows(command: Any) -> list[str]:
    """What the page says about the options of a command, row by row."""
    found = []
    for parameter in command.params:
        if parameter.param_type_name != "option" or parameter.name == "help" or parameter.hidden:
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        names.sort(key=lambda name: (not name.startswith("--"), name in parameter.secondary_opts))
        default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
        told = "" if default in (None, False, "", 0) else f" Default: `{default}`."
        found.append(f"| {', '.join(f'`{name}`' for name in names)} | {parameter.help}{told} |")
    return found


def sections() -> dict[str, str]:
    """The text under each heading of the page."""
    pieces = re.split(r"(?m)^#+ (.*)$", PAGE.read_text())
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def section_of(name: str) -> tuple[str, str]:
    """Heading and text of a command's section."""
    found = [
        (heading, text)
        for heading, text in sections().items()
        if re.match(rf"`twinbus {re.escape(name)}(?: (?=[A-Z[\-])[^`]*)?`$", heading)
    ]
    assert len(found) == 1, f"docs/cli.md needs one heading for `twinbus {name}`, and has {len(found)}"
    return found[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_option_and_no_other(name: str) -> None:
    expected = rows(COMMANDS[name])
    common = [row for row in sections()[COMMON].splitlines() if row in expected]
    written = [row for row in section_of(name)[1].splitlines() if row.startswith("| `")]
    missing = "\n".join(row for row in expected if row not in written + common)
    assert not missing, f"docs/cli.md lacks under `twinbus {name}`:\n{missing}"
    assert [row for row in written if row not in expected] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_heading_has_every_argument(name: str) -> None:
    arguments = [parameter for parameter in COMMANDS[name].params if parameter.param_type_name == "argument"]
    heading = section_of(name)[0]
    for argument in arguments:
        word = argument.metavar or argument.name.upper()
        assert word in heading, f"the heading of `twinbus {name}` lacks {word}"


def test_the_page_has_no_command_that_is_not_there() -> None:
    headings = re.findall(r"(?m)^#+ `twinbus ([a-z-]+(?: [a-z-]+)*)", PAGE.read_text())
    assert sorted(headings) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_a_sentence_of_help(name: str) -> None:
    command = COMMANDS[name]
    texts = [command.help, *[parameter.help for parameter in command.params if parameter.name != "help"]]
    assert all(texts), f"`twinbus {name}` has something without help"


@pytest.mark.parametrize("word", sorted({name.split()[0] for name in COMMANDS} - {"version"}))
def test_the_readme_names_every_command(word: str) -> None:
    assert f"`twinbus {word}" in README.read_text()
