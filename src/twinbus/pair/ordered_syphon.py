"""The syphon of the ordered backlog queues: holds a session, and brings its messages home one at a time, in order.

Send, wait for the acknowledgement, complete, then the next. Several sessions go beside each other. What was diverted
without order is `pumping`'s business.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum

from twinbus.client import ReceivedMessage, Receiver, WantedSession
from twinbus.client.diverting import RestoreError, restore
from twinbus.client.endpoint import to_its_end, within
from twinbus.client.errors import ClientError, is_local
from twinbus.model.logged import EventLog
from twinbus.model.message import Outcome
from twinbus.pair import tracing
from twinbus.pair.dispatch_routes import TIMEOUT_S, send_within
from twinbus.pair.failures import Failure, is_refusal, kind_of
from twinbus.pair.half import Half, answers
from twinbus.pair.syphon import NOT_RETRYABLE

_log = EventLog(__name__)

SESSIONS_AT_ONCE = 16  # Of one queue.
LOT = 50
LINGER_S = 0.2  # A session that gives nothing for so long is let go.
RENEW_S = 15.0  # A session's lock is one minute.
BLOCKED_S = 5.0  # How long a session whose destination takes nothing is held before another one gets its turn.
LOOK_S = 60.0  # How often it looks whether somebody has begun to keep order.
PAUSE_MAX_S = 30.0


class _Move(Enum):
    """What became of one message."""

    DONE = "moved or buried"
    BLOCKED = "its destination takes nothing at present"
    GONE = "the primary is gone, or the session is"


class OrderedPump:
    """Brings home what is in the ordered backlog queues; `look` tells which there are."""

    def __init__(
        self,
        primary: Half,
        secondary: Half,
        look: Callable[[], Awaitable[list[str]]],
        *,
        poll_s: float,
        pause_s: float,
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._look = look
        self._poll_s = poll_s
        self._pause_s = pause_s
        self._healed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queues: set[str] = set()
        self.moved: Counter[str] = Counter()
        self.dead = 0
        self.doubled = 0
        self.problem: str | None = None
        self._is_gone = False  # The primary, when it was last sent to.

    def start(self) -> None:
        """Begin."""
        self._spawn(self._watch())

    def wake(self) -> None:
        """The primary may take messages again: do not wait any longer."""
        self._healed.set()

    async def stop(self) -> None:
        """End; what is under way is finished first."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

    async def drain(self) -> None:
        """Bring home what is there now; returns when nothing is left that can be moved."""
        try:
            await asyncio.gather(*(self._drain(queue) for queue in await self._look()))
        except ClientError as problem:
            self.problem = problem.text

    async def _drain(self, queue: str) -> None:
        with suppress(ClientError):  # There is no session left, or nothing can be moved.
            while await self._hold(queue, await self._accept(queue, LINGER_S), blocked_s=0.0):
                pass

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        """A client that keeps order may come later than the syphon."""
        while True:
            try:
                for queue in await self._look():
                    if queue not in self._queues:
                        self._queues.add(queue)
                        self._spawn(self._run(queue))
            except ClientError as problem:
                self.problem = problem.text
            await asyncio.sleep(LOOK_S)

    async def _run(self, queue: str) -> None:
        """Accept one session after the other; each is held by a task of its own."""
        room = asyncio.Semaphore(SESSIONS_AT_ONCE)
        pause_s = self._pause_s
        while True:
            async with room:  # Waits for room before a session is asked for.
                pass
            try:
                if self._is_gone:
                    await answers(self._primary)
                    self._is_gone = False
                receiver = await self._accept(queue, self._poll_s)
                pause_s = self._pause_s
            except ClientError as problem:
                if kind_of(problem) is Failure.TIMEOUT and not is_local(problem):
                    continue  # Nothing to do: the next long wait begins.
                self.problem = f"{queue}: {problem.text}"
                text = "the syphon of '{entity}' waits {pause_s:g} s: {error}"
                _log.warning("syphon.paused", text, entity=queue, pause_s=pause_s, error=problem.text)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
                continue
            await room.acquire()
            self._spawn(self._hold_in(room, queue, receiver))

    async def _accept(self, queue: str, wait_s: float) -> Receiver:
        connection = await self._secondary.connection()
        return await connection.receiver(queue, credit=0, session=WantedSession(None), session_wait_s=wait_s)

    async def _hold_in(self, room: asyncio.Semaphore, queue: str, receiver: Receiver) -> None:
        try:
            if not await self._hold(queue, receiver, BLOCKED_S):
                await self._pause(self._pause_s)
        except ClientError as problem:
            self.problem = f"{queue}: {problem.text}"
            await self._pause(self._pause_s)
        finally:
            room.release()

    async def _pause(self, pause_s: float) -> None:
        self._healed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._healed.wait()

    async def _hold(self, queue: str, receiver: Receiver, blocked_s: float) -> bool:
        """Empty a session; whether another one may do better now."""
        loop = asyncio.get_running_loop()
        renew_at = loop.time() + RENEW_S
        try:
            while lot := await receiver.receive(LOT, LINGER_S):
                for position, received in enumerate(lot):
                    if loop.time() >= renew_at:
                        await self._renew(queue, receiver)
                        renew_at = loop.time() + RENEW_S
                    move = await to_its_end(self._move(receiver, received))
                    if move is _Move.DONE:
                        continue
                    if move is _Move.BLOCKED:
                        await self._pause(blocked_s)
                    with suppress(ClientError):
                        releasing = receiver.settle(lot[position:], Outcome.RELEASE)
                        await within(TIMEOUT_S, releasing, f"giving back messages of '{queue}'")
                    return move is _Move.BLOCKED and blocked_s > 0
            return True
        finally:
            with suppress(ClientError):
                await receiver.close()

    async def _renew(self, queue: str, receiver: Receiver) -> None:
        management = await (await self._secondary.connection()).management(queue)
        try:
            await management.renew_session_lock(receiver.session_id or "")
        finally:
            with suppress(ClientError):
                await management.close()

    async def _move(self, receiver: Receiver, received: ReceivedMessage) -> _Move:
        """One message: send, wait for the acknowledgement, complete."""
        payloads = [received.payload]
        with tracing.span("syphon", receiver.path, kind="CONSUMER", type_="process", payloads=payloads, root=True):
            return await self._bring_home(receiver, received)

    async def _bring_home(self, receiver: Receiver, received: ReceivedMessage) -> _Move:
        try:
            restored = restore(received.payload)
        except RestoreError as problem:
            return await self._bury(receiver, received, problem.reason, problem.text)
        try:
            await send_within(self._primary, restored.path, [restored.payload])
        except ClientError as problem:
            if is_refusal(problem):
                words = f"'{restored.path}' refuses the message: {problem}"
                return await self._bury(receiver, received, NOT_RETRYABLE, words)
            self.problem = f"{restored.path}: {problem.text}"
            self._is_gone |= is_local(problem)
            return _Move.GONE if is_local(problem) else _Move.BLOCKED
        self._is_gone = False
        self.moved[restored.path] += 1
        self.problem = None
        try:
            await within(TIMEOUT_S, receiver.settle([received]), f"completing a message of '{receiver.path}'")
        except ClientError:
            self.doubled += 1
            return _Move.GONE  # It will be sent again under the same id, before anything that follows it.
        return _Move.DONE

    async def _bury(self, receiver: Receiver, received: ReceivedMessage, reason: str, description: str) -> _Move:
        """An undeliverable message does not block its session."""
        burying = receiver.settle([received], Outcome.DEAD_LETTER, reason=reason, description=description[:4096])
        try:
            await within(TIMEOUT_S, burying, f"burying a message of '{receiver.path}'")
        except ClientError:
            return _Move.GONE
        self.dead += 1
        return _Move.DONE
