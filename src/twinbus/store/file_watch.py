"""Whether the files that a store or a catalog has open are still the ones at their path, and what is done if not.

Removing or replacing the files of a running broker does not stop it: SQLite goes on writing into files that have
no name any more, and everything in them is gone when they are closed. So both look now and then, and save themselves.
"""

from __future__ import annotations

import os

import apsw

_WATCHED = ("", "-wal")


class FileWatch:
    """The database and its log as they were when the store was opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[tuple[str, int]] = []
        # Such a descriptor does not touch the file: closing an ordinary one would drop SQLite's own locks on it.
        if not hasattr(os, "O_PATH"):
            return
        for beside in _WATCHED:
            if os.path.exists(path + beside):
                self._files.append((path + beside, os.open(path + beside, os.O_PATH | os.O_CLOEXEC)))

    def look(self) -> bool | None:
        """None if all is well; else whether the files have no name any more, so that only this process has them."""
        if all(_is_there(path, file) for path, file in self._files):
            return None
        return any(os.fstat(file).st_nlink == 0 for _, file in self._files)

    def save(self, database: apsw.Connection, number: int) -> str:
        """Write everything that is committed to a new file beside the path; its name, which ends with the number."""
        os.makedirs(os.path.dirname(self._path) or ".", mode=0o700, exist_ok=True)
        target = f"{self._path}.rescued-{number}"
        database.execute("VACUUM INTO ?", (target,))
        os.chmod(target, 0o600)
        return os.path.basename(target)

    def close(self) -> None:
        """Watch no longer."""
        for _, file in self._files:
            os.close(file)
        self._files.clear()


def _is_there(path: str, file: int) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    known = os.fstat(file)
    return (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)
