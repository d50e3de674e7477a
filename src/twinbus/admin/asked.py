"""One request to the JSON API, as its routes take it.

Reading it from HTTP, and finding its route, is `api`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from twinbus.model.errors import BusError, Fault

Document = dict[str, Any]
API_VERSION = "api-version"  # Clients that also use the Atom API give it everywhere.


class Asked(NamedTuple):
    """The parts of the path that the route leaves open, the body, and what stands behind the question mark."""

    open: tuple[str, ...]
    body: Document
    query: Mapping[str, str] = {}

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.query.get(name, default)

    def number(self, name: str, default: int, most: int) -> int:
        """A parameter of the address that is a whole number."""
        text = self.query.get(name) or str(default)
        if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) > most:
            raise BusError(Fault.ARGUMENT, f"'{name}' must be a whole number up to {most}.")
        return int(text)

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """A parameter of the address that is a word; the first choice if it is not given."""
        found = self.query.get(name) or choices[0]
        if found not in choices:
            raise BusError(
                Fault.ARGUMENT, f"'{name}' must be one of {', '.join(word or 'nothing' for word in choices)}."
            )
        return found

    def only(self, *known: str) -> None:
        """Refuse parameters of the address that mean nothing here."""
        for name in self.query:
            if name not in (*known, API_VERSION):
                raise BusError(Fault.ARGUMENT, f"'{name[:40]}' is not known here.")
