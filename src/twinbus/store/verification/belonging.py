"""Whether a namespace's files belong together: the catalog against the stores, and the ids that both keep.

Pure: takes what was read. What the document of an entity means is told by a function of whoever knows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from twinbus.store.catalog import EntityRow, checksum_of
from twinbus.store.verification.checks import EXAMPLES_MAX, Finding, Unchecked
from twinbus.store.verification.examining import Examined, Snapshot

CATALOG = "catalog"

Places = Callable[
    [EntityRow], Mapping[int, int]
]  # The store of each of an entity's numbers; raises if it has no sense.


class Catalog(NamedTuple):
    """What was read of a catalog."""

    meta: Mapping[str, str]
    rows: Sequence[EntityRow]
    next_id: int | None  # The number that the next entity gets; None if nobody knows.
    dropping: frozenset[int] = frozenset()  # Entities that were removed and may still be in their stores.
    findings: tuple[Finding, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()


class Identity(NamedTuple):
    """An id that two files must agree on: under these keys, where `{}` is the store's number."""

    what: str
    catalog_key: str
    store_key: str


STORE_ID_KEY = "store_id"  # Of a store that is a file.
# Files of versions without an id have nothing under its key, and are not compared. Under which key a store has its own
# id depends on the engine.
IDENTITIES = (
    Identity("namespace", "namespace-id", "namespace_id"),
    Identity("store", "store-{}", STORE_ID_KEY),
    Identity("store", "store-{}", "identity"),
)
NUMBER_KEY = "store_number"


class Growing(NamedTuple):
    """A number that only grows: what one file has heard of the other must not be more than the other says."""

    what: str
    heard: str
    says: str


GENERATION = Growing("change of the catalog", "catalog_generation", "catalog-generation")
OPENINGS = Growing("opening of the store", "openings", "openings")
JOURNAL = Growing("row of the store's journal", "journal", "")


def read_catalog(snapshot: Snapshot, statements: Mapping[str, str]) -> Catalog:
    """Read a catalog by the statements `meta`, `rows` and `next_id`; what cannot be read is a finding."""
    findings: list[Finding] = []
    unchecked = [Unchecked("pages", CATALOG, why)] if (why := snapshot.unchecked()) else []
    try:
        wrong = list(snapshot.integrity())
        if wrong:
            text = "The database's own check finds it damaged."
            findings.append(Finding("pages", CATALOG, text, len(wrong), tuple(wrong[:EXAMPLES_MAX])))
        meta = dict(snapshot.rows(statements["meta"]))
        rows = [EntityRow(*row) for row in snapshot.rows(statements["rows"])]
        [(next_id,)] = snapshot.rows(statements["next_id"])
        tables = snapshot.tables()
        dropping = frozenset(row[0] for row in snapshot.rows(DROPPING)) if "dropping" in tables else frozenset()
        damaged = _damaged(snapshot, tables)
        if damaged:
            text = f"{len(damaged):,} rows of the catalog do not match their checksums."
            findings.append(Finding("catalog-row", CATALOG, text, len(damaged), tuple(damaged[:EXAMPLES_MAX])))
    except snapshot.errors as error:
        if not findings:
            findings.append(Finding("pages", CATALOG, f"It cannot be read: {' '.join(str(error).split())}."))
        why = "the catalog could not be read"
        names = ("catalog-row", "entity-without-queue", "queue-without-entity", "identity")
        return Catalog(
            {}, [], None, frozenset(), tuple(findings), tuple(Unchecked(name, CATALOG, why) for name in names)
        )
    number = None if next_id is None else int(next_id)
    return Catalog(meta, rows, number, dropping, tuple(findings), tuple(unchecked))


DROPPING = "SELECT entity FROM dropping"
# The columns that a row's checksum is over. Where a row says of which change it is, so does its checksum.
_CHECKED = {"meta": ("key", "value"), "entity": ("id", "name", "kind", "store", "document")}


def _damaged(snapshot: Snapshot, tables: Mapping[str, Collection[str]]) -> list[str]:
    """Rows that are not as they were written. Catalogs of older versions have no checksums."""
    found = []
    for table, columns in _CHECKED.items():
        known = tables.get(table, ())
        if "checksum" not in known:
            continue
        change = "change" if "change" in known else "NULL"
        for checksum, at, *values in snapshot.rows(f"SELECT checksum, {change}, {', '.join(columns)} FROM {table}"):
            if not is_right(checksum, at, values):
                found.append(f"{table} '{values[0] if table == 'meta' else values[1]}'")
    return found


def is_right(checksum: int | str | None, change: int | None, values: Sequence[int | str]) -> bool:
    """Whether a row of the catalog matches its checksum; one of an older version is not judged."""
    if checksum is None:
        return True
    right = checksum_of(*values)
    if change is None:
        return checksum == right
    return not str(checksum).startswith(f"{change}:") or checksum == f"{change}:{right}"


def compare(catalog: Catalog, stores: Mapping[int, Examined], places_of: Places) -> list[Finding]:
    """All findings about catalog and stores together."""
    if any(unchecked.check == "catalog-row" for unchecked in catalog.unchecked):
        return []
    findings, placed = _read_rows(catalog, places_of)
    unreadable = {row.id for row in catalog.rows} - {entity for entity, _ in placed.values()}
    for number, store in sorted(stores.items()):
        is_unreadable = any(unchecked.check == "queue-row" for unchecked in store.unchecked)
        if not is_unreadable:
            findings += _orphans(store, placed, unreadable | catalog.dropping)
            findings += _missing(store, placed, catalog)
        findings += _identity(catalog, store, number)
        findings += _transfers(store, catalog)
    findings += _without_store(stores, placed, catalog)
    return findings


