"""The checks by name: what each reads, what a finding of it means, and what to do about it.

Documentation, output and tests read this table; how a check is done is told in `examining` and `belonging`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

EXAMPLES_MAX = 10


class Check(NamedTuple):
    """One check."""

    name: str
    reads: str
    means: str
    advice: str


_RESTORE = "Keep a copy of the files as they are. Then restore a backup, or let the paired namespace deliver the rest."
_DEFECT = "Nothing is lost by it. Keep a copy of the files and report it: no operation of a broker leaves this."

CHECKS = {
    check.name: check
    for check in (
        Check(
            "pages",
            "all pages and indexes, by the database's own check",
            "The file itself is damaged: a disk, a copy or a program has changed it.",
            _RESTORE,
        ),
        Check(
            "body",
            "every record against the CRC-32 that it was stored with",
            "The content of these messages is damaged. A broker hands none of them out: it sets them aside.",
            "Send them once more from where they came from, or restore a backup; the journal names their ids.",
        ),
        Check(
            "message-without-body",
            "message rows whose record is not there",
            "The content of these messages is lost.",
            "Send them once more from where they came from, or restore a backup; the journal names their ids.",
        ),
        Check("body-without-message", "records that no message row names", "Room is taken for nothing.", _DEFECT),
        Check(
            "body-used-twice",
            "records of one message that several rows name",
            "Two messages show the same content, so that one of them shows a wrong one.",
            _RESTORE,
        ),
        Check(
            "message-state",
            "message rows with values that no operation writes",
            "These rows were changed by something else than a broker.",
            _RESTORE,
        ),
        Check(
            "queue-row",
            "the rows that rule queues: three for each entity, settings that can be read",
            "The store cannot tell what this entity's rules are, and a broker may refuse to open it.",
            _RESTORE,
        ),
        Check(
            "counts",
            "the counts and bytes in each queue's row against its message rows",
            "Counts, quotas and metrics of this queue are wrong, or message rows were lost or added.",
            _RESTORE,
        ),
        Check(
            "next-number",
            "each queue's next sequence number against its last message",
            "The next message would get a number that is taken, and its send would fail.",
            _RESTORE,
        ),
        Check(
            "stray-rows",
            "messages, duplicates, sessions and locks of queues that have no row",
            "Nobody can receive these messages: the row that rules their queue is gone.",
            _RESTORE,
        ),
        Check(
            "claims",
            "what is locked, as a restart would count it",
            "A restart cannot tell which messages were out, and may not count their delivery.",
            _RESTORE,
        ),
        Check(
            "journal-row",
            "every journal row against its checksum",
            "What happened in these commits cannot be told any more. The messages themselves are not concerned.",
            "Keep a copy of the files. The export of the journal stops in front of such a row.",
        ),
        Check(
            "journal-gap",
            "the numbers of the journal's rows, and of the ranges that are in files",
            "Commits are missing from the journal, or the store is older than what was exported from it.",
            _RESTORE,
        ),
        Check(
            "journal-state",
            "the message rows against what the journal says was stored and has not ended",
            "Messages were lost, came back, or were changed behind the broker's back.",
            "Compare with a backup, or run `twinbus pipeline reconcile`, which tells it message by message.",
        ),
        Check(
            "catalog-row",
            "every entity in the catalog: its description, its number, its checksum",
            "A broker cannot use this entity as it is described.",
            "Restore the catalog from a backup, together with the stores.",
        ),
        Check(
            "entity-without-queue",
            "entities of the catalog on the stores that these rows name",
            "The entity has no queues there: its messages are lost, or on another store.",
            "Put back the store's own file, or restore a backup.",
        ),
        Check(
            "queue-without-entity",
            "queues in the stores against the catalog",
            "Nobody can reach these messages: the catalog is older than the store, or another namespace's.",
            "Put back the catalog that belongs to the stores, or restore a backup.",
        ),
        Check(
            "transfers",
            "messages remembered as having come from other stores",
            "A transfer names a queue that never was.",
            _DEFECT,
        ),
        Check(
            "identity",
            "the ids that catalog and stores know each other by",
            "These files do not belong together, or not to the same instant.",
            "Put back the files that belong together, all of the same backup.",
        ),
    )
}


class Finding(NamedTuple):
    """Something that is not whole."""

    check: str
    where: str
    text: str
    count: int = 1  # type: ignore[assignment]  # Hides tuple.count, which nobody needs here.
    examples: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """For scripts, and for the way from one process to another."""
        check = CHECKS[self.check]
        return {
            **self._asdict(),
            "examples": list(self.examples),
            "means": check.means,
            "advice": check.advice,
        }


class Unchecked(NamedTuple):
    """A check that could not be made, or not wholly."""

    check: str
    where: str
    why: str


class Names:
    """What a store's queues are called, for people."""

    _SUB_QUEUES = ("", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue", "/?")

    def __init__(self, known: dict[int, tuple[str, str, int]]) -> None:
        """By entity: path, kind and fragment."""
        self._known = known

    def kind(self, entity: int) -> str:
        """The entity's kind; empty if nobody remembers it."""
        return self._known.get(entity, ("", "", 0))[1]

    def queue(self, number: int) -> str:
        """A queue by its number."""
        path, kind, fragment = self._known.get(number >> 2, ("", "", 0))
        if not path:
            return f"queue {number}"
        part = f" (fragment {fragment})" if fragment else ""
        return f"{kind} '{path}{self._SUB_QUEUES[number & 3]}'{part}"
