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


def text_in(body: Document, key: str, default: str | None = None) -> str:
    """Take a text out of the body."""
    found = body.pop(key, None)
    if found is None and default is not None:
        return default
    if not isinstance(found, str) or not found:
        raise BusError(Fault.ARGUMENT, f"'{key}' must be given as text.")
    return found


def nothing_else(body: Document) -> None:
    """Refuse what is left of the body when everything that means something was taken out of it."""
    if body:
        raise BusError(Fault.ARGUMENT, f"'{next(iter(body))[:40]}' is not known here.")
