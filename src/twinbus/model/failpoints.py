"""Places where a test can have the process fail, wait or die: each has a name, and costs next to nothing when unused.

The names are told once, here, with the modules that have them; a test holds that. What happens at one is whatever it
was armed with. How a broker process is told to arm some, and which actions it offers, is `broker.failing`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias


class Failpoint(NamedTuple):
    """One place, the same in every engine that has it."""

    meaning: str
    modules: tuple[str, ...]  # Where it is, below the package's directory.


_STORES = ("store/work.py", "store/postgres/execution.py")
_MOVER = ("client/mover.py",)
_CATALOGS = ("store/catalog.py", "store/postgres/catalog.py")

FAILPOINTS: dict[str, Failpoint] = {
    "store.open": Failpoint(
        "A store's database is open and has its tables; nothing was read, and nothing recovered.",
        ("store/sqlite.py", "store/postgres/store.py"),
    ),
    "store.commit.before_sync": Failpoint(
        "The commands of a commit were carried out in memory; its end is not written, so none of it will be found.",
        _STORES,
    ),
    "store.commit.after_sync": Failpoint("A commit is on disk; nobody was told, and memory does not know it.", _STORES),
    "store.checkpoint": Failpoint(
        "A store's log is about to be moved into its database.",
        ("store/sqlite.py",),
    ),
    "catalog.write.before": Failpoint("A change of the catalog was decided; nothing is written.", _CATALOGS),
    "catalog.write.after": Failpoint("A change of the catalog is on disk; nobody was told.", _CATALOGS),
    "entity.create.before_catalog": Failpoint(
        "The stores hold a new entity; the catalog does not know it.", ("entities/namespace.py",)
    ),
    "entity.create.after_catalog": Failpoint(
        "A new entity is in the stores and in the catalog; whoever asked for it was not told.",
        ("entities/namespace.py",),
    ),
    "entity.delete.before_stores": Failpoint(
        "The catalog has forgotten an entity; its stores still hold it.", ("entities/namespace.py",)
    ),
    "entity.delete.after_stores": Failpoint(
        "The stores have marked a deleted entity as gone; its rows are not freed, and whoever asked was not told.",
        ("entities/namespace.py",),
    ),
    "journal.export.before_mark": Failpoint(
        "A file of the journal is on disk under its name; the store does not know that its range is finished.",
        ("broker/exporting.py",),
    ),
    "forwarding.before_complete": Failpoint(
        "Forwarded messages are in the store of their destination; that of their source still has them.",
        ("entities/forwarding.py",),
    ),
    "mover.before_send": Failpoint("A mover holds messages of its source; nothing was sent.", _MOVER),
    "mover.before_complete": Failpoint("The destination has acknowledged messages; the source still has them.", _MOVER),
    "mover.after_complete": Failpoint("The source has forgotten what arrived; nothing was counted.", _MOVER),
    "mover.before_set_aside": Failpoint("A message will never be taken; the source still has it.", _MOVER),
    "mover.after_set_aside": Failpoint("The source has set a message aside; nothing was counted.", _MOVER),
}

Action: TypeAlias = Callable[[], None]
_armed: dict[str, Action] = {}


def failpoint(name: str) -> None:
    """This is the place of that name: do what it was armed with, if it was."""
    if _armed and name in _armed:
        _armed[name]()


def arm(name: str, action: Action, nth: int | None = None) -> None:
    """Have the action done each time, or the n-th time from now only; instead of what was armed before."""
    check(name)
    if nth is not None and nth < 1:
        raise ValueError("the first time is 1")
    left = nth

    def counted() -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left == 0:
                action()

    _armed[name] = action if nth is None else counted


def disarm(name: str) -> None:
    """Have nothing happen there any more."""
    check(name)
    _armed.pop(name, None)


@contextmanager
def armed(name: str, action: Action, nth: int | None = None) -> Iterator[None]:
    """Armed for a while."""
    arm(name, action, nth)
    try:
        yield
    finally:
        disarm(name)


def check(name: str) -> None:
    """Refuse a name that no place has: nothing would ever happen there."""
    if name not in FAILPOINTS:
        raise ValueError(f"there is no failpoint '{name}': they are {', '.join(FAILPOINTS)}")
