"""One look at a page: who looks, whom the page can ask, and what stands in its address.

Made for each request by `site`, and used by every page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp

from twinbus.console.asking import PATIENCE_S, Answer, Asker, RefusedError
from twinbus.console.html import Markup, el
from twinbus.console.pair import PairWatch, Watched
from twinbus.console.sessions import Session

BEGINNING = "/$console/"


class Form:
    """What a form says."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        """A field, or what is in place of it."""
        return self._values.get(name, default)

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return name in self._values

    def confirmed(self, name: str) -> None:
        """Refuse what cannot be undone unless the entity's name was typed."""
        if self.text("confirm").strip().lower() != name.lower():
            raise RefusedError(400, "unconfirmed", f"Nothing was done: type the name '{name}' to confirm.")


@dataclass(slots=True)
class Visit:
    """One request for a page."""

    session: Session
    own: Asker
    query: Mapping[str, str]
    pair: PairWatch | None
    http: aiohttp.ClientSession
    was_silent: Callable[[bool], None]
    own_patience_s: float
    patience_s: float = PATIENCE_S  # What is left of the time that a page may wait for the other namespace.
    own_until_s: float = 0.0  # When waiting for its own is over, however often it asks.

    async def begin(self) -> None:
        """A page, or a renewal of one, is to be made."""
        self.own_until_s = time.monotonic() + self.own_patience_s
        if self.pair is not None:
            self.patience_s = await self.pair.view()

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.query.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """A parameter of the address that is a whole number."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else default

    async def look(self, path: str, **parameters: object) -> Answer:
        """Ask the console's own namespace for something to show."""
        self.own.patience_s = max(0.0, self.own_until_s - time.monotonic())
        answer = await self.own.look(path, **parameters)
        if path != "faults":  # They are told even by one that is silent on purpose.
            self.was_silent(answer.problem is not None and answer.problem.startswith("no answer"))
        return answer

    @property
    def partner(self) -> Watched | None:
        """The other namespace of the pair."""
        if self.pair is None or self.pair.half(self.session.namespace) is None:
            return None
        own = self.pair.half(self.session.namespace)
        return self.pair.secondary if own is self.pair.primary else self.pair.primary

    @property
    def token(self) -> Markup:
        """What shows that a form is of this session."""
        return el("input", type="hidden", name="token", value=self.session.form_token)

    def form(self, act: str, *children: object, class_: str = "") -> Markup:
        """A form that changes something."""
        return el("form", self.token, children, method="post", action=f"{BEGINNING}{act}", class_=class_)
