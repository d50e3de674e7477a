"""Incidents in a file, one on each line, so that a restart does not forget them: what was last written of each counts.

The file is bounded: when it has grown, it is written anew with the latest alone. A file that cannot be written costs
the memory of a restart, and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from twinbus.console.asking import Document
from twinbus.console.incidents import KEPT_MAX, Incident, read

log = logging.getLogger("twinbus.console")

NAME = "incidents.jsonl"
LINES_MAX = 1_000
BYTES_MAX = 32 * 1024 * 1024


class Book:
    """The file of one console; used by one thread at a time."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / NAME
        self._lines = 0
        self._is_failing = False

    def read(self) -> list[Incident]:
        """What is known, the oldest first."""
        if self._path is None or not self._path.exists():
            return []
        found: dict[str, Incident] = {}
        try:
            with self._path.open("rb") as lines:
                for line in lines:
                    self._lines += 1
                    try:
                        incident = read(json.loads(line.decode()))
                    except (ValueError, KeyError, TypeError, AttributeError):
                        # The process died while it wrote, the disk was full, or somebody else wrote here.
                        log.warning("line %d of %s is no incident: it is left out", self._lines, self._path)
                        continue
                    found[incident.id] = incident
        except OSError as problem:
            log.warning("incidents cannot be read from %s: %s", self._path, problem)
        kept = sorted(found.values(), key=lambda incident: incident.began_at_s)[-KEPT_MAX:]
        for incident in kept[:-1]:
            if incident.ended_at_s is None:  # Its end was not written any more; the next one tells when at the latest.
                incident.ended_at_s = incident.stages[-1].at_s if incident.stages else incident.began_at_s
        return kept

    def write(self, document: Document, everything: Iterable[Document]) -> None:
        """Keep what has changed; `everything` is asked for when the file is to be written anew."""
        if self._path is None:
            return
        try:
            if self._lines >= LINES_MAX or (self._path.exists() and self._path.stat().st_size > BYTES_MAX):
                self._rewrite(everything)
            else:
                self._append(json.dumps(document))
            self._is_failing = False
        except OSError as problem:
            if not self._is_failing:
                log.warning("incidents cannot be kept in %s: %s", self._path, problem)
            self._is_failing = True

    def _append(self, line: str) -> None:
        """On a line of its own: the one before may have been cut off, above all by a full disk."""
        assert self._path is not None
        with self._path.open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    line = "\n" + line
                    self._lines += 1
            file.write(f"{line}\n".encode())
        self._lines += 1

    def _rewrite(self, everything: Iterable[Document]) -> None:
        assert self._path is not None
        lines = [json.dumps(document) + "\n" for document in everything]
        fresh = self._path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(fresh, self._path)
        self._lines = len(lines)
