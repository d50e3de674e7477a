"""A primary that was lost for good, and whose messages another one takes: as the option `replaces` says it. Pure.

`twinbus pair replace` writes that option, and nobody else takes what was meant for another namespace.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.client.diverting import MeantFor
from twinbus.pair.namespace.port import provisional_name

_NEXT = ","


class Replaced(NamedTuple):
    """One that is gone: its name, its id (empty where nobody knew it), and the address at which clients reached it."""

    name: str
    id: str
    reached_at: str

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def names(self) -> tuple[str, str]:
        """What its backlog queues may be called after."""
        return self.name, provisional_name(self.reached_at)

    def was_meant(self, meant_for: MeantFor) -> bool:
        """Whether a message was on its way there. Ids decide; an address may be somebody else's by now."""
        if self.id and meant_for.id:
            return self.id == meant_for.id
        return self.reached_at == meant_for.reached_at


def parse(text: str | None) -> tuple[Replaced, ...]:
    """The namespaces that an option names; a ValueError if it is none that we wrote."""
    found = [part.strip(" ").split(" ") for part in (text or "").split(_NEXT) if part.strip()]
    if any(len(words) != 3 or not words[0] or not words[2] for words in found):
        raise ValueError(f"replaces must be as `twinbus pair replace` writes it (NAME ID HOST:PORT), not {text!r}")
    return tuple(Replaced(*words) for words in found)


def to_text(replaced: tuple[Replaced, ...]) -> str:
    """As the option says it."""
    return f"{_NEXT} ".join(map(str, replaced))
