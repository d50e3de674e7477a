"""What every command and every group of commands knows: `-h` beside `--help`, and `--version`.

One command alone and all of them together are programs of one name; `commands` makes them with this.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from twinbus.cli.missing import Commands

HELP_NAMES = {"help_option_names": ["-h", "--help"]}  # Handed down from group to group, to the last command.


def print_version(wanted: bool) -> None:
    """Print the version and end."""
    from twinbus import __version__

    if wanted:
        typer.echo(f"twinbus {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
]


class Program(Commands):
    """The outermost group. Its option `--version` is good behind every command, too, where no help mentions it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        (option,) = [each for each in self.params if each.name == "version"]
        quiet: Any = copy.copy(option)
        quiet.hidden, quiet.expose_value = True, False
        for command in _all_below(self):
            command.params = [*command.params, quiet]


def _all_below(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield command
        if hasattr(command, "commands"):
            yield from _all_below(command)


def program(**settings: Any) -> typer.Typer:
    """A `twinbus` without commands."""
    made = typer.Typer(
        name="twinbus", cls=Program, context_settings=HELP_NAMES, pretty_exceptions_enable=False, **settings
    )

    @made.callback()
    def _root(version: VersionOption = False) -> None:
        """A Service Bus that survives the loss of its datacenter."""

    return made
