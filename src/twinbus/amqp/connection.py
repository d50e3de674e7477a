"""One AMQP 1.0 connection without I/O: received bytes become events, intents become bytes to send.

The caller owns the socket and the clock. Headers and SASL are left to `handshake`, time-outs to `timers`, sessions to
`channels`, and what happens inside of them to `session`.
"""

from __future__ import annotations

import struct
from typing import Any

from twinbus.amqp.channels import Channels
from twinbus.amqp.composite import decode_composite, encode_composite, field_bytes
from twinbus.amqp.conditions import (
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    NotAttachedError,
    ViolationError,
)
from twinbus.amqp.disposition import disposition_fields, parse_disposition
from twinbus.amqp.events import ConnectionClosed, ConnectionFailed, Event, Opened
from twinbus.amqp.frames import (
    AMQP_FRAME,
    HEADER_SIZE,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    Inbox,
    amqp_frame,
    frame_header,
)
from twinbus.amqp.handshake import MAX_SASL_FRAME_SIZE, Handshake, Role
from twinbus.amqp.performatives import (
    MAX_UINT,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
)
from twinbus.amqp.session import Session
from twinbus.amqp.settings import Settings
from twinbus.amqp.states import CONNECTION, Phase, Signal, step
from twinbus.amqp.timers import Timers
from twinbus.amqp.types import DecodeError, Symbol

_AWAITING_HEADER = (Phase.HEADER, Phase.SASL_DONE)
_OVER = (Phase.CLOSED, Phase.FAILED)
# Bytes that a client may send ahead while its authentication is being decided.
MAX_SENT_AHEAD = 1_048_576

_unpack_header = struct.Struct(">IBBH").unpack_from


