"""`twinbus catalog`: the list of entities of a stopped namespace made anew, or declared to be the right one.

For files or databases that do not belong together any more; the work is done in `broker.mending`, and docs/store.md
says when.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean
from twinbus.model.extras import require

if TYPE_CHECKING:
    from twinbus.broker.mending import Mended

catalog = typer.Typer(no_args_is_help=True, help="Mend the catalog of a namespace while no broker serves it.")

PlacesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="DIRECTORY|DATABASE...",
        help="The data directory, or the addresses of the databases in their order.",
        show_default=False,
    ),
]
NamespaceOption = Annotated[str, typer.Option(help="Name of the namespace in the databases.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@catalog.command("rebuild")
@command
async def rebuild(
    places: PlacesArgument, namespace: NamespaceOption = "twinbus", yes: YesOption = False, json: JsonOption = False
) -> None:
    """Make the catalog anew from what the messaging stores remember; one that is there is moved away.

    Queues, topics, subscriptions and their rules come back. Policies of the namespace and hybrid connections do not:
    the keys of RootManageSharedAccessKey will be new, unless the settings give them.
    """
    from twinbus.broker import mending

    with _mended(places, namespace) as mended:
        confirm(f"Make the catalog of {clean(mended.label)} anew?", yes)
        made = mending.rebuild(mended)
    output = Output(json)
    if json:
        output.record({**made._asdict(), "moved_to": made.moved_to or None})
        return
    output.line(f"The catalog has {len(made.entities)} entities again.")
    if made.moved_to:
        output.line(f"The one that was there is {made.moved_to} now.")
    if made.unknown:
        output.line(
            f"{made.unknown} entities or parts are not described, or were set aside: `twinbus store orphans` will list"
            " them."
        )
    for index in made.missing:
        output.line(
            f"Messaging store {index} is missing. It will be set aside until it is put back, and what only it knows"
            " will then be listed by `twinbus store orphans`."
        )


@catalog.command("accept")
@command
async def accept(places: PlacesArgument, namespace: NamespaceOption = "twinbus", yes: YesOption = False) -> None:
    """Declare the catalog to be the right one, although its stores have seen a newer one.

    What it does not know is set aside at the next start: `twinbus store orphans` lists it. Policies and settings are as
    they were in this catalog, so that a key which was rotated since then is good again.
    """
    from twinbus.broker import mending

    with _mended(places, namespace) as mended:
        confirm(f"Take the catalog of {clean(mended.label)} for the right one?", yes)
        mending.accept(mended)


@contextmanager
def _mended(places: list[str], namespace: str) -> Iterator[Mended]:
    """The namespace that is in these places, while nobody serves it."""
    from twinbus.broker.settings import SettingsError
    from twinbus.model.errors import BusError

    try:
        with _place(places, namespace) as mended:
            yield mended
    except SettingsError as problem:
        raise PromptError(str(problem)) from None
    except BusError as problem:
        raise PromptError(problem.text) from None


def _place(places: list[str], namespace: str) -> AbstractContextManager[Mended]:
    if not places[0].startswith(("postgresql://", "postgres://")):
        from twinbus.broker.mending import mended_files

        if len(places) > 1:
            raise PromptError("A namespace in files has one directory.")
        return mended_files(Path(places[0]))
    require("psycopg")
    from twinbus.broker.addresses import DatabaseAddress
    from twinbus.broker.mending_shared import mended_databases

    return mended_databases([DatabaseAddress(place) for place in places], namespace)
