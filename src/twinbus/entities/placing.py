"""Which stores a new entity is put on: the ones with the least on them, chosen once and written down in the catalog.

A plain entity lies on one store; a partitioned one has its fragments on as many as there are, evenly.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.entities.partitions import FRAGMENTS
from twinbus.entities.ports import StorePort

Places = tuple[int, ...]  # The store of each fragment; of a plain entity, the one.


class Loads:
    """How much lies on each store, counted as entities come and go: there may be ten thousand of them."""

    def __init__(self, store_count: int) -> None:
        self._loads = [0] * store_count

    def add(self, places: Places) -> None:
        """An entity lies there now."""
        for place in places:
            self._loads[place] += FRAGMENTS // len(places)

    def take(self, places: Places) -> None:
        """An entity lies there no longer."""
        for place in places:
            self._loads[place] -= FRAGMENTS // len(places)

    def on(self, index: int) -> int:
        """What lies on a store."""
        return self._loads[index]


def places_for_new(stores: Sequence[StorePort], loads: Loads, partitioned: bool) -> Places:
    """Where a new entity goes, beside those that are there."""
    # A store that is down gets nothing new while there are others.
    order = sorted(range(len(stores)), key=lambda index: (not stores[index].is_available, loads.on(index), index))
    chosen = order[: FRAGMENTS if partitioned else 1]
    return tuple(chosen[index % len(chosen)] for index in range(FRAGMENTS)) if partitioned else (chosen[0],)
