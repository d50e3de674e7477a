"""The ordered backlog queues as senders use them: each session or key has one place there, and its messages take turns.

When to look and when to divert is decided by `route`; what is learnt of a session by the table in `table`. One writer
for a session is the application's part. Bringing the messages home in order is left to `syphon`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from twinbus.client import messages
from twinbus.client.diverting import MeantFor, divert
from twinbus.client.errors import ClientError
from twinbus.pair import listeners
from twinbus.pair.backlog.diversion import Diverted, refuse_larger
from twinbus.pair.errors import BacklogError
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.order import table
from twinbus.pair.order.table import PLACES, Place, Sign

SESSIONS_MAX = 100_000  # How many are remembered; one that was forgotten is asked for again.
RETURN_WAIT_S = 1.0  # How long a send waits for the last earlier message to come home, so that its session can return.
RETURN_LOOK_S = 0.05
RETURN_AGAIN_S = 5.0  # After a wait in vain, the next one comes so much later.


class OrderedBacklog:
    """Made once for a paired client; used on its loop."""

    def __init__(
        self,
        secondary: RemoteNamespace,
        queues: Sequence[str],
        timeout_s: float,
        on_diverted: Callable[[Diverted], None],
    ) -> None:
        self.secondary = secondary
        self.timeout_s = timeout_s
        self.diverted = 0
        self.meant_for: MeantFor | None = None  # The primary, in each message.
        self._queues = list(queues)
        self._on_diverted = on_diverted
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()

    @property
    def behind(self) -> int:
        """How many sessions may have messages in the backlog."""
        return sum(session.place is Place.BEHIND for session in self._sessions.values())

    def session(self, path: str, key: str) -> Session:
        """What is known of a session or key of an entity."""
        sessions = self._sessions
        name = (path.lower(), key)
        session = sessions.get(name)
        if session is None:
            session = sessions[name] = Session(self, path, key)
            if len(sessions) > SESSIONS_MAX:
                oldest = next(iter(sessions))
                if not sessions[oldest].turn.locked():
                    del sessions[oldest]
        else:
            sessions.move_to_end(name)
        return session

    @property
    def queues(self) -> list[str]:
        """The queues that are known."""
        return list(self._queues)

    def use(self, queues: Sequence[str]) -> None:
        """The queues are these."""
        self._queues = list(queues)

    def queue_of(self, session: str) -> str:
        """The one queue that a session of the backlog is in."""
        if not self._queues:
            raise BacklogError(
                "The ordered backlog queues are not known yet: they are called after the primary, which could not be"
                " asked for its name (give it as primary_name), or the secondary does not answer."
            )
        return self._queues[table.index_of(session, len(self._queues))]

    def was_diverted(self, diverted: Diverted) -> None:
        """A queue took a message."""
        self.diverted += 1
        listeners.call(self._on_diverted, diverted)


class Session:
    """One session or key of an entity."""

    def __init__(self, backlog: OrderedBacklog, path: str, key: str) -> None:
        self.place = Place.UNKNOWN
        self.turn = asyncio.Lock()
        self._backlog = backlog
        self._path = path
        self._name = table.session_of(path, key)
        self._patient_at = float("-inf")  # When a send may wait for it again.

    @property
    def must_look(self) -> bool:
        """Whether earlier messages may be in the backlog."""
        return self.place is not Place.HOME

    async def look(self) -> bool:
        """Whether the backlog has messages of the session; waits a moment for the last of them to come home."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (RETURN_WAIT_S if loop.time() >= self._patient_at else 0.0)
        while True:
            if not await self._peek():
                self._patient_at = float("-inf")
                self._learn(Sign.NONE_THERE)
                return False
            if loop.time() >= deadline:
                if loop.time() >= self._patient_at:
                    self._patient_at = loop.time() + RETURN_AGAIN_S
                self._learn(Sign.SOME_THERE)
                return True
            await asyncio.sleep(RETURN_LOOK_S)

    async def divert(self, payload: bytes, bytes_max: int | None = None) -> str:
        """Send to the session's queue. No other may stand in for it: the session would be in two places."""
        backlog = self._backlog
        queue = backlog.queue_of(self._name)
        if bytes_max is None:
            await refuse_larger(backlog.secondary, queue, [payload])
        self._learn(Sign.DIVERTING)
        try:
            diverted = divert(payload, self._path, None, self._name, backlog.meant_for)
            await backlog.secondary.send(queue, [diverted], timeout_s=backlog.timeout_s)
        except ClientError as error:
            raise BacklogError(f"The ordered backlog queue '{queue}' takes no message: {error.text}") from error
        backlog.was_diverted(Diverted(self._path, queue, [messages.read(payload).message_id or ""]))
        return queue

    async def _peek(self) -> bool:
        queue = self._backlog.queue_of(self._name)
        try:
            return await self._backlog.secondary.peek(queue, self._name)
        except ClientError as error:
            raise BacklogError(
                f"Whether earlier messages of the session are in '{queue}' cannot be asked now: {error.text}"
            ) from error

    def _learn(self, sign: Sign) -> None:
        self.place = PLACES[self.place, sign]
