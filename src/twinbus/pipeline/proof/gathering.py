"""Evidence from namespaces that are running: first what is in their entities, then their journals up to now.

In this order, because then whatever the browse saw is in the journal, and what ended meanwhile is known to have ended.
Judging is `reconcile`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from twinbus.client.atom import AtomError
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.proof import residents
from twinbus.pipeline.proof.evidence import Evidence
from twinbus.pipeline.proof.residents import Browsed

_NO_JOURNAL = (403, 404, 405, 501)

Tell = Callable[[str], None]


@dataclass(slots=True)
class Exported:
    """Where journals are, and who has none."""

    directories: list[Path] = field(default_factory=list)
    without: list[str] = field(default_factory=list)


async def gather(
    namespaces: Sequence[OwnClientNamespace], evidence: Evidence, directory: Path, tell: Tell = lambda step: None
) -> tuple[Evidence, list[str]]:
    """Browse and export; the evidence with what was found, and remarks about what could not be.

    The file of residents is written into `directory`. Journals that the evidence names are taken instead of the
    directories that the namespaces name, which may be on other machines.
    """
    browsed: list[Browsed] = []
    for namespace in namespaces:
        tell("browsing")
        browsed.append(await residents.browse(namespace, lambda path: tell(f"browsing {path}")))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "residents.parquet"
    residents.write(path, browsed)
    tell("exporting the journals")
    exported = await export(namespaces, needed=not evidence.journals)
    remarks = [f"Not browsed in '{each.namespace}': {text}" for each in browsed for text in each.left_out]
    gathered = replace(
        evidence,
        residents=path,
        journals=[*evidence.journals] or exported.directories,
        without_journal=[*evidence.without_journal, *exported.without],
    )
    return gathered, remarks


async def export(namespaces: Sequence[OwnClientNamespace], needed: bool) -> Exported:
    """Have every namespace write its journal up to now. `needed`: its directory must be one of this machine."""
    found = Exported()
    for namespace in namespaces:
        name = await namespace.name()
        try:
            async with await namespace.administer() as administration:
                told = await administration.ask_json("POST", "$api/journal/export", {})
        except AtomError as problem:
            if problem.status not in _NO_JOURNAL:
                raise
            found.without.append(name)
            continue
        directory = Path(str(told["directory"]))
        if needed and not directory.is_dir():
            raise PipelineError(
                f"The journal of '{name}' is in {directory} on its own machine: say with --journal where it can be"
                " read from here."
            )
        if directory not in found.directories:
            found.directories.append(directory)
    return found
