"""One request to the JSON API, as its routes take it.

Reading it from HTTP, and finding its route, is `api`'s business.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Document = dict[str, Any]


class Asked(NamedTuple):
    """The parts of the path that the route leaves open, and the body."""

    open: tuple[str, ...]
    body: Document
