"""Whether a namespace is whole: which files or databases it has, opened for looking alone, and all checks of them.

The checks are `store.verification`'s. Nothing is changed, and files that a broker has open are refused, unless it is
the broker itself that asks.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from twinbus.broker.datadir import LOCK, check_finished, usable
from twinbus.broker.marks import Marks
from twinbus.broker.settings import SettingsError
from twinbus.entities.making import places_of
from twinbus.store.catalog import NEXT_ID_KEY
from twinbus.store.verification.belonging import STORE_ID_KEY, compare, read_catalog
from twinbus.store.verification.checks import CHECKS, Finding, Unchecked
from twinbus.store.verification.examining import Examined, Snapshot, StoreSnapshot, examine, look_at_queues, sizes
from twinbus.store.verification.sqlite import SqliteSnapshot

CATALOG_FILE = "catalog.db"
_STORE_FILE = re.compile(r"store-(\d{1,4})\.db")

# How the catalog is read where it is a file.
CATALOG_STATEMENTS = {
    "meta": "SELECT key, value FROM meta",
    "rows": "SELECT id, name, kind, store, document FROM entity ORDER BY id",
    "next_id": f"SELECT (SELECT value FROM meta WHERE key = '{NEXT_ID_KEY}')",
}


class Progress(Protocol):
    """Who is told how far it is."""

    def begin(self, what: str, total: int) -> None:
        """The next part of the work begins: so many rows, or bytes."""
        ...

    def advance(self, by: int) -> None:
        """So many more are done."""
        ...


class Report(NamedTuple):
    """What a verification found."""

    findings: list[Finding]
    unchecked: list[Unchecked]
    stores: list[Examined]
    entities: int
    catalog: Mapping[str, str]  # What the catalog says of the namespace itself; keys are among it.

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def document(self) -> dict[str, Any]:
        """For scripts, and for the way from one process to another."""
        return {
            "whole": self.is_whole,
            "findings": [finding.document() for finding in self.findings],
            "unchecked": [unchecked._asdict() for unchecked in self.unchecked],
            "entities": self.entities,
            "stores": [store.document() for store in self.stores],
            "checks": list(CHECKS),
        }


class Opened(NamedTuple):
    """A namespace at one instant."""

    catalog: Snapshot
    catalog_statements: Mapping[str, str]
    stores: Mapping[int, StoreSnapshot]


Opening = Callable[[], AbstractContextManager[Opened]]


def verify(opened: Opened, progress: Progress, again: Opening | None = None) -> Report:
    """Make all checks. With `again`, what catalog and stores disagree on is looked at once more, as it is then."""
    progress.begin("Verifying", sum(sizes(store) for store in opened.stores.values()))
    examined = {number: examine(store, number, progress.advance) for number, store in sorted(opened.stores.items())}
    catalog = read_catalog(opened.catalog, opened.catalog_statements)
    findings = [*catalog.findings, *(finding for store in examined.values() for finding in store.findings)]
    disagreed = compare(catalog, examined, places_of)
    if disagreed and again is not None:
        # An entity that is being made or deleted is in one of them for a moment.
        with again() as later:
            disagreed = [finding for finding in _disagreed(later) if finding in disagreed]
    findings += disagreed
    unchecked = [*catalog.unchecked, *(each for store in examined.values() for each in store.unchecked)]
    return Report(findings, unchecked, list(examined.values()), len(catalog.rows), catalog.meta)


def _disagreed(opened: Opened) -> list[Finding]:
    held = {number: look_at_queues(store, number) for number, store in opened.stores.items()}
    return compare(read_catalog(opened.catalog, opened.catalog_statements), held, places_of)


# Files


class Files(NamedTuple):
    """The files of a namespace."""

    catalog: Path
    stores: dict[int, Path]

    def all(self) -> list[Path]:
        """Every file, the catalog first."""
        return [self.catalog, *(path for _, path in sorted(self.stores.items()))]


def files_in(directory: Path) -> Files:
    """The namespace in a directory; a SettingsError if there is none."""
    with usable(directory):
        if not directory.is_dir():
            raise SettingsError(f"There is no directory {directory}.")
        found = {int(match[1]): path for path in directory.iterdir() if (match := _STORE_FILE.fullmatch(path.name))}
        catalog = directory / CATALOG_FILE
        has_catalog = catalog.exists()
    if not has_catalog and not found:
        raise SettingsError(f"{directory} is no data directory: there is neither a catalog.db nor a store-N.db in it.")
    if not has_catalog:
        raise SettingsError(f"The catalog {catalog} is not there: put back the one that belongs to the stores.")
    return Files(catalog, found)


@contextmanager
def unused(directory: Path) -> Iterator[Marks | None]:
    """Nobody else uses the directory, and nobody begins to; nothing is written for that. Gives what is noted there."""
    check_finished(directory)
    path = directory / LOCK
    with usable(directory):
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None
    if lock is None:
        yield None
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(
                f"A broker is using {directory}. Stop it, or ask it instead: without a directory, and with the"
                " connection string of its namespace."
            ) from None
        yield Marks(lock)
    finally:
        os.close(lock)


@contextmanager
def opened_files(files: Files, *, is_in_use: bool, at_once: Callable[[], None] | None = None) -> Iterator[Opened]:
    """All files at one instant. `at_once` is called when they are open and before they are looked at."""
    with ExitStack() as stack:
        snapshots: list[SqliteSnapshot] = []
        for path in files.all():
            snapshot = SqliteSnapshot(path, is_in_use=is_in_use)
            stack.callback(snapshot.close)
            snapshots.append(snapshot)
        if at_once is not None:
            at_once()
        for snapshot in snapshots:
            begun(snapshot)
        catalog, *stores = snapshots
        yield Opened(catalog, CATALOG_STATEMENTS, dict(zip(sorted(files.stores), stores, strict=True)))


def begun(snapshot: SqliteSnapshot) -> None:
    """Begin; a file that cannot even be begun with is found damaged by the checks."""
    try:
        snapshot.begin()
    except snapshot.errors:
        return


def verify_directory(directory: Path, progress: Progress) -> Report:
    """Check the files of a broker that is stopped."""
    with unused(directory) as marks, opened_files(files_in(directory), is_in_use=False) as opened:
        report = verify(opened, progress)
        told = {finding.where for finding in report.findings if finding.check == "identity"}
        behind = [] if marks is None else [_behind(store, marks) for store in report.stores]
        report.findings.extend(found for found in behind if found is not None and found.where not in told)
        return report


def _behind(store: Examined, marks: Marks) -> Finding | None:
    """Commits that this directory has seen and that the store has not."""
    if any(unchecked.check == "journal-row" for unchecked in store.unchecked):
        return None
    noted, last = marks.read(store.number, store.meta.get(STORE_ID_KEY, "")), store.last_journal or 0
    if noted <= last:
        return None
    text = "It is older than what was served, or has lost its last commits."
    told = f"row of the store's journal: {noted} was on the disk, and it is at {last}"
    return Finding("identity", f"store {store.number}", text, 1, (told,))
