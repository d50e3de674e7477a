"""Addresses of PostgreSQL databases: what may be shown of them, and what may not.

A password in an address is never printed; connecting is `sql.postgres`' business.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from twinbus.broker.settings import SettingsError

_ADDRESS = re.compile(r"postgres(?:ql)?://(?:[^@/?#]*@)?(?P<hosts>[^@/?#]*)(?:/(?P<database>[^/?#]*))?(?:\?[^#]*)?\Z")

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class DatabaseAddress:
    """Where one database is: a libpq connection URI, several hosts allowed."""

    __slots__ = ("database", "hosts", "uri")

    def __init__(self, uri: str) -> None:
        found = _ADDRESS.match(uri)
        if found is None or _BROKEN_ESCAPE.search(uri):
            # Not even a part of it is repeated: a password that is not quoted may be anywhere in it.
            raise SettingsError(
                "A --store must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE (hosts may be several, with commas); "
                "characters such as @, / and # in a password are written as %40, %2F and %23."
            )
        self.uri = uri
        asked = dict(parse_qsl(urlsplit(uri).query))
        self.hosts = found["hosts"] or asked.get("host", "localhost")
        self.database = found["database"] or asked.get("dbname", "")

    @property
    def label(self) -> str:
        """What people may see."""
        return f"{self.hosts}/{self.database}"

    @property
    def without_password(self) -> str:
        """The address itself, with a word where its password was."""
        hidden = re.sub(r"(?<=//)([^@/?#:]*):[^@/?#]*@", r"\1:PASSWORD@", self.uri)
        return re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1PASSWORD", hidden)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseAddress) and other.uri == self.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.label})"
