"""What files of evidence say of themselves: whether their version is known here, and how many rows they have.

What is in them is read by `reconcile` with Spark, and by `explain` without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from twinbus.model.extras import needing
from twinbus.model.journal import VERSION, VERSION_KEY
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.proof.evidence import RESIDENTS_VERSION, RESIDENTS_VERSION_KEY

with needing("pyarrow"):
    import pyarrow as pa
    import pyarrow.parquet as pq


def check_journal(files: Sequence[Path]) -> None:
    """The newest file of a journal has a version that is known; a PipelineError otherwise."""
    newest = max(files, key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is not None:
        _check(newest, VERSION_KEY, VERSION, "journal")


def check_residents(path: Path) -> None:
    """A file of residents has a version that is known; a PipelineError otherwise."""
    if not path.is_file():
        raise PipelineError(f"There is no file of residents {path}.")
    _check(path, RESIDENTS_VERSION_KEY, RESIDENTS_VERSION, "file of residents")


def operations_in(files: Iterable[Path]) -> int:
    """How many rows files of a journal have, by their own word."""
    return sum(pq.read_metadata(path).num_rows for path in files)


def journal_files(directories: Sequence[Path]) -> list[Path]:
    """The files of journals, each name once: gateways with directories of their own may both have written a range.

    What begins with a dot is not finished yet, and what begins with an underscore, a directory too, is no journal.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.exists():
            raise PipelineError(f"There is no journal {directory}.")
        for path in [directory] if directory.is_file() else sorted(directory.rglob("*.parquet")):
            if not any(part.startswith((".", "_")) for part in path.relative_to(directory).parts):
                found.setdefault(path.name, path)
    return list(found.values())


def _check(path: Path, key: str, known: int, what: str) -> None:
    try:
        found = (pq.read_schema(path).metadata or {}).get(key.encode())
    except (OSError, pa.ArrowInvalid) as problem:
        raise PipelineError(f"{path} is no Parquet file: {problem}") from problem
    if found is None:
        raise PipelineError(f"{path} is no {what}: it does not say its version.")
    if not found.isdigit() or int(found) > known:
        raise PipelineError(f"{path} has version {found.decode(errors='replace')}, and {known} is what is known here.")
