"""What the backlog queues say of the primary that they belong to, in the user metadata of the first of them. Pure.

Several primaries may have one name, and a client may start while its own cannot be asked: then this is where it finds
the primary's name and id, by the address that it has. Queues of a provisional name say the address alone, until a
client that uses it has learnt whose it is: so a syphon that reaches that primary elsewhere finds them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

KEY = "twinbus-primaries"
TEXT_MAX = 1024
ADDRESSES_MAX = 8
NOT_KNOWN = ""  # In the place of an id.


@dataclass(slots=True)
class Signs:
    """The primaries that use a backlog queue: their ids, and the addresses by which clients reach each."""

    primaries: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Signs:
        """From a queue's user metadata; what somebody else wrote there says nothing."""
        try:
            found = json.loads(text or "{}")[KEY]
            return cls({str(each): [str(address) for address in addresses] for each, addresses in found.items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def to_text(self) -> str:
        """As it is written; what has no room is left out, the oldest first."""
        while len(text := json.dumps({KEY: self.primaries}, separators=(",", ":"))) > TEXT_MAX:
            del self.primaries[next(iter(self.primaries))]
        return text

    def id_at(self, address: str) -> str | None:
        """The primary that is reached there; the one that was seen there last, if there were several."""
        return next((each for each in reversed(self.primaries) if each and address in self.primaries[each]), None)

    @property
    def is_provisional(self) -> bool:
        """Whether the queue is called after an address, because nobody could say who is reached there."""
        return NOT_KNOWN in self.primaries

    @property
    def ids(self) -> set[str]:
        """The ids of the primaries that use it, as far as they are known."""
        return {each for each in self.primaries if each}

    def belongs(self, namespace_id: str, address: str) -> bool:
        """Whether it belongs to a primary that goes by another name: a provisional one, or that of one in its place.

        Another name for the same primary was chosen by somebody, who has a syphon for it.
        """
        if namespace_id in self.ids:
            return self.is_provisional
        return any(addresses[-1:] == [address] for each, addresses in self.primaries.items() if each)

    def add(self, namespace_id: str, address: str) -> bool:
        """A primary was reached at an address; whether that is news."""
        addresses = self.primaries.get(namespace_id, [])
        if address in addresses and self.id_at(address) == (namespace_id or None):
            return False
        self.primaries.pop(namespace_id, None)
        self.primaries[namespace_id] = [*(each for each in addresses if each != address), address][-ADDRESSES_MAX:]
        return True


def may_be_written(text: str | None) -> bool:
    """Whether the metadata is free for us: somebody's own text stays."""
    return not text or bool(Signs.parse(text).primaries)
