"""`twinbus backup` and `twinbus restore`: a namespace's files copied at one instant, checked, and put back elsewhere.

What a backup holds, and what a restore means for a pair, is told in docs/operating.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.running import PromptError, command
from twinbus.cli.verify import Bar, examined

DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        metavar="DIRECTORY",
        help="Back up the files of a stopped broker, instead of asking one that runs.",
        show_default=False,
    ),
]


@command
async def backup(
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="DESTINATION",
            help="A directory that is empty or not there, on the broker's machine.",
            show_default=False,
        ),
    ],
    directory: DirectoryOption = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Copy a namespace on SQLite while it runs: catalog and all stores at one instant, checked before it is done."""
    whole = destination.absolute()
    if directory is None:
        place = namespace(connection_string, ca, http_port)
        manifest = (await examined(place, "backup", str(whole)))["result"]
    else:
        manifest = _back_up_files(directory, whole)
    output = Output(json)
    if json:
        output.record({**manifest, "destination": str(whole)})
        return
    output.line(f"{whole}: {_told(manifest)}.")


@command
async def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `backup` has made.", show_default=False)],
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="The new data directory: empty, or not there.", show_default=False),
    ],
    json: JsonOption = False,
) -> None:
    """Put a backup into a data directory of its own, for `serve --data`; what came after the backup is not in it."""
    from twinbus.broker.copying import CopyFailedError
    from twinbus.broker.copying import restore as put_back
    from twinbus.broker.settings import SettingsError

    try:
        with progress_bar("Copying", None) as bar:
            manifest = put_back(backup.absolute(), directory.absolute(), Bar(bar))
    except (CopyFailedError, SettingsError) as problem:
        raise PromptError(str(problem)) from None
    output = Output(json)
    if json:
        output.record({**manifest, "directory": str(directory.absolute())})
        return
    output.line(f"{directory.absolute()}: {_told(manifest)}, as of {manifest['taken_at']}.")


def _back_up_files(directory: Path, destination: Path) -> dict[str, Any]:
    from twinbus.broker.copying import CopyFailedError, Source, back_up
    from twinbus.broker.settings import SettingsError
    from twinbus.broker.verifying import files_in, opened_files, unused
    from twinbus.model.errors import BusError

    try:
        files = files_in(directory)
        with unused(directory), opened_files(files, is_in_use=False) as opened, progress_bar("Copying", None) as bar:
            source = Source(directory.absolute().name, files, opened)
            return back_up(source, destination, Bar(bar), lambda took_s: None, lambda: None)
    except (CopyFailedError, SettingsError) as problem:
        raise PromptError(str(problem)) from None
    except BusError as error:
        raise PromptError(error.text) from None


def _told(manifest: Mapping[str, Any]) -> str:
    messages = sum(store["messages"] for store in manifest["stores"])
    size = sum(file["bytes"] for file in manifest["files"])
    entities = manifest["entities"]
    return f"{len(manifest['stores'])} stores with {entities:,} entities and {messages:,} messages, {size:,} bytes"
