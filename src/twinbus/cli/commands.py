"""All commands of `twinbus`: which module has which. Whoever names one gets it without the others, in half the time.

Commands only read their arguments and show what happens; the work is done in the package each one names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import typer

from twinbus import __version__
from twinbus.cli.everywhere import program

# In the order of the help; each is the function or the group of its own name, but for hyphens, in a module of `cli`.
MODULES = {
    "serve": "serve",
    "up": "up",
    "down": "up",
    "logs": "up",
    "send": "send",
    "receive": "receive",
    "peek": "peek",
    "dlq": "dlq",
    "entity": "entity",
    "keys": "keys",
    "policy": "policy",
    "status": "upkeep",
    "store": "store",
    "catalog": "catalog",
    "verify": "verify",
    "backup": "backup",
    "restore": "backup",
    "purge": "upkeep",
    "reset": "upkeep",
    "clock": "upkeep",
    "fault": "fault",
    "pair": "pair",
    "syphon": "syphon",
    "outbox": "outbox",
    "ledger": "ledger",
    "pipeline": "pipeline",
    "relay": "relay",
    "explain": "explain",
    "certs": "certs",
    "check-config": "config",
    "bench": "bench",
    "bench-filters": "bench_filters",
    "bench-ledger": "bench_ledger",
    "bench-outbox": "bench_outbox",
    "bench-pair": "bench_pair",
    "bench-syphon": "bench_syphon",
    "bench-source": "bench_source",
    "drill": "drill",
}
VERSION = "version"


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def program_of(*names: str) -> typer.Typer:
    """A `twinbus` with these commands alone; nothing else is imported."""
    made = program(no_args_is_help=True)
    for name in names:
        if name == VERSION:
            made.command(name)(version)
            continue
        command = getattr(import_module(f"twinbus.cli.{MODULES[name]}"), name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name)(command)
    return made


def program_for(words: list[str]) -> typer.Typer:
    """What these words of a command line need: one command, or all of them where help or a wrong word asks for them."""
    return program_of(words[0]) if words and words[0] in {*MODULES, VERSION} else program_of(*MODULES, VERSION)


if TYPE_CHECKING:
    app: typer.Typer


def __getattr__(name: str) -> typer.Typer:
    """All commands, made when `app` is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = made = program_of(*MODULES, VERSION)
    return made
