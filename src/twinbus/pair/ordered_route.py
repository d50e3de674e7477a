"""Sends that keep the order of their session, whatever becomes of the primary meanwhile.

Obeys the table in `ordered`. One writer for a session is the application's part; here its sends go one after the other,
and different sessions beside each other. Bringing the messages home in order is `ordered_syphon`'s work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinbus.client import messages
from twinbus.client.diverting import divert
from twinbus.client.endpoint import within
from twinbus.client.errors import ClientError
from twinbus.client.management import Management
from twinbus.pair import ordered
from twinbus.pair.dispatch_routes import send_within
from twinbus.pair.diversion import Diverted
from twinbus.pair.errors import BacklogError, RefusedError
from twinbus.pair.failures import kind_of
from twinbus.pair.health import Event, Route
from twinbus.pair.ordered import PLACES, STEPS, Place, Sign, Step

if TYPE_CHECKING:
    from twinbus.pair.board import Scope
    from twinbus.pair.sending import Pairing

SESSIONS_MAX = 100_000  # How many are remembered; one that was forgotten is asked for again.
RETURN_WAIT_S = 1.0  # How long a send waits for the last earlier message to come home, so that its session can return.
RETURN_LOOK_S = 0.05
RETURN_AGAIN_S = 5.0  # After a wait in vain, the next one comes so much later.


@dataclass(slots=True)
class _Session:
    """What is known of one session."""

    place: Place = Place.UNKNOWN
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    patient_at: float = float("-inf")  # When a send may wait for it again.

    def learn(self, sign: Sign) -> None:
        self.place = PLACES[self.place, sign]


class OrderedRoute:
    """Made once for a paired client; used on the companion's loop."""

    def __init__(self, pairing: Pairing, queues: Sequence[str]) -> None:
        self._pairing = pairing
        self._queues = list(queues)
        self._timeout_s = pairing.companion.options.seconds("attempt_timeout")
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        self._management: dict[str, Management] = {}
        self.diverted = 0

    @property
    def behind(self) -> int:
        """How many sessions may have messages in the backlog."""
        return sum(session.place is Place.BEHIND for session in self._sessions.values())

    async def send(self, payload: bytes, path: str, key: str) -> None:
        """Send a message of a session or key, when the one before is acknowledged.

        Raises a ClientError if the primary failed and nothing was diverted, a BacklogError if the backlog did.
        """
        session = self._session(path, key)
        async with session.turn:
            await self._send(session, payload, path, key)

    async def _send(self, session: _Session, payload: bytes, path: str, key: str) -> None:
        pairing = self._pairing
        fragment_key = key if path.lower() in pairing.partitioned else None
        scope = pairing.scope(path, fragment_key)
        step = STEPS[session.place, pairing.board.route(scope)]
        if step is Step.ASK:
            session.learn(await self._ask(session, path, key))
            step = STEPS[session.place, pairing.board.route(scope)]
            step = Step.BACKLOG if step is Step.ASK else step
        if step is Step.REFUSE:
            reason = pairing.board.health(scope).reason
            raise RefusedError(f"The primary refuses messages for '{scope}' in a way that will not pass: {reason}")
        if step is Step.PRIMARY and await self._at_primary(payload, path, scope, fragment_key):
            return
        session.learn(Sign.DIVERTING)
        await self._to_backlog(payload, path, key)

    async def _at_primary(self, payload: bytes, path: str, scope: Scope, key: str | None) -> bool:
        """Whether the primary took it; False if it is to be diverted, else the error."""
        board = self._pairing.board
        try:
            await send_within(self._pairing.companion.primary, path, [payload], self._timeout_s)
        except ClientError as error:
            if kind_of(error) not in self._pairing.counting:
                raise
            board.tell(scope, Event.FAILED, error.text, key)
            if board.route(scope) is not Route.BACKLOG:
                raise
            return False
        board.sent(scope)
        return True

    async def _to_backlog(self, payload: bytes, path: str, key: str) -> None:
        name = ordered.session_of(path, key)
        queue = self._queue(name)
        companion = self._pairing.companion
        try:
            await send_within(companion.secondary, queue, [divert(payload, path, None, name)], self._timeout_s)
        except ClientError as error:
            # No other queue may stand in for it: the session would be in two places.
            raise BacklogError(f"The ordered backlog queue '{queue}' takes no message: {error.text}") from error
        self.diverted += 1
        companion.was_diverted(Diverted(path, queue, [messages.read(payload).message_id or ""]))

    # Asking

    async def _ask(self, session: _Session, path: str, key: str) -> Sign:
        """Whether the backlog has messages of a session; waits a moment for the last of them to come home."""
        loop = asyncio.get_running_loop()
        name = ordered.session_of(path, key)
        deadline = loop.time() + (RETURN_WAIT_S if loop.time() >= session.patient_at else 0.0)
        while True:
            if not await self._peek(name):
                session.patient_at = float("-inf")
                return Sign.NONE_THERE
            if loop.time() >= deadline:
                if loop.time() >= session.patient_at:
                    session.patient_at = loop.time() + RETURN_AGAIN_S
                return Sign.SOME_THERE
            await asyncio.sleep(RETURN_LOOK_S)

    async def _peek(self, name: str) -> bool:
        """Whether a session of the backlog has a message, one that is being brought home included."""
        queue = self._queue(name)
        known = self._management.pop(queue, None)
        if known is not None:
            with suppress(ClientError):  # The connection may have been lost since; another one may do.
                found = await within(self._timeout_s, known.peek(0, 1, name), f"peeking into '{queue}'")
                self._management[queue] = known
                return bool(found)
        try:
            connection = await self._pairing.companion.secondary.connection()
            management = await connection.management(queue)
            found = await within(self._timeout_s, management.peek(0, 1, name), f"peeking into '{queue}'")
        except ClientError as error:
            raise BacklogError(
                f"Whether earlier messages of the session are in '{queue}' cannot be asked now: {error.text}"
            ) from error
        self._management[queue] = management
        return bool(found)

    def _queue(self, name: str) -> str:
        return self._queues[ordered.index_of(name, len(self._queues))]

    def _session(self, path: str, key: str) -> _Session:
        sessions = self._sessions
        name = (path.lower(), key)
        session = sessions.get(name)
        if session is None:
            session = sessions[name] = _Session()
            if len(sessions) > SESSIONS_MAX:
                oldest = next(iter(sessions))
                if not sessions[oldest].turn.locked():
                    del sessions[oldest]
        else:
            sessions.move_to_end(name)
        return session
