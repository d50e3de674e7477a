"""Many sends at once through a pair: each goes where the health of its entity says, on our own client.

The bound and the outcomes are `client.overlapped`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinbus.client.errors import ClientError
from twinbus.client.overlapped import MAX_IN_FLIGHT, Outcome, UncollectedError, Window
from twinbus.pair import sdk
from twinbus.pair.errors import BacklogError
from twinbus.pair.failures import kind_of
from twinbus.pair.health import Event, Route
from twinbus.pair.outbox_sending import Beside
from twinbus.pair.sending import Pairing

__all__ = ["MAX_IN_FLIGHT", "Outcome", "UncollectedError", "Window", "Windows"]


class Windows:
    """The windows of one sender; its end asks all of them for what nobody looked at."""

    def __init__(self) -> None:
        self._opened: list[Window[Any]] = []

    def open(
        self,
        pairing: Pairing,
        path: str,
        max_in_flight: int,
        refusal: Callable[..., Exception],
        beside: Beside | None = None,
    ) -> Window[Any]:
        """A window of sends to an entity of the primary; messages are the SDK's."""
        self._opened = [window for window in self._opened if window.under_way or window.forgotten()]
        opened: Window[Any] = Window(
            lambda message: _send_or_keep(pairing, path, message, refusal, beside), max_in_flight
        )
        self._opened.append(opened)
        return opened

    def check(self) -> None:
        """Raise failures that nobody looked at."""
        forgotten = [outcome for window in self._opened for outcome in window.forgotten()]
        self._opened.clear()
        if forgotten:
            raise UncollectedError(forgotten)


async def _send_or_keep(
    pairing: Pairing, path: str, message: sdk.Sendable, refusal: Callable[..., Exception], beside: Beside | None
) -> None:
    """As a paired sender does it: in order, and with an outbox, where that was asked for."""
    if beside is None:
        await _send(pairing, path, message, refusal)
    elif beside.takes(message):
        await beside.send(message)
    elif await beside.must_wait(sdk.encoded(message)):
        await beside.keep(sdk.encoded(message))
    else:
        try:
            await _send(pairing, path, message, refusal)
        except BacklogError:
            if not beside.has_outbox:
                raise
            await beside.keep(sdk.encoded(message))


async def _send(pairing: Pairing, path: str, message: sdk.Sendable, refusal: Callable[..., Exception]) -> None:
    key = pairing.key_of(path, message)
    scope = pairing.scope(path, key)
    route = pairing.board.route(scope)
    if route is Route.NOWHERE:
        raise refusal(scope)
    payloads = sdk.encoded(message)
    if route is Route.PRIMARY:
        try:
            sender = await pairing.companion.primary.sender(path)
            await sender.send(payloads)
        except ClientError as error:
            if kind_of(error) not in pairing.counting:
                raise sdk.as_sdk_error(error) from error
            pairing.board.tell(scope, Event.FAILED, error.text, key)
            if pairing.board.route(scope) is not Route.BACKLOG:
                raise sdk.as_sdk_error(error) from error
        else:
            pairing.board.sent(scope)
            return
    await pairing.companion.divert(payloads, path, None, None)
