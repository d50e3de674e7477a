"""Which pair a command is about: the options that say it, read as an application's client reads them.

What a description may say is told in `twinbus.pair.description`; here its problems get the lines that they are on.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import Namespace, trusting
from twinbus.cli.running import PromptError
from twinbus.cli.showing import clean
from twinbus.model.extras import require

if TYPE_CHECKING:
    from twinbus.pair.description import DescriptionError, PairDescription
    from twinbus.pair.ledger.tags import Tag
    from twinbus.pair.replication.policy import Names

PairOption = Annotated[
    Path | None,
    typer.Option("--pair", envvar="TWINBUS_PAIR", show_default=False, help="The pair, by its TOML description."),
]
PrimaryOption = Annotated[
    str | None,
    typer.Option(
        "--primary", envvar="TWINBUS_PRIMARY", show_default=False, help="The primary namespace, by connection string."
    ),
]
SecondaryOption = Annotated[
    str | None,
    typer.Option(
        "--secondary",
        envvar="TWINBUS_SECONDARY",
        show_default=False,
        help="The secondary namespace, by connection string.",
    ),
]


def described(pair: Path | None, primary: str | None, secondary: str | None) -> PairDescription:
    """The pair that the options name; a PromptError that says what is wrong with it, and where."""
    from twinbus.pair.description import DescriptionError, PairDescription  # The SDK takes half a second.

    logging.getLogger("twinbus.pair").setLevel(logging.ERROR)  # The commands tell what happens in their own words.
    given = {"TWINBUS_PRIMARY": primary, "TWINBUS_SECONDARY": secondary}
    environment = {**os.environ, **{name: text for name, text in given.items() if text}}
    try:
        description = PairDescription.read(pair, environment)
        description.namespaces()
    except DescriptionError as problem:
        raise PromptError(_with_lines(pair, problem)) from None
    except ValueError as problem:
        raise PromptError(str(problem)) from None
    return description


def require_for(where: str) -> None:
    """Says in one sentence what is missing for a ledger or an outbox in this place."""
    is_database = where.startswith(("postgresql://", "postgres://"))
    require("azure.servicebus", *(["psycopg"] if is_database else []))


def parsed_tag(text: str | None, pair: PairDescription | None = None) -> Tag:
    """What copies share: as the option says, else as the pair does, else the MessageId."""
    from twinbus.pair.ledger.tags import Tag

    if text is None:
        return Tag() if pair is None else pair.tag
    try:
        return Tag.parse(text)
    except ValueError as problem:
        raise PromptError(clean(str(problem))) from None


async def both(pair: Path) -> tuple[list[Namespace], Names]:
    """The two namespaces of a pair, as other commands use one, and what entities are called in them.

    They are asked where they are administered.
    """
    from twinbus.pair.replication.policy import Names

    description = described(pair, None, None)
    found = []
    for namespace, told in zip(description.namespaces(), (description.primary, description.secondary), strict=True):
        try:
            found.append(Namespace(namespace.target, await namespace.http_address(), trusting(told.ca)))
        finally:
            await namespace.close()
    return found, Names(description.entities)


def _with_lines(pair: Path | None, error: DescriptionError) -> str:
    """Each problem with its line, where it is one of the file's."""
    from twinbus.broker.lines import toml_lines

    if pair is None or not any(problem.path for problem in error.problems):
        return str(error)
    lines = toml_lines(pair.read_text(encoding="utf-8"))
    told = [(f"{pair}:{lines.of(path)}" if path else str(pair), text) for path, text in error.problems]
    return "\n".join(f"{where}: {text}" for where, text in told)
