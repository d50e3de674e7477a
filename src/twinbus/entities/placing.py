"""Which stores a new entity is put on: the ones with the least on them, chosen once and written down in the catalog.

A plain entity lies on one store; a partitioned one has its fragments on as many as there are, evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinbus.entities.partitions import FRAGMENTS
from twinbus.entities.ports import StorePort

Places = tuple[int, ...]  # The store of each fragment; of a plain entity, the one.


def places_for_new(stores: Sequence[StorePort], taken: Iterable[Places], partitioned: bool) -> Places:
    """Where a new entity goes, beside those that lie on the places `taken`."""
    loads = [0] * len(stores)
    for places in taken:
        for place in places:
            loads[place] += FRAGMENTS // len(places)
    # A store that is down gets nothing new while there are others.
    order = sorted(range(len(stores)), key=lambda index: (not stores[index].is_available, loads[index], index))
    chosen = order[: FRAGMENTS if partitioned else 1]
    return tuple(chosen[index % len(chosen)] for index in range(FRAGMENTS)) if partitioned else (chosen[0],)
