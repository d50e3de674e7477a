"""Faults on purpose in the JSON API: `/$api/faults` tells what a namespace suffers, and below it each begins and ends.

What a disturbance does is decided elsewhere; here it is only read and worded. While the doors are shut, these requests
alone are answered, or nobody could open them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from twinbus.admin.asked import Asked, Document
from twinbus.admin.faults import HttpError
from twinbus.model.disturbance import FACTS, Disturbance
from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.errors import BusError, Fault

PLACE = "faults"
DELAY_MS = 1_000
DELAY_MS_MAX = 15 * 60_000  # The longest that the documents speak of.
LASTING_MS_MAX = 7 * 24 * 3_600_000
_ONE = r"faults/([a-z-]{1,40})"


class Disturbed(NamedTuple):
    """A disturbance that is going on."""

    what: Disturbance
    since_ms: int
    until_ms: int | None = None  # None: until it is lifted.
    store: int | None = None
    delay_ms: int = 0


class Disturber(Protocol):
    """Whoever begins and ends disturbances of a namespace."""

    def under_way(self) -> Sequence[Disturbed]:
        """What is going on."""
        ...

    async def begin(self, what: Disturbance, *, store: int | None, delay_ms: int, for_ms: int | None) -> None:
        """Begin one, or change the one that is going on."""
        ...

    async def lift(self, what: Disturbance, store: int | None = None) -> int:
        """End one, on one store or on all; how many were ended."""
        ...


class DisturbingRoutes:
    """The routes about faults on purpose."""

    def __init__(self, disturber: Disturber | None, instant: Callable[[int], str]) -> None:
        """Without a disturber everything but looking is refused."""
        self._disturber = disturber
        self._instant = instant
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", PLACE): self._list,
            ("PUT", _ONE): self._begin,
            ("DELETE", _ONE): self._lift,
            ("DELETE", PLACE): self._lift_all,
        }

    async def _list(self, asked: Asked) -> Document:
        going_on = () if self._disturber is None else self._disturber.under_way()
        known = [{"name": what.value, "meaning": facts.meaning} for what, facts in FACTS.items()]
        return {
            "allowed": self._disturber is not None,
            "faults": [self._document(one) for one in going_on],
            "known": known,
        }

    async def _begin(self, asked: Asked) -> Document:
        disturber, what = self._allowed(), _named(asked.open[0])
        facts, body = FACTS[what], asked.body
        for_ms = _duration_ms(body, "for", LASTING_MS_MAX)
        delay_ms = _duration_ms(body, "delay", DELAY_MS_MAX) if facts.delays else None
        store = _store(body) if facts.of_a_store else None
        if body:
            raise BusError(Fault.ARGUMENT, f"'{next(iter(body))[:40]}' is not known for '{what.value}'.")
        await disturber.begin(what, store=store, delay_ms=delay_ms or DELAY_MS, for_ms=for_ms)
        return await self._list(asked)

    async def _lift(self, asked: Asked) -> Document:
        return {"lifted": await self._allowed().lift(_named(asked.open[0]))}

    async def _lift_all(self, asked: Asked) -> Document:
        disturber = self._allowed()
        return {"lifted": sum([await disturber.lift(what) for what in Disturbance])}

    def _allowed(self) -> Disturber:
        if self._disturber is None:
            raise HttpError(409, "This namespace is not for faults on purpose: start the broker with --faults.")
        return self._disturber

    def _document(self, one: Disturbed) -> Document:
        return {
            "name": one.what.value,
            "since": self._instant(one.since_ms),
            "until": None if one.until_ms is None else self._instant(one.until_ms),
            **({"store": one.store} if one.store is not None else {}),
            **({"delay": format_duration(one.delay_ms)} if FACTS[one.what].delays else {}),
        }


def _named(name: str) -> Disturbance:
    try:
        return Disturbance(name)
    except ValueError:
        known = ", ".join(what.value for what in Disturbance)
        raise HttpError(404, f"There is no fault '{name}'; known are {known}.") from None


def _duration_ms(body: Document, key: str, longest_ms: int) -> int | None:
    given = body.pop(key, None)
    if given is None:
        return None
    if not isinstance(given, str):
        raise BusError(Fault.ARGUMENT, f"'{key}' must be a duration such as PT30S.")
    found = parse_duration_ms(given)
    if not 0 < found <= longest_ms:
        raise BusError(Fault.ARGUMENT, f"'{key}' must be more than nothing and at most {format_duration(longest_ms)}.")
    return found


def _store(body: Document) -> int:
    number = body.pop("store", 0)
    if type(number) is not int or number < 0:
        raise BusError(Fault.ARGUMENT, "'store' must be the number of a messaging store.")
    return number
