"""Who may do what: rights, and the rules that grant them to the holder of a key.

How a token is signed and read is `wire.sas`' business; where rules are kept, the catalog's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag
from typing import Any

from twinbus.model.errors import BusError, Fault

ROOT_POLICY = "RootManageSharedAccessKey"
KEY_CHARS_MIN, KEY_CHARS_MAX = 8, 256  # Of a key that somebody thinks out.


class Rights(Flag):
    """What a rule allows. MANAGE stands only together with the other two."""

    LISTEN = 1
    SEND = 2
    MANAGE = 4
    ALL = 7


# As files and requests name them: whoever writes Manage means all of them.
NAMED_RIGHTS = {"Listen": Rights.LISTEN, "Send": Rights.SEND, "Manage": Rights.ALL}


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A policy: its name, its two keys, either of which signs valid tokens, and the rights it grants."""

    name: str
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    rights: Rights

    def __post_init__(self) -> None:
        if not self.name or not self.primary_key or not self.secondary_key:
            raise BusError(Fault.ARGUMENT, "An authorization rule needs a name and two keys.")
        if not self.rights:
            raise BusError(Fault.ARGUMENT, f"The authorization rule '{self.name}' grants no right.")
        if Rights.MANAGE in self.rights and self.rights != Rights.ALL:
            raise BusError(
                Fault.ARGUMENT,
                f"The authorization rule '{self.name}' must grant Listen and Send with Manage.",
            )

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys, for the verification of a signature."""
        return self.primary_key, self.secondary_key

    def to_document(self) -> dict[str, Any]:
        """The rule as plain JSON values, keys included, for the catalog."""
        return {
            "name": self.name,
            "primary_key": self.primary_key,
            "secondary_key": self.secondary_key,
            "rights": self.rights.value,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> AuthorizationRule:
        """The inverse of `to_document`."""
        return cls(**{**document, "rights": Rights(document["rights"])})
