"""Closing and faulting together: where a syphon runs, neither of the two clients of a pair outlives the other.

A client that may be broken is examined, and marked when no retry can mend it; the rule is in `namespace.soundness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.client.hearing import What
from twinbus.model.logged import EventLog
from twinbus.pair.errors import PartnerError
from twinbus.pair.namespace.port import ClientState, RemoteNamespace
from twinbus.pair.namespace.soundness import Sign, Soundness

_log = EventLog(__name__)

WATCH_S = 0.1
LOOK_S = 1.0  # How often one that may be broken is looked at.
_AGAINST = (Sign.REFUSED, Sign.GARBLED)


def refusal(namespace: RemoteNamespace) -> PartnerError:
    """What is raised by everything that would use a client that has ended."""
    if isinstance(namespace.reason, PartnerError):
        return PartnerError(str(namespace.reason))
    reason = f": {namespace.reason}" if namespace.reason is not None else "."
    return PartnerError(f"The {namespace.role} namespace of the pair is {namespace.state.value}{reason}")


def check_open(namespace: RemoteNamespace) -> None:
    """Raises a PartnerError if nothing may be opened there any more."""
    if namespace.is_ended:
        raise refusal(namespace)


class Ending:
    """The watch over both; used on one loop."""

    def __init__(
        self,
        primary: RemoteNamespace,
        secondary: RemoteNamespace,
        grace_s: float,
        on_fault: Callable[[RemoteNamespace, Exception], None],
    ) -> None:
        self._namespaces = (primary, secondary)
        self._grace_s = grace_s
        self._on_fault = on_fault
        self._soundness = {primary: Soundness(), secondary: Soundness()}
        self._examined: dict[RemoteNamespace, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        for namespace in self._namespaces:
            namespace.ends_with_partner = True
            namespace.on_doubt = self._doubt

    async def run(self) -> None:
        """Watch until neither can be used any more."""
        try:
            while not all(namespace.is_ended for namespace in self._namespaces):
                await asyncio.sleep(WATCH_S)
                for namespace, partner in (self._namespaces, self._namespaces[::-1]):
                    if namespace.is_ended and not partner.is_ended:
                        await self._end_with(partner, namespace)
        finally:
            await self._stop()

    async def _end_with(self, namespace: RemoteNamespace, cause: RemoteNamespace) -> None:
        if cause.state is ClientState.FAULTED:
            self._on_fault(cause, refusal(cause))
        else:
            await asyncio.sleep(self._grace_s)  # Its user may be closing both.
        if not namespace.is_ended:
            self._fault(namespace, refusal(cause))
            self._on_fault(namespace, refusal(namespace))

    def _fault(self, namespace: RemoteNamespace, reason: PartnerError) -> None:
        text = "the {namespace}'s client is not used any more: {error}"
        _log.error("pair.client.faulted", text, namespace=namespace.role, error=str(reason))
        namespace.fault(reason)

    async def _stop(self) -> None:
        tasks = list(self._examined.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Whether they are sound

    def _doubt(self, namespace: RemoteNamespace, what: What) -> None:
        """A connection heard something against a client, perhaps in another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin, namespace, what)

    def _begin(self, namespace: RemoteNamespace, what: What) -> None:
        if what is What.PROTOCOL_BROKEN:
            self._judge(namespace, Sign.GARBLED)
        under_way = self._examined.get(namespace)
        if not namespace.is_ended and (under_way is None or under_way.done()):
            self._examined[namespace] = self._loop.create_task(self._examine(namespace))

    async def _examine(self, namespace: RemoteNamespace) -> None:
        """Look every second, until it is certain what is the matter, or that nothing is."""
        next_at = self._loop.time()
        while True:
            sign = await namespace.examine()
            self._judge(namespace, sign)
            if sign not in _AGAINST or namespace.is_ended:
                return
            next_at = max(next_at + LOOK_S, self._loop.time())
            await asyncio.sleep(next_at - self._loop.time())

    def _judge(self, namespace: RemoteNamespace, sign: Sign) -> None:
        breach = self._soundness[namespace].heard(sign, self._loop.time())
        if breach is not None and not namespace.is_ended:
            text = f"The {namespace.role} namespace of the pair cannot be used any more: {breach.value}."
            self._fault(namespace, PartnerError(text))
