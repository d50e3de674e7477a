"""Copies of a namespace's files: a backup of one instant, checked before it is called one, and its way back.

A backup is a directory with the databases and a manifest. Until all of a copy is there, a file in it says that it is
unfinished (`broker.datadir`). Which instant is copied, and that nothing changes meanwhile, is for the caller to see to.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from twinbus import __version__
from twinbus.broker.datadir import LOCK, UNFINISHED, DataDirectory, check_finished
from twinbus.broker.settings import SettingsError
from twinbus.broker.verifying import CATALOG_FILE, Files, Opened, Progress, Report, files_in, opened_files, verify
from twinbus.store.catalog import checksum_of
from twinbus.store.reserve import RESERVE_BYTES
from twinbus.store.verification.sqlite import SqliteSnapshot

MANIFEST = "manifest.json"
FORMAT = 1
STEP_PAGES = 128
SYNC_BYTES = 1024 * 1024  # So much is handed to the disk at once, so that commits do not wait behind more.
CHUNK_BYTES = 1024 * 1024
MARGIN_BYTES = 64 * 1024 * 1024  # What must be left on a disk that a broker needs.
GENERATION_STEP = 1_000_000  # No namespace changes so often between a backup and its loss.

Rest = Callable[[float], None]  # Called after each piece of work with the seconds that it took.


class CopyFailedError(Exception):
    """A backup or a restore was not made; the text says why."""


class Source(NamedTuple):
    """What is backed up: whose it is, where its files are, and these at one instant."""

    namespace: str
    files: Files
    opened: Opened


# A backup


def back_up(
    source: Source, destination: Path, progress: Progress, rest: Rest, copied: Callable[[], None]
) -> dict[str, Any]:
    """Copy a namespace, check the copy, and write its manifest, which is returned. Leaves nothing if it fails.

    `copied` is called when the files are needed no more.
    """
    taken_at = datetime.now(UTC)
    with _filled(destination):
        snapshots = [source.opened.catalog, *(store for _, store in sorted(source.opened.stores.items()))]
        sizes = {}
        for path, snapshot in zip(source.files.all(), snapshots, strict=True):
            assert isinstance(snapshot, SqliteSnapshot)
            [(pages, page_bytes)] = snapshot.rows("SELECT * FROM pragma_page_count(), pragma_page_size()")
            sizes[path] = (snapshot, pages * page_bytes)
        _check_room(destination, source.files.catalog.parent, sum(size for _, size in sizes.values()))
        progress.begin("Copying", sum(size for _, size in sizes.values()))
        for path, (snapshot, _) in sizes.items():
            _copy_database(snapshot, destination / path.name, progress, rest)
        for snapshot, _ in sizes.values():
            snapshot.close()  # So that the broker's logs can begin anew.
        copied()
        _sync(destination)
        report = _verified(destination, progress)
        if not report.is_whole:
            told = "; ".join(f"{finding.where}: {finding.text}" for finding in report.findings[:3])
            raise CopyFailedError(f"The copy is not whole, so it is not kept: {told}")
        manifest = _manifest(source.namespace, destination, taken_at, report)
        path = destination / MANIFEST
        path.write_bytes(json.dumps(manifest, indent=2).encode() + b"\n")
        _sync(path)
        return manifest


def _copy_database(snapshot: SqliteSnapshot, path: Path, progress: Progress, rest: Rest) -> None:
    path.touch(mode=0o600)
    target = apsw.Connection(str(path))
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        for pragma in ("journal_mode=off", "synchronous=off", "cache_size=-1024"):
            target.execute(f"PRAGMA {pragma}")
        unsynced = 0
        [(page_bytes,)] = snapshot.rows("SELECT * FROM pragma_page_size()")
        with target.backup("main", snapshot.database, "main") as backup:
            left = backup.page_count
            while not backup.done:
                began = time.monotonic()
                backup.step(STEP_PAGES)
                copied = (left - backup.remaining if left else backup.page_count - backup.remaining) * page_bytes
                left = backup.remaining
                progress.advance(max(copied, 0))
                unsynced += STEP_PAGES * page_bytes
                if unsynced >= SYNC_BYTES:
                    os.fdatasync(file)
                    unsynced = 0
                rest(time.monotonic() - began)
        target.close()
        os.fsync(file)
    except (apsw.Error, OSError) as error:
        raise _failed(path, error) from error
    finally:
        target.close()
        os.close(file)


def _verified(directory: Path, progress: Progress) -> Report:
    with opened_files(files_in(directory), is_in_use=False) as opened:
        return verify(opened, progress)


def _manifest(namespace: str, directory: Path, taken_at: datetime, report: Report) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": __version__,
        "namespace": namespace,
        "namespace_id": report.catalog.get("namespace-id"),
        "catalog_generation": report.catalog.get("catalog-generation"),
        "taken_at": taken_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "entities": report.entities,
        "stores": [store.document() for store in report.stores],
        "files": [
            {"name": path.name, "bytes": path.stat().st_size, "sha256": digest_of(path)}
            for path in files_in(directory).all()
        ],
    }


# The way back


def restore(backup: Path, directory: Path, progress: Progress) -> dict[str, Any]:
    """Put a backup where nothing is yet; its manifest. A file that is not as it was backed up is refused."""
    manifest = read_manifest(backup)
    files = manifest["files"]
    with _filled(directory):
        data = DataDirectory(directory, is_unfinished=True)
        try:
            _check_room(directory, directory, sum(file["bytes"] for file in files))
            progress.begin("Copying", sum(file["bytes"] for file in files))
            for file in files:
                if _copy_file(backup / file["name"], directory / file["name"], progress) != file["sha256"]:
                    raise CopyFailedError(f"{backup / file['name']} is not as it was backed up: its digest is another.")
            generation = raise_generation({Path(file["name"]).stem: directory / file["name"] for file in files})
            for file in files:
                _sync(directory / file["name"])
        finally:
            data.release()
    return {**manifest, "restored_generation": generation}


def raise_generation(files: Mapping[str, Path]) -> int | None:
    """Have catalog and stores say that much has changed, so that whoever saw the lost ones notices; the new number.

    `files` are `catalog` and `store-N`. Files of versions that do not count changes are left as they are.
    """
    with _writing(files["catalog"]) as catalog:
        found = catalog.execute("SELECT value FROM meta WHERE key = 'catalog-generation'").get
        if found is None:
            return None
        generation = int(found) + GENERATION_STEP
        columns = [column for _, column, *_ in catalog.execute("PRAGMA table_info(meta)")]
        catalog.execute("UPDATE meta SET value = ? WHERE key = 'catalog-generation'", (str(generation),))
        if "checksum" in columns:
            values = (checksum_of("catalog-generation", str(generation)), "catalog-generation")
            catalog.execute("UPDATE meta SET checksum = ? WHERE key = ?", values)
    for name, path in files.items():
        if name != "catalog":
            with _writing(path) as store:
                store.execute(
                    "UPDATE meta SET value = ? WHERE key = 'catalog_generation'",
                    (str(generation),),
                )
    return generation


@contextmanager
def _writing(path: Path) -> Iterator[apsw.Connection]:
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with database:
            yield database
        database.wal_checkpoint(None, apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        database.close()


def read_manifest(backup: Path) -> dict[str, Any]:
    """What is in a backup; refuses what is none, or was not finished."""
    path = backup / MANIFEST
    try:
        check_finished(backup)
        manifest = json.loads(path.read_bytes())
    except SettingsError as problem:
        raise CopyFailedError(str(problem)) from None
    except FileNotFoundError:
        if backup.is_dir() and any(backup.glob("*.db")):
            text = "the backup was not finished, or was not copied here as a whole"
            raise CopyFailedError(f"{backup} has no {MANIFEST}: {text}.") from None
        raise CopyFailedError(f"{backup} is no backup: there is no {MANIFEST} in it.") from None
    except (OSError, ValueError) as error:
        raise CopyFailedError(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CopyFailedError(f"{path} is not of the format {FORMAT}, which is the one that this version knows.")
    listed = manifest.get("files") or []
    if CATALOG_FILE not in [file.get("name") for file in listed if isinstance(file, dict)]:
        raise CopyFailedError(f"{path} does not list the files of a backup.")
    return manifest


# Files


@contextmanager
def _filled(path: Path) -> Iterator[None]:
    """A directory that was empty or not there is filled: all of it, or what was put into it goes again.

    Until then it says that it is unfinished, which is what a kill or a power cut leaves.
    """
    was_there = path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_finished(path)
        if any(file.name != LOCK for file in path.iterdir()):
            raise CopyFailedError(f"{path} is not empty: give a directory that is for this copy alone.")
        (path / UNFINISHED).touch(mode=0o600)
        _sync(path)
    except SettingsError as problem:
        raise CopyFailedError(str(problem)) from None
    except OSError as error:
        raise CopyFailedError(f"{path} cannot be used: {error.strerror}.") from error
    try:
        yield
        _sync(path)
        (path / UNFINISHED).unlink()
        _sync(path)
    except BaseException as error:
        for file in sorted(path.iterdir(), key=lambda file: file.name == UNFINISHED):
            with suppress(OSError):
                file.unlink()
        if not was_there:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError | apsw.Error):
            raise _failed(path, error) from error
        raise


def _failed(path: Path, error: Exception) -> CopyFailedError:
    # SQLite keeps what it says about a copy elsewhere, and calls this "not an error".
    why = "the disk is full" if isinstance(error, apsw.FullError) else error
    return CopyFailedError(f"The copy to {path} failed: {why}.")


def _check_room(destination: Path, data: Path, needed: int) -> None:
    free = shutil.disk_usage(destination).free
    if os.stat(destination).st_dev == os.stat(data).st_dev:
        free -= MARGIN_BYTES + 2 * RESERVE_BYTES
    if free < needed:
        raise CopyFailedError(
            f"There is too little room for {destination}: {needed:,} bytes are needed, and {max(free, 0):,} can be had."
        )


def _copy_file(source: Path, target: Path, progress: Progress) -> str:
    """Copy a file; the digest of what was copied."""
    digest = hashlib.sha256()
    with (
        source.open("rb") as reading,
        open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writing,
    ):
        while chunk := reading.read(CHUNK_BYTES):
            digest.update(chunk)
            writing.write(chunk)
            progress.advance(len(chunk))
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
