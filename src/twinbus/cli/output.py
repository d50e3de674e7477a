"""What a command prints: tables for people, a JSON object on each line for scripts, remarks and progress beside them.

Into a pipe everything is plain and nothing is cut; what a value looks like is decided in `showing`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_GAP = "  "


def discard(stream: TextIO) -> None:
    """For a stream that nobody reads on, as behind `head`: what is still buffered must not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Output:
    """Where a command writes. Results go to standard output, remarks to standard error."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    def record(self, document: Mapping[str, Any]) -> None:
        """One object for scripts."""
        text = json.dumps(document, ensure_ascii=False)
        # A message may hold what a terminal obeys; JSON alone does not escape all of it.
        typer.echo("".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text))

    def line(self, text: str = "") -> None:
        """One line for people."""
        typer.echo(text)

    def bytes(self, content: bytes) -> None:
        """Bytes as they are, and a line end."""
        sys.stdout.buffer.write(content + b"\n")

    def remark(self, text: str) -> None:
        """Something beside the result. That nobody reads it any more is no reason to stop."""
        try:
            typer.echo(text, err=True)
        except BrokenPipeError:
            discard(sys.stderr)

    def flush(self) -> None:
        """Makes sure that whoever reads has it: what was not shown must not be settled."""
        sys.stdout.flush()

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and values, one pair on each line."""
        width = max(map(cell_len, facts), default=0)
        for name, value in facts.items():
            self.line(f"{set_cell_size(name, width)}{_GAP}{value}".rstrip())


class Table:
    """Columns under headings. Rows may come in several lots; the last column takes what room is left."""

    def __init__(self, output: Output, headings: Sequence[str], numbers: Sequence[str] = ()) -> None:
        """`numbers` are the headings of columns that are aligned to the right."""
        self._output = output
        self._headings = headings
        self._right = [heading in numbers for heading in headings]
        self._widths = [cell_len(heading) for heading in headings]
        self._began = False
        self._room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Prints rows, under the headings if these are the first."""
        for row in rows:
            self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._began and rows:
            self._began = True
            heading = self._line(self._headings)
            self._output.line(typer.style(heading, bold=True) if self._room else heading)
        for row in rows:
            self._output.line(self._line(row))

    def _line(self, cells: Sequence[str]) -> str:
        aligned = []
        for cell, width, right in zip(cells, self._widths, self._right, strict=True):
            padding = " " * (width - cell_len(cell))
            aligned.append(padding + cell if right else cell + padding)
        line = _GAP.join(aligned).rstrip()
        if self._room is not None and cell_len(line) > self._room:
            line = set_cell_size(line, self._room - 1) + "…"
        return line


def progress_bar(what: str, total: int | None) -> Progress:
    """Progress on a terminal, nothing elsewhere. Its only task counts up; `total` is None if nobody knows it."""
    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    progress.add_task(what, total=total)
    return progress
