"""The syphon of the ordered backlog queues: holds a session, and brings its messages home one at a time, in order.

Each is sent, acknowledged and completed before the next one. Several sessions are moved at the same time. What was
diverted without order is left to `pump`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from twinbus.client.diverting import RestoreError, restore
from twinbus.client.endpoint import to_its_end
from twinbus.client.errors import ClientError, is_local
from twinbus.client.mover import Moved, move
from twinbus.model.logged import EventLog
from twinbus.pair import tracing
from twinbus.pair.namespace.port import Received, Receiver
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.syphon.home import PAUSE_MAX_S, Backlog, give_back
from twinbus.pair.syphon.pump import QueuePump

_log = EventLog(__name__)

SESSIONS_AT_ONCE = 16  # Of one queue.
LOT = 50
LINGER_S = 0.2  # A session that gives nothing for so long is let go.
RENEW_S = 15.0  # A session's lock is one minute.
BLOCKED_S = 1.0  # How long a session whose destination takes nothing is held before another one gets its turn.
ORDERED = "ordered backlog queues"
LOOK_S = 60.0  # How often it looks whether somebody has begun to use ordered queues.


class OrderedPump(QueuePump):
    """Brings home what is in the ordered backlog queues."""

    kind = ORDERED

    def _look_s(self, is_found: bool) -> float:
        return LOOK_S if is_found else PAUSE_MAX_S

    async def _drain(self, queue: str) -> None:
        with suppress(ClientError):  # There is no session left, or nothing can be moved.
            while await self._hold(await self._secondary.session_receiver(queue, LINGER_S), blocked_s=0.0):
                pass

    async def _run(self, queue: str) -> None:
        """Accept one session after the other; each is held by a task of its own."""
        room = asyncio.Semaphore(SESSIONS_AT_ONCE)
        pause_s = self._pause_s
        while True:
            async with room:  # Waits for room before a session is asked for.
                pass
            try:
                await self._home.back()
                receiver = await self._secondary.session_receiver(queue, self._poll_s)
            except ClientError as problem:
                if kind_of(problem) is Failure.TIMEOUT and not is_local(problem):
                    self._progress.problems.pop(queue, None)
                    continue  # Nothing to do: the next long wait begins.
                self._progress.problems[queue] = problem.text
                text = "the syphon of '{entity}' waits {pause_s:g} s: {error}"
                _log.warning("syphon.paused", text, entity=queue, pause_s=pause_s, error=problem.text)
                await self._home.pause(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
                continue
            pause_s = self._pause_s
            self._progress.problems.pop(queue, None)
            await room.acquire()
            self._spawn(self._hold_in(room, queue, receiver))

    async def _hold_in(self, room: asyncio.Semaphore, queue: str, receiver: Receiver) -> None:
        try:
            if not await self._hold(receiver, BLOCKED_S):
                await self._home.pause(self._pause_s)
        except ClientError as problem:
            self._progress.problems[queue] = problem.text
            await self._home.pause(self._pause_s)
        finally:
            room.release()

    async def _hold(self, receiver: Receiver, blocked_s: float) -> bool:
        """Empty a session; whether another one may do better now."""
        loop = asyncio.get_running_loop()
        renew_at = loop.time() + RENEW_S
        try:
            while lot := await receiver.receive(LOT, LINGER_S):
                for position, received in enumerate(lot):
                    if loop.time() >= renew_at:
                        await self._secondary.renew_session(receiver)
                        renew_at = loop.time() + RENEW_S
                    moved = await to_its_end(self._move(receiver, received))
                    if moved.done or moved.set_aside:
                        continue
                    # One that was not completed will be sent again under its id, before anything that follows it.
                    is_blocked = bool(moved.blocked) and not moved.is_gone
                    if is_blocked:
                        await self._home.pause(blocked_s)
                    await give_back(receiver, lot[position:])
                    return is_blocked and blocked_s > 0
            return True
        finally:
            with suppress(ClientError):
                await receiver.close()

    async def _move(self, receiver: Receiver, received: Received) -> Moved[Received]:
        payloads = [received.payload]
        try:
            await self._home.identify()
        except ClientError as problem:
            return Moved(blocked={receiver.path: problem}, is_gone=True)
        with tracing.span("syphon", receiver.path, kind="CONSUMER", type_="process", payloads=payloads, root=True):
            moved = await move(Backlog(receiver, self._home), self._home, [received])
        self._progress.add(moved, receiver.path)
        if moved.set_aside:
            with suppress(RestoreError):  # Nothing of its destination waits any more.
                self._progress.problems.pop(restore(received.payload).path, None)
        return moved
