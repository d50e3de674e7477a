"""`twinbus catalog`: the list of entities of a stopped namespace made anew, or declared to be the right one.

For files that do not belong together any more; the work is done in `broker.mending`, and docs/store.md tells when.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean
from twinbus.model.extras import require

T = TypeVar("T")
catalog = typer.Typer(no_args_is_help=True, help="Mend the catalog of a namespace while no broker serves it.")

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The namespace's data directory.", show_default=False)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@catalog.command("rebuild")
@command
async def rebuild(directory: DirectoryArgument, yes: YesOption = False, json: JsonOption = False) -> None:
    """Make the catalog anew from what the messaging stores remember; one that is there is moved away.

    Queues, topics, subscriptions and their rules come back. Policies of the namespace and hybrid connections do not:
    the keys of RootManageSharedAccessKey will be new, unless the settings give them.
    """
    from twinbus.broker import mending

    confirm(f"Make the catalog of {directory} anew?", yes)
    made = _mended(lambda: mending.rebuild(directory))
    output = Output(json)
    if json:
        output.record({"entities": made.entities, "unknown": made.unknown, "moved_to": made.moved_to or None})
        return
    output.line(f"The catalog has {len(made.entities)} entities again.")
    if made.moved_to:
        output.line(f"The one that was there is {made.moved_to} now.")
    if made.unknown:
        output.line(f"{made.unknown} entities or parts are not described: `twinbus store orphans` will list them.")


@catalog.command("accept")
@command
async def accept(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="DIRECTORY|DATABASE...",
            help="The data directory, or the addresses of the databases in their order.",
            show_default=False,
        ),
    ],
    namespace: Annotated[str, typer.Option(help="Name of the namespace in the databases.")] = "twinbus",
    yes: YesOption = False,
) -> None:
    """Declare the catalog to be the right one, although its stores have seen a newer one.

    What it does not know is set aside at the next start: `twinbus store orphans` lists it. Policies and settings are as
    they were in this catalog, so that a key which was rotated since then is good again.
    """
    from twinbus.broker import mending

    if not places[0].startswith(("postgresql://", "postgres://")):
        if len(places) > 1:
            raise PromptError("A namespace in files has one directory.")
        confirm(f"Take the catalog in {places[0]} for the right one?", yes)
        _mended(lambda: mending.accept(Path(places[0])))
        return
    require("psycopg")
    from twinbus.broker import mending_shared
    from twinbus.broker.addresses import DatabaseAddress

    addresses = _mended(lambda: [DatabaseAddress(place) for place in places])
    confirm(f"Take the catalog of '{clean(namespace)}' at {addresses[0].label} for the right one?", yes)
    _mended(lambda: mending_shared.accept(addresses, namespace))


def _mended(work: Callable[[], T]) -> T:
    from twinbus.broker.settings import SettingsError
    from twinbus.model.errors import BusError

    try:
        return work()
    except SettingsError as problem:
        raise PromptError(str(problem)) from None
    except BusError as problem:
        raise PromptError(problem.text) from None