def _read_rows(catalog: Catalog, places_of: Places) -> tuple[list[Finding], dict[int, tuple[int, int]]]:
    """The store and the entity of each number that the catalog knows, and which rows make no sense."""
    placed: dict[int, tuple[int, int]] = {}
    wrong: list[str] = []
    for row in catalog.rows:
        try:
            places = places_of(row)
        except Exception as error:  # Whatever a damaged document makes its reader do.
            wrong.append(f"'{row.name}': its description cannot be read: {error!r}")
            continue
        if catalog.next_id is not None and max(row.id, *places, row.id) >= catalog.next_id:
            wrong.append(f"'{row.name}': its number {row.id} would be given out once more")
        placed.update((number, (row.id, store)) for number, store in places.items())
        if not places:
            placed[row.id] = (row.id, -1)
    if not wrong:
        return [], placed
    text = f"{len(wrong):,} entities of the catalog make no sense."
    return [Finding("catalog-row", CATALOG, text, len(wrong), tuple(wrong[:EXAMPLES_MAX]))], placed


def _orphans(store: Examined, placed: Mapping[int, tuple[int, int]], unsure: AbstractSet[int]) -> list[Finding]:
    """Queues that the catalog does not know, or knows elsewhere; one that never held a message is freed at start."""
    found = [
        entity
        for entity, has_held in sorted(store.entities.items())
        if (known := placed.get(entity)) is None or known[1] != store.number
        if has_held and not any(row <= entity < row + 16 for row in unsure)
    ]
    if not found:
        return []
    told = tuple(store.names.queue(entity * 4) for entity in found[:EXAMPLES_MAX])
    text = f"The catalog does not know {len(found):,} entities that this store holds."
    return [Finding("queue-without-entity", f"store {store.number}", text, len(found), told)]


def _missing(store: Examined, placed: Mapping[int, tuple[int, int]], catalog: Catalog) -> list[Finding]:
    names = {row.id: row.name for row in catalog.rows}
    lost = [
        f"'{names[owner]}'" + (f" (fragment {entity - owner})" if entity != owner else "")
        for entity, (owner, place) in sorted(placed.items())
        if place == store.number and entity not in store.entities
    ]
    if not lost:
        return []
    text = f"{len(lost):,} entities that the catalog puts on this store are not there."
    where = f"store {store.number}"
    return [Finding("entity-without-queue", where, text, len(lost), tuple(lost[:EXAMPLES_MAX]))]


def _without_store(
    stores: Mapping[int, Examined], placed: Mapping[int, tuple[int, int]], catalog: Catalog
) -> list[Finding]:
    names = {row.id: row.name for row in catalog.rows}
    findings = []
    for place in sorted({place for _, place in placed.values()} - set(stores) - {-1}):
        lost = sorted({names[owner] for owner, on in placed.values() if on == place})
        text = f"{len(lost):,} entities lie on this store, which is not there."
        told = tuple(f"'{name}'" for name in lost[:EXAMPLES_MAX])
        findings.append(Finding("entity-without-queue", f"store {place}", text, len(lost), told))
    return findings


def _transfers(store: Examined, catalog: Catalog) -> list[Finding]:
    """The queue of a transfer may be gone, but it must have been."""
    most = catalog.next_id
    wrong = [queue for queue in store.transfers if queue < 4 or (most is not None and queue >> 2 >= most)]
    if not wrong:
        return []
    told = tuple(f"queue {queue}" for queue in wrong[:EXAMPLES_MAX])
    text = f"Transfers from {len(wrong):,} queues are remembered that never were."
    return [Finding("transfers", f"store {store.number}", text, len(wrong), told)]


def _identity(catalog: Catalog, store: Examined, number: int) -> list[Finding]:
    told: list[str] = []
    known = known_store(catalog.meta.get(f"store-{number}"))
    for what, catalog_key, store_key in IDENTITIES:
        expected = known.get("store") if what == "store" else catalog.meta.get(catalog_key)
        found = store.meta.get(store_key)
        if expected and found is not None and expected != found:  # After a rebuild, a missing store's id is not known.
            told.append(f"{what}: the catalog says {expected}, the store says {found}")
    own = store.meta.get(NUMBER_KEY)
    if own is not None and own != str(number):
        told.append(f"number: it is in the place of store {number}, and says that it is store {own}")
    for growing, heard, says in (
        (GENERATION, store.meta.get(GENERATION.heard), catalog.meta.get(GENERATION.says)),
        (OPENINGS, known.get(OPENINGS.heard), store.meta.get(OPENINGS.says)),
        (JOURNAL, known.get(JOURNAL.heard), store.last_journal),
    ):
        if _is_more(heard, says):
            told.append(f"{growing.what}: {heard} was heard of, and it is at {says}")
    if not told:
        return []
    text = "It does not belong to this catalog, or not as it is now."
    return [Finding("identity", f"store {number}", text, len(told), tuple(told))]


def known_store(text: str | None) -> dict[str, Any]:
    """What a catalog knows of a store: its id alone, or an object."""
    if text is None or not text.startswith("{"):
        return {} if text is None else {"store": text}
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"store": text}


def _is_more(heard: Any, says: Any) -> bool:
    try:
        return heard is not None and says is not None and int(heard) > int(says)
    except (TypeError, ValueError):
        return True
