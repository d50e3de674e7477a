"""Sessions: who holds which, for how long, and the state that their receivers keep with them.

A hold is volatile, the state is durable. Messages inside a held session are handed out by `store.acquiring`.
"""

from __future__ import annotations

import json

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import SessionGrant
from twinbus.store import statements
from twinbus.store.acquiring import held_session
from twinbus.store.commands import (
    AcceptSession,
    GetSessionState,
    ListSessions,
    ReleaseSession,
    RenewSession,
    SetSessionState,
)
from twinbus.store.settling import end_locks
from twinbus.store.volatile import Hold, Queue
from twinbus.store.work import Work


def accept(work: Work, command: AcceptSession) -> None:
    """Lock the named session, or the free one whose first available message is oldest."""
    queue = _sessions_of(work, command)
    session = command.session
    if session is None:
        session = _next_free(work, queue)
        if session is None:
            return
    hold = queue.holds.get(session)
    if hold is not None and hold.until_ms <= work.now_ms:
        end(work, queue, hold, counted=True)
        hold = None
    until = work.now_ms + queue.entity.settings.lock_duration_ms
    if hold is None:
        queue.holds[session] = Hold(session, command.owner, command.holder, until)
    elif hold.holder != command.holder:
        raise BusError(Fault.SESSION_HELD, "Another receiver holds the session.")
    else:
        _extend(queue, hold, until)
    work.memory.due(until)
    command.result = SessionGrant(session, until)


def _next_free(work: Work, queue: Queue) -> str | None:
    """The session of the oldest available message that nobody holds."""
    for hold in [hold for hold in queue.holds.values() if hold.until_ms <= work.now_ms]:
        end(work, queue, hold, counted=True)
    if queue.active == 0:
        return None
    work.flush()
    held = json.dumps(list(queue.holds))
    session: str | None = work.database.execute(
        statements.FREE_SESSION, {"queue": queue.id, "start": 1, "now_ms": work.now_ms, "held": held}
    ).get
    return session


def renew(work: Work, command: RenewSession) -> None:
    """Extend the session's lock, and with it the locks of its messages."""
    queue = _sessions_of(work, command)
    hold = held_session(queue, command.session, command.holder, work.now_ms)
    command.result = work.now_ms + queue.entity.settings.lock_duration_ms
    _extend(queue, hold, command.result)


def _extend(queue: Queue, hold: Hold, until_ms: int) -> None:
    hold.until_ms = until_ms
    for token in hold.tokens:
        queue.locks[token].until_ms = until_ms


def release(work: Work, command: ReleaseSession) -> None:
    """Give a session back; deliveries are not counted. Giving back what one does not hold changes nothing."""
    queue = _sessions_of(work, command)
    hold = queue.holds.get(command.session)
    if hold is not None and hold.holder == command.holder:
        end(work, queue, hold, counted=False)


def end(work: Work, queue: Queue, hold: Hold, counted: bool) -> None:
    """A hold ends; its locked messages are available again. Counted, the holder lost it and is told by a hint."""
    del queue.holds[hold.session or ""]
    work.memory.cached -= hold.ready_bytes
    end_locks(work, queue, sorted(hold.tokens), counted, "expire_lock" if counted else "release", why="session")
    work.hints.sessions.setdefault(queue.id, set()).add(hold.session or "")
    if counted:
        work.hints.lost_sessions.append((queue.id, hold.session or "", hold.holder))


def get_state(work: Work, command: GetSessionState) -> None:
    """Read a session's state; anyone may."""
    queue = _sessions_of(work, command)
    work.flush()
    command.result = work.database.execute(statements.SESSION_STATE, (queue.id, command.session)).get


def set_state(work: Work, command: SetSessionState) -> None:
    """Replace or clear the state of a session that somebody holds."""
    queue = _sessions_of(work, command)
    held_session(queue, command.session, 0, work.now_ms)
    if command.state is None:
        work.execute(statements.CLEAR_SESSION_STATE, (queue.id, command.session))
    else:
        work.execute(statements.SET_SESSION_STATE, (queue.id, command.session, command.state, work.now_ms))


def list_sessions(work: Work, command: ListSessions) -> None:
    """The ids of sessions with messages or state, or of those whose state changed after an instant."""
    queue = _sessions_of(work, command)
    work.flush()
    values = {"queue": queue.id, "skip": command.skip, "limit": command.limit}
    if command.updated_after_ms is None:
        text = work.database.execute(statements.SESSIONS, values).get
    else:
        values["after_ms"] = command.updated_after_ms
        text = work.database.execute(statements.SESSIONS_CHANGED, values).get
    command.result = json.loads(text)


def _sessions_of(
    work: Work,
    command: AcceptSession | RenewSession | ReleaseSession | GetSessionState | SetSessionState | ListSessions,
) -> Queue:
    queue = work.queue_of(command)
    if not queue.in_sessions:
        raise BusError(Fault.NOT_ALLOWED, "The entity does not use sessions.")
    return queue