class Connection:
    """One end of a connection. `context` belongs to the caller.

    The peer's open, begin, detach, end and close are answered here; its attach is answered by the caller through
    `Link.accept` or `Link.refuse`.
    """

    def __init__(self, role: Role, container_id: str, settings: Settings | None = None, now_ms: int = 0) -> None:
        self.role = role
        self.container_id = container_id
        self.settings = settings or Settings()
        self.context: Any = None
        self.phase = Phase.HEADER
        # The peer's open, and the SASL mechanism that was agreed upon (None without SASL).
        self.remote: Open | None = None
        self.sasl_mechanism: str | None = None
        self.remote_max_frame_size = MAX_UINT
        self.out: list[bytes] = []
        self._hostname: str | None = None
        self._open_sent = False
        self.events: list[Event] = []
        self._inbox = Inbox()
        self._handshake = Handshake(self)
        self._timers = Timers(self, now_ms)
        self.channels = Channels(self)

    # --- what the caller reads ---

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have not ended on both sides."""
        return list(self.channels.sessions.values())

    @property
    def opened(self) -> bool:
        """True between the peer's open and the first close."""
        return self.phase is Phase.OPEN

    @property
    def wants_close(self) -> bool:
        """True when the transport is to be closed as soon as everything from `take` is written."""
        return self.phase in _OVER

    @property
    def closed(self) -> bool:
        """True when the connection is over and there is nothing left to write."""
        return self.phase in _OVER and not self.out

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` will next have something to do, as far as is known now."""
        return self._timers.deadline_ms()

    # --- bytes in, bytes out, time ---

    def receive(self, data: bytes | bytearray | memoryview, now_ms: int) -> list[Event]:
        """Takes bytes from the peer. Whatever they are, this raises nothing: errors are answered and reported."""
        if not isinstance(data, bytes):
            data = bytes(data)
        if self.phase in _OVER or not data:
            return self._take_events()
        self._timers.received(now_ms)
        inbox = self._inbox
        if inbox.size or self.phase is Phase.SASL_DECISION:
            inbox.put(data)
            if self.phase is Phase.SASL_DECISION:
                if inbox.size > MAX_SENT_AHEAD:
                    self.fail(RESOURCE_LIMIT_EXCEEDED, "too much was sent ahead of the SASL outcome")
                return self._take_events()
            if not inbox.ready():
                return self._take_events()
            data = inbox.take()
        self._consume(data)
        return self._take_events()

    def take(self) -> bytes:
        """Everything that is to be written now, in one piece."""
        out = self.out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._timers.sent()
        return data

    def tick(self, now_ms: int) -> list[Event]:
        """Lets time pass: heartbeats go out, a silent peer is given up."""
        self._timers.tick(now_ms)
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events = self.events
        self.events = []
        return events

    # --- intents ---

    def start(self, mechanism: str | None = None, response: bytes | None = None, hostname: str | None = None) -> None:
        """Client role: begins with SASL if a mechanism is given, then opens."""
        self._hostname = hostname
        self._handshake.start(mechanism, response, hostname)

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Server role: answers `SaslInit`, then handles what the client has sent ahead."""
        if self.phase is not Phase.SASL_DECISION:
            return self._take_events()
        self._handshake.decide(ok)
        if self._inbox.size and self.phase not in _OVER:
            self._consume(self._inbox.take())
        return self._take_events()

    def begin(self) -> Session:
        """Begins a session from our side, once our open is sent. The peer's answer comes as `SessionBegun`."""
        if not self._open_sent or self.phase in (Phase.CLOSING, *_OVER):
            raise NotAttachedError("the connection is not open")
        try:
            session = self.channels.new_session()
        except ViolationError as error:
            raise NotAttachedError(str(error)) from error
        session.begin()
        return session

    def close(self, error: Error | None = None) -> None:
        """Closes the connection. The peer's answer comes as `ConnectionClosed`."""
        if self.phase in (Phase.OPENING, Phase.OPEN):
            self.send_open()
            self.channels.stop()
            self.send(0, Close(error))
            self.move(Signal.SEND_CLOSE)
            self._timers.closing()
        elif self.phase not in (*_OVER, Phase.CLOSING):
            self.move(Signal.FAIL)

    # --- writing, for the parts of the connection ---

    def send(self, channel: int, performative: object) -> None:
        """Queues a frame with one performative."""
        self.send_body(channel, encode_composite(performative))

    def send_body(self, channel: int, body: bytes) -> None:
        """Queues a frame, unless the peer could not take it."""
        if len(body) + 8 > self.remote_max_frame_size:
            self.fail(FRAME_SIZE_TOO_SMALL, f"a performative of {len(body)} bytes does not fit the peer's frames")
        elif self.phase not in _OVER:
            self.out.append(amqp_frame(channel, body))

    def send_open(self) -> None:
        """Queues our open, once."""
        if self._open_sent:
            return
        self._open_sent = True
        settings = self.settings
        self.send(
            0,
            Open(
                self.container_id,
                self._hostname,
                settings.max_frame_size,
                settings.channel_max,
                settings.idle_timeout_ms or None,
                offered_capabilities=[Symbol(name) for name in settings.offered_capabilities] or None,
                properties=dict(settings.properties) or None,
            ),
        )

    def move(self, signal: Signal) -> None:
        """Follows the table of phases."""
        self.phase = step(CONNECTION, self.phase, signal)

    def fail(self, condition: str, description: str) -> None:
        """Gives the connection up, telling the peer why if AMQP frames may be sent by now."""
        if self.phase in _OVER:
            return
        error = Error(condition, description)
        if self.phase in (Phase.OPENING, Phase.OPEN):
            self.send_open()
            self.out.append(amqp_frame(0, encode_composite(Close(error))))
        self.move(Signal.FAIL)
        self._inbox.take()
        self.channels.stop()
        self.events.append(ConnectionFailed(error))

    def give_up(self) -> None:
        """Stops waiting for the peer's close."""
        self.move(Signal.FAIL)
        self.events.append(ConnectionClosed(None))

    def report(self, event: Event) -> None:
        """Adds an event for the caller."""
        self.events.append(event)

    # --- bytes to performatives ---

    def _consume(self, data: bytes) -> None:
        """Handles as much of the data as is whole, and keeps the rest."""
        position, needed = 0, HEADER_SIZE
        try:
            while len(data) - position >= HEADER_SIZE and self.phase not in _OVER:
                if self.phase in _AWAITING_HEADER:
                    self._handshake.on_header(data[position : position + HEADER_SIZE])
                    position += HEADER_SIZE
                elif self.phase is Phase.SASL_DECISION:
                    break
                else:
                    position, needed = self._frames(data, position)
                    if needed > HEADER_SIZE:
                        break
        except (ViolationError, DecodeError) as error:
            self.fail(error.condition, str(error))
        if self.phase not in _OVER:
            self._inbox.keep(data[position:], needed)

    def _frames(self, data: bytes, pos: int) -> tuple[int, int]:
        """Handles whole frames until the phase changes; gives the position and how many bytes the next one needs."""
        phase, length, mapped, events = self.phase, len(data), self.channels.mapped, self.events
        is_open = phase is Phase.OPEN
        max_size = MAX_SASL_FRAME_SIZE if phase is Phase.SASL else self.settings.max_frame_size
        while length - pos >= 8:
            size, offset, kind, channel = _unpack_header(data, pos)
            body = pos + 8
            if size > max_size or offset != 2 or size < 8:
                size, body, kind, channel = frame_header(data, pos, max_size)
            stop = pos + size
            if stop > length:
                return pos, size
            pos = stop
            if is_open and stop - body > 3 and kind == 0 and data[body] == 0 and data[body + 1] == 0x53:
                code = data[body + 2]
                if code == 0x14:
                    session = mapped.get(channel)
                    if session is not None and session.on_plain_transfer(data, body + 3, stop, events):
                        continue
                elif code == 0x15:
                    session = mapped.get(channel)
                    if session is not None:
                        session.on_disposition(parse_disposition(data, body + 3, stop), events)
                        continue
            self._on_frame(kind, channel, data, body, stop)
            if self.phase is not phase:
                return pos, HEADER_SIZE
        return pos, HEADER_SIZE

    def _on_frame(self, kind: int, channel: int, data: bytes, body: int, stop: int) -> None:
        """Any frame that the hot path leaves: by phase, then by performative."""
        if kind != (SASL_FRAME if self.phase is Phase.SASL else AMQP_FRAME):
            raise ViolationError(FRAMING_ERROR, f"a frame of type {kind} is not allowed now")
        if body == stop:
            return
        performative, after = decode_composite(data, body, stop)
        if self.phase is Phase.SASL:
            self._handshake.on_sasl(performative)
            return
        kind_of = type(performative)
        if kind_of is Transfer:
            session = self.channels.mapped.get(channel)
            if session is not None:
                session.on_transfer(performative, data[after:stop], self.events)
                return
        elif after != stop:
            raise DecodeError(f"bytes follow the performative {kind_of.__name__}")
        if kind_of is Open:
            self._on_open(performative)
        elif kind_of is Close:
            self._on_close(performative)
        elif self.phase is Phase.OPENING:
            raise ViolationError(ILLEGAL_STATE, f"{kind_of.__name__} came before Open")
        elif self.phase is Phase.OPEN:
            self._on_session_frame(channel, performative, data, body, stop)

    # --- performatives ---

    def _on_open(self, performative: Open) -> None:
        self.move(Signal.OPEN)
        if performative.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ViolationError(INVALID_FIELD, f"max-frame-size must be at least {MIN_MAX_FRAME_SIZE}")
        self.remote = performative
        self.remote_max_frame_size = performative.max_frame_size
        for session in self.channels.sessions.values():
            session.max_frame_size = performative.max_frame_size
        if self.phase is Phase.OPEN:
            self.send_open()
            self._timers.opened(performative.idle_time_out)
            self.events.append(Opened(performative))

    def _on_close(self, performative: Close) -> None:
        answer = self.phase is Phase.OPEN
        self.move(Signal.CLOSE)
        if answer:
            self.out.append(amqp_frame(0, encode_composite(Close())))
        self.channels.stop()
        self.events.append(ConnectionClosed(performative.error))

    def _on_session_frame(self, channel: int, performative: Any, data: bytes, body: int, stop: int) -> None:
        kind = type(performative)
        if kind is Begin:
            self.channels.on_begin(channel, performative)
            return
        session = self.channels.mapped.get(channel)
        if session is None:
            self.channels.on_unmapped_frame(channel, performative)
        elif kind is Flow:
            session.on_flow(performative, self.events)
        elif kind is Attach:
            termini = field_bytes(data, body, stop, 5), field_bytes(data, body, stop, 6)
            session.on_attach(performative, termini, self.events)
        elif kind is Detach:
            session.on_detach(performative, self.events)
        elif kind is Disposition:
            session.on_disposition(disposition_fields(performative), self.events)
        elif kind is End:
            session.on_end(performative, self.events)
        else:
            raise ViolationError(NOT_ALLOWED, f"{kind.__name__} is not a performative")
