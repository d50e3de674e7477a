"""Hides installed packages from a Python process and from those that it starts: the `sitecustomize` of `plain`.

Beside it stands `allowed.json`, with the top-level modules that may be imported although they are installed. Without
their parent, modules below a hidden one are not found either.
"""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

PLACES = ("site-packages", "dist-packages")


class Hiding:
    """In place of all finders: asks them, and has not seen what is hidden."""

    def __init__(self, finders, allowed):
        self._finders = list(finders)
        self._allowed = frozenset(allowed)

    def find_spec(self, name, path=None, target=None):
        for finder in self._finders:
            found = finder.find_spec(name, path, target)
            if found is not None:
                return None if self._hides(name, found) else found
        return None

    def _hides(self, name: str, found: ModuleSpec) -> bool:
        if "." in name or name in self._allowed:
            return False
        origins = [found.origin or "", *map(str, found.submodule_search_locations or ())]
        return any(place in Path(origin).parts for origin in origins for place in PLACES)

    def find_distributions(self, *args):
        for finder in self._finders:
            if hasattr(finder, "find_distributions"):
                yield from finder.find_distributions(*args)

    def invalidate_caches(self):
        for finder in self._finders:
            if hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()


sys.meta_path[:] = [Hiding(sys.meta_path, json.loads(Path(__file__).with_name("allowed.json").read_text()))]
