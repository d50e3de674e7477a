"""The syphon of a pair: everything that brings diverted messages home, plain ones by `pump`, ordered ones by `ordered`.

Spark has a task of its own that runs the same steps (`pipeline.syphoning`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from twinbus.client.errors import ClientError
from twinbus.pair import replaced
from twinbus.pair.backlog import making
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.backlog.queues import spans
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.order import queues as ordered_queues
from twinbus.pair.syphon.home import Home, Progress
from twinbus.pair.syphon.ordered import ORDERED, OrderedPump
from twinbus.pair.syphon.pump import Pump

RECORD_ENTITIES_MAX = 10
RECORD_TEXT_MAX = 300


class Syphon:
    """Made when the pair is made; used on one loop. `on_change` hears that there is news for the status record."""

    def __init__(
        self,
        primary: RemoteNamespace,
        secondary: RemoteNamespace,
        primary_name: str,
        queues: Sequence[str],
        options: SendAvailabilityOptions,
    ) -> None:
        self.on_change: Callable[[], None] | None = None
        self.progress = Progress()
        self._name = primary_name
        lost = replaced.parse(options.replaces)
        self._home = Home(primary, options.seconds("missing_entity_wait"), self._changed, replaced=lost)
        poll_s, pause_s = options.seconds("poll"), options.seconds("syphon_pause")
        self._replaces = list(dict.fromkeys(name for each in lost for name in each.names))
        ordered = list(dict.fromkeys((primary_name, *self._replaces)))
        # A client that could not ask for the name has used the provisional one.
        plain = list(dict.fromkeys((primary_name, primary.provisional_name, *self._replaces)))

        async def find_plain() -> list[str]:
            with suppress(ClientError):
                await self._home.identify()
            if not (own_id := self._home.id):
                return await making.found(secondary, plain)
            return await making.found(secondary, plain, belongs=lambda signs: signs.belongs(own_id, primary.reached_at))

        async def find_ordered() -> list[str]:
            return [queue for name in ordered for queue in await ordered_queues.found(secondary, name)]

        self._pump = Pump(
            self._home,
            secondary,
            find_plain,
            self.progress,
            batch=options.syphon_batch,
            poll_s=poll_s,
            pause_s=pause_s,
            queues=queues,
        )
        self._ordered = OrderedPump(self._home, secondary, find_ordered, self.progress, poll_s=poll_s, pause_s=pause_s)

    def start(self) -> None:
        """Bring home what comes, until `stop`."""
        self._pump.start()
        self._ordered.start()

    @property
    def is_running(self) -> bool:
        """Whether it is at work."""
        return self._pump.is_running

    def wake(self) -> None:
        """The primary may take messages again: do not wait any longer."""
        self._home.wake()

    async def stop(self) -> None:
        """End; what is under way is finished first."""
        await asyncio.gather(self._pump.stop(), self._ordered.stop())

    def record(self) -> dict[str, Any]:
        """What operators learn of it: what it did, what it drains, what it waits for, and when it tries again."""
        found = self.progress
        waits_for, why, next_try_s = None, None, None
        for role, reachability in (("primary", self._home.reachability), ("secondary", self._pump.reachability)):
            if reachability.is_lost:
                waits_for, why, next_try_s = role, reachability.problem, reachability.next_look_s()
                break
        # While a namespace is away, that is the whole reason; entities are not to blame.
        blocked = [(path, text) for path, text in found.problems.items() if not waits_for and not self._is_own(path)]
        return {
            "moved": found.moved.total(),
            "dead": found.dead,
            "problem": (why or found.problem or "")[:RECORD_TEXT_MAX] or None,
            "queues": spans(self._pump.queues),
            "ordered_queues": spans(self._ordered.queues),
            **({"replaces": others} if (others := self._other_names()) else {}),
            "waits_for": waits_for,
            "next_try_in_s": None if next_try_s is None else round(next_try_s, 1),
            "blocked": {path: text[:RECORD_TEXT_MAX] for path, text in blocked[:RECORD_ENTITIES_MAX]},
        }

    def _other_names(self) -> list[str]:
        """Names besides the primary's own that there are queues of: those it replaces, and provisional ones."""
        found = {backlog.primary_of(queue) or self._name for queue in self._pump.queues}
        return [*self._replaces, *sorted(found - {self._name, *self._replaces})]

    def _is_own(self, place: str) -> bool:
        """Whether a problem is one of the backlog, and not of a destination."""
        return place in self._pump.queues or place in self._ordered.queues or place == ORDERED

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    async def drain(self) -> Progress:
        """Bring home what is there now; returns when nothing is left that can be moved."""
        await asyncio.gather(self._pump.drain(), self._ordered.drain())
        return self.progress
