"""Which evidence a command reads: the options that name files, and the namespaces that can be asked for more.

Gathering is done in `twinbus.pipeline`; what the files are is told in docs/reconcile.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import trusting
from twinbus.cli.pairing import described
from twinbus.cli.running import PromptError
from twinbus.cli.showing import clean

if TYPE_CHECKING:
    from twinbus.pair.namespace.own_client import OwnClientNamespace
    from twinbus.pipeline.proof.evidence import Evidence


def _files(name: str, text: str, metavar: str) -> Any:
    return typer.Option(name, metavar=metavar, show_default=False, help=f"{text}; may be given several times.")


JournalsOption = Annotated[list[Path] | None, _files("--journal", "A directory of exported journal", "DIR")]
ResidentsOption = Annotated[
    Path | None,
    typer.Option(
        "--residents",
        metavar="FILE",
        show_default=False,
        help="What is still in the entities, as a run before kept it.",
    ),
]
SendLogsOption = Annotated[list[Path] | None, _files("--send-log", "What a sender wrote of what it sent", "FILE")]
LedgersOption = Annotated[
    list[Path] | None, _files("--ledger", "What `twinbus ledger export` wrote of a ledger", "FILE")
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Ask no namespace, also if the environment names some: read files alone.")
]


def evidence_of(
    journal: list[Path] | None, residents: Path | None, send_log: list[Path] | None, ledger: list[Path] | None
) -> Evidence:
    """The files that the options name."""
    with readable():
        from twinbus.pipeline.proof.evidence import Evidence

    for path in [*(journal or []), *(send_log or []), *(ledger or []), *([residents] if residents else [])]:
        if not path.exists():
            raise PromptError(f"There is no {clean(str(path))}.")
    return Evidence(journal or [], residents, send_log or [], ledger or [])


@asynccontextmanager
async def namespaces(
    pair: Path | None, primary: str | None, secondary: str | None
) -> AsyncIterator[list[OwnClientNamespace]]:
    """The namespaces that can be asked, for the time of a block: a pair, or the one that `--primary` names."""
    from twinbus.client import ConnectionString
    from twinbus.pair.namespace.own_client import OwnClientNamespace

    if primary and not secondary and pair is None:
        try:
            found = [OwnClientNamespace("primary", ConnectionString.parse(primary), tls=trusting(None))]
        except ValueError as problem:
            raise PromptError(f"This will not do: {problem}.") from None
    else:
        found = list(described(pair, primary, secondary).namespaces())
    try:
        yield found
    finally:
        for namespace in found:
            await namespace.close()


@contextmanager
def readable() -> Iterator[None]:
    """What is wrong with evidence becomes a sentence at the prompt."""
    from twinbus.pipeline.errors import PipelineError

    try:
        yield
    except PipelineError as problem:
        raise PromptError(clean(str(problem))) from None
