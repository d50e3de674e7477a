"""`twinbus check-config`: says whether a configuration file is good, or lists everything that is wrong with it.

Reads as `serve` does and starts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check_config(
    file: Annotated[Path | None, typer.Argument(help="TOML settings, or the official emulator's Config.json.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the TOML instead.")] = False,
) -> None:
    """Check a configuration file: every problem with its line, and exit code 1 if there is one."""
    from twinbus.broker.config import from_file
    from twinbus.broker.reference import schema_text
    from twinbus.broker.settings import Settings, SettingsError
    from twinbus.model.extras import MissingExtraError, missing

    if schema:
        typer.echo(schema_text(), nl=False)
        return
    if file is None:
        raise typer.BadParameter("Name a file, or ask for the schema with --schema.")
    try:
        settings: Settings = from_file(file)
        settings.check()
    except SettingsError as problem:
        typer.echo(problem, err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{file}: ok")
    for namespace in settings.namespaces:
        subscriptions = sum(len(topic.subscriptions) for topic in namespace.topics)
        counts = {"queue": len(namespace.queues), "topic": len(namespace.topics), "subscription": subscriptions}
        told = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())
        typer.echo(f"  namespace '{namespace.name}': {told}")
    if absent := missing(*settings.extra_modules):
        typer.echo(f"It cannot be served here yet. {MissingExtraError(absent)}", err=True)
