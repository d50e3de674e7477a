"""What is asked of a store about the export of its journal: ranges that become files, and rows that may go then.

They are commands like all others (`store.commands`), and ride with whatever else is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from twinbus.store.commands import Command


class Range(NamedTuple):
    """Journal rows of one writer that are in one file, or will be."""

    writer: int
    first: int
    last: int
    from_ms: int  # The first row's instant, and the last one's.
    to_ms: int
    bytes: int  # What the rows take up in the store.


@dataclass(slots=True, eq=False, kw_only=True)
class CloseRange(Command):
    """Write down that a range of journal rows is about to become a file; durable before the file is. `queue` is 0."""

    range: Range


@dataclass(slots=True, eq=False, kw_only=True)
class FinishRange(Command):
    """The file of a range is on disk under its name."""

    range: Range


@dataclass(slots=True, eq=False, kw_only=True)
class Trim(Command):
    """Remove journal rows that are in files, a bounded chunk; the result says whether more is waiting.

    Ranges that ended before an instant go, and of the others the oldest, as far as they are more than so many bytes.
    """

    before_ms: int
    keep_bytes: int
    result: bool = False
