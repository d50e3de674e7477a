"""Who a namespace, its catalog and its stores are, and whether what lies in one place belongs together.

Pure: what catalog and stores say of themselves comes in, a doubt comes out, or none. Reading and writing it is each
engine's part; what happens to a store in doubt is the broker's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from twinbus.model.errors import BusError, Fault

NAMESPACE_KEY = "namespace-id"
GENERATION_KEY = "catalog-generation"
FORGOTTEN = "that nobody remembers"
STORE_KEY = "store-{}"  # Under this, the catalog keeps what it knows of each store.


class StoreIdentity(NamedTuple):
    """What a store says of itself."""

    namespace: str  # Empty, like a number below 0: it was made before stores said so.
    store: str
    number: int
    generation: int = 0  # The catalog's newest change that it has heard of.
    openings: int = 0  # How often it was opened; it only grows.
    journal: int = 0  # The number of its journal's last row; it only grows.


class Belonging(NamedTuple):
    """What a store that is opened is to say of itself."""

    namespace: str
    store: str  # Its id, unless it has one already.


class KnownStore(NamedTuple):
    """What the catalog knows of a store."""

    store: str  # Empty: that there is one, and nobody remembers its id.
    openings: int = 0
    journal: int = 0
    # Entities that the catalog has there may be missing, because an operator said so: they are made anew, empty.
    is_incomplete: bool = False

    @property
    def is_new(self) -> bool:
        """Whether an operator has said that an empty store is to be made here, and none was opened yet."""
        return self.is_incomplete and self.openings == 0

    def to_text(self) -> str:
        """As the catalog keeps it."""
        return json.dumps(self._asdict())


def known_stores(meta: Mapping[str, str]) -> dict[int, KnownStore]:
    """What a catalog's settings say of its stores, by number."""
    prefix = STORE_KEY.format("")
    return {
        int(key.removeprefix(prefix)): _known(value)
        for key, value in meta.items()
        if key.startswith(prefix) and key.removeprefix(prefix).isdigit()
    }


def _known(text: str) -> KnownStore:
    """A catalog from before there was more to know has nothing but the id."""
    if not text.startswith("{"):
        return KnownStore(text)
    said = json.loads(text)
    return KnownStore(**{name: said[name] for name in KnownStore._fields if name in said})


class Doubt(Enum):
    """Why a store is not served."""

    MISSING = "missing"
    FOREIGN = "of another namespace"
    SWAPPED = "in another's place"
    OTHER = "not the one that was here"
    OLDER = "older than what was served"


class StoreDoubt(NamedTuple):
    """A doubt, and what an operator needs to know of it."""

    kind: Doubt
    text: str


class OlderStoreError(BusError):
    """What was acknowledged is missing in a store that is being served: it has gone back in time under it."""

    def __init__(self, text: str) -> None:
        super().__init__(Fault.STORE_UNAVAILABLE, text, definite=True)


class Place(NamedTuple):
    """Where a store is, in words for people, and how commands name the namespace."""

    number: int
    where: str  # A file's name, or a database's schema.


_RIGHT_ONE = "Put the right one there and bring it up with `twinbus store up {number}`"
_REPLACE = "; or give its messages up with `twinbus store replace {number}`, which makes an empty one"
_ACCEPT = (
    "; or, if it is the right one, say so with `twinbus store accept {number}`: entities that it lacks are made anew"
)

_FOUND: dict[Doubt, str] = {
    Doubt.MISSING: "{where} is missing; the catalog knows of messaging store {number} with the id {expected}. "
    + _RIGHT_ONE
    + _REPLACE,
    Doubt.FOREIGN: "{where} is a store of the namespace with the id {found}; this one has the id {expected}. "
    + _RIGHT_ONE
    + _REPLACE,
    Doubt.SWAPPED: "{where} is messaging store {found} of this namespace, in the place of store {expected}. "
    + _RIGHT_ONE,
    Doubt.OTHER: "{where} is a store with the id {found}; the catalog knows messaging store {number} by the id"
    " {expected}. " + _RIGHT_ONE + _ACCEPT,
    Doubt.OLDER: "{where} is older than what was served: {found}; expected was {expected}. " + _RIGHT_ONE + _ACCEPT,
}


def doubt(kind: Doubt, place: Place, found: object, expected: object) -> StoreDoubt:
    """A doubt in words: what was found, what was expected, which commands resolve it."""
    text = _FOUND[kind].format(where=place.where, number=place.number, found=found, expected=expected)
    return StoreDoubt(kind, f"{text}. Nothing in it was changed.")


def judge_store(
    place: Place, namespace: str, known: KnownStore | None, found: StoreIdentity | None, *, is_there: bool
) -> StoreDoubt | None:
    """Whether what lies in a store's place is that store, as it was last served; None if nothing speaks against it."""
    if not is_there:
        return None if known is None else doubt(Doubt.MISSING, place, "nothing", known.store or FORGOTTEN)
    if found is None:
        if known is None:
            return None  # It is from before stores had ids, and so is the catalog.
        return doubt(Doubt.OLDER, place, "it has no id", f"the id {known.store or FORGOTTEN}")
    if found.namespace and found.namespace != namespace:
        return doubt(Doubt.FOREIGN, place, found.namespace, namespace)
    if found.number >= 0 and found.number != place.number:
        return doubt(Doubt.SWAPPED, place, found.number, place.number)
    if known is None:
        return None  # It was made, and then the broker ended before the catalog knew of it.
    if known.store and found.store != known.store:
        return doubt(Doubt.OTHER, place, found.store, known.store)
    if found.openings < known.openings:
        return doubt(Doubt.OLDER, place, f"opening {found.openings}", f"opening {known.openings} or later")
    if found.journal < known.journal:
        return doubt(
            Doubt.OLDER, place, f"its journal ends with row {found.journal}", f"row {known.journal} or a later one"
        )
    return None


def judge_missing(place: Place, lacking: Iterable[str]) -> StoreDoubt | None:
    """A store must hold what the catalog has on it: it is made there first, and removed from the catalog first."""
    names = sorted(lacking)
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(f"'{name}'" for name in names[:3])
    return doubt(Doubt.OLDER, place, f"it does not hold {listed}{more}", "what the catalog has on it")


def judge_catalog(namespace: str, generation: int, stores: Iterable[StoreIdentity]) -> str | None:
    """Why the catalog does not fit the stores, if so; nothing can be served then, because its keys are in doubt too."""
    found = list(stores)
    strangers = {store.namespace for store in found if store.namespace and store.namespace != namespace}
    if found and len(strangers) == 1 and not any(store.namespace in ("", namespace) for store in found):
        return (
            f"The catalog belongs to the namespace with the id {namespace}, and all {len(found)} messaging stores to"
            f" the one with the id {strangers.pop()}."
        )
    newest = max((store.generation for store in found if store.namespace == namespace), default=0)
    if newest > generation:
        return (
            f"The catalog is older than its stores: it has seen {generation} changes, and a messaging store has heard"
            f" of change {newest}. Entities and policies that were made, changed or removed since then would be wrong."
        )
    return None
