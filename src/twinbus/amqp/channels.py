"""The sessions of a connection and their channels: begin, limits, and what comes after an end (Part 2, section 2.5).

What happens inside of a session is left to `session`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.amqp.conditions import FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, ViolationError
from twinbus.amqp.events import SessionBegun
from twinbus.amqp.performatives import Begin, End, Error
from twinbus.amqp.session import Session
from twinbus.amqp.states import SessionState

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection


class Channels:
    """Which session is on which channel, ours and the peer's."""

    __slots__ = ("_connection", "_ended", "_ending", "ignored_frames", "mapped", "sessions")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # All sessions by our channel; those begun on both sides by the peer's.
        self.sessions: dict[int, Session] = {}
        self.mapped: dict[int, Session] = {}
        # By the peer's channel: sessions that we ended and the peer did not yet, and channels that were in use.
        self._ending: dict[int, Session] = {}
        self._ended: set[int] = set()
        # Frames that came for a session that had ended.
        self.ignored_frames = 0

    def new_session(self) -> Session:
        """A session on the lowest channel that is free on our side; a `ViolationError` when the peer has none left."""
        remote = self._connection.remote
        limit = 65535 if remote is None else remote.channel_max
        channel = next((number for number in range(limit + 1) if number not in self.sessions), None)
        if channel is None:
            raise ViolationError(RESOURCE_LIMIT_EXCEEDED, "the peer has no channel left for another session")
        session = self.sessions[channel] = Session(self._connection, channel)
        return session

    def on_begin(self, channel: int, begin: Begin) -> None:
        """The peer began a session, or answered our begin."""
        settings = self._connection.settings
        if channel > settings.channel_max:
            raise ViolationError(FRAMING_ERROR, f"channel {channel} is above the maximum {settings.channel_max}")
        if channel in self.mapped or channel in self._ending:
            raise ViolationError(NOT_ALLOWED, f"channel {channel} is in use")
        self._ended.discard(channel)
        session = self._begun_session(channel, begin)
        if session.state is not SessionState.MAPPED:
            self._ending[channel] = session
            return
        self.mapped[channel] = session
        if len(self.sessions) > settings.max_sessions:
            session.reported = True
            session.end(Error(RESOURCE_LIMIT_EXCEEDED, "the connection has too many sessions"))
        else:
            self._connection.report(SessionBegun(session))

    def _begun_session(self, channel: int, begin: Begin) -> Session:
        if begin.remote_channel is None:
            session = self.new_session()
            session.on_begin(begin, channel)
            session.begin()
            return session
        answered = self.sessions.get(begin.remote_channel)
        if answered is None or answered.remote is not None:
            raise ViolationError(NOT_ALLOWED, f"no session waits for a begin on channel {begin.remote_channel}")
        answered.on_begin(begin, channel)
        return answered

    def on_unmapped_frame(self, channel: int, performative: Any) -> None:
        """A frame for a session that has ended on one side or both: one client goes on sending for a moment."""
        session = self._ending.get(channel)
        if session is not None and type(performative) is End:
            session.on_end(performative, self._connection.events)
        elif session is None and channel not in self._ended:
            raise ViolationError(NOT_ALLOWED, f"no session has begun on channel {channel}")
        else:
            self.ignored_frames += 1

    def ending(self, session: Session) -> None:
        """We sent end: what still comes on the channel is ignored, up to the peer's end."""
        if session.remote_channel is not None:
            self.mapped.pop(session.remote_channel, None)
            self._ending[session.remote_channel] = session

    def ended(self, session: Session) -> None:
        """Both ends have ended: the channels may be used again."""
        self.sessions.pop(session.channel, None)
        if session.remote_channel is not None:
            self.mapped.pop(session.remote_channel, None)
            self._ending.pop(session.remote_channel, None)
            self._ended.add(session.remote_channel)

    def stop(self) -> None:
        """The connection is over, and with it every session."""
        for session in self.sessions.values():
            session.stop()
        self.mapped.clear()
