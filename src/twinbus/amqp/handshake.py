"""Protocol headers and SASL, up to the first open (Part 2, section 2.2; Part 5, section 5.3).

Whether a client is who it says is left to the caller.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from twinbus.amqp.composite import encode_composite
from twinbus.amqp.conditions import FRAMING_ERROR, ILLEGAL_STATE, UNAUTHORIZED_ACCESS, ViolationError
from twinbus.amqp.events import SaslInit as SaslInitEvent
from twinbus.amqp.frames import AMQP_HEADER, SASL_HEADER, sasl_frame
from twinbus.amqp.performatives import SaslInit, SaslMechanisms, SaslOutcome
from twinbus.amqp.states import Phase, Signal
from twinbus.amqp.types import Symbol

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection

# The specification says 512; a long host name or identity is no reason to refuse a client.
MAX_SASL_FRAME_SIZE = 4096
_AUTHENTICATION_FAILED = 1


class Role(Enum):
    """Which end of a connection one is."""

    SERVER = "server"
    CLIENT = "client"


class Handshake:
    """The part of a connection before its open."""

    __slots__ = ("_connection", "_hostname", "_mechanism", "_response")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._mechanism: str | None = None
        self._response: bytes | None = None
        self._hostname: str | None = None

    # --- client role ---

    def start(self, mechanism: str | None, response: bytes | None, hostname: str | None) -> None:
        """Sends the first header, and the open with it when there is no SASL to wait for."""
        self._mechanism = mechanism
        self._response = response
        self._hostname = hostname
        if mechanism is None:
            self._send_amqp_header_and_open()
        else:
            self._connection.out.append(SASL_HEADER)

    def _send_amqp_header_and_open(self) -> None:
        self._connection.out.append(AMQP_HEADER)
        self._connection.send_open()

    # --- server role ---

    def decide(self, ok: bool) -> None:
        """Tells the client how its authentication ended."""
        connection = self._connection
        code = 0 if ok else _AUTHENTICATION_FAILED
        connection.out.append(sasl_frame(encode_composite(SaslOutcome(code))))
        if ok:
            connection.sasl_mechanism = self._mechanism
            connection.move(Signal.SASL_OUTCOME)
        else:
            connection.fail(UNAUTHORIZED_ACCESS, "the client could not be authenticated")

    # --- both ---

    def on_header(self, header: bytes) -> None:
        """The peer's protocol header; an unexpected one is answered with ours, and that is the end (2.2)."""
        connection = self._connection
        if connection.role is Role.CLIENT:
            expected = self._expected_by_client()
            if header != expected:
                raise ViolationError(FRAMING_ERROR, f"the server answered with the protocol header {header!r}")
        elif connection.phase is Phase.SASL_DONE:
            expected = AMQP_HEADER
        else:
            settings = connection.settings
            expected = AMQP_HEADER if header == AMQP_HEADER and not settings.sasl_required else SASL_HEADER
        if connection.role is Role.SERVER:
            connection.out.append(expected)
        if header != expected:
            raise ViolationError(FRAMING_ERROR, f"the protocol header {header!r} is not supported here")
        connection.move(Signal.AMQP_HEADER if expected == AMQP_HEADER else Signal.SASL_HEADER)
        if expected == SASL_HEADER and connection.role is Role.SERVER:
            offered = SaslMechanisms([Symbol(name) for name in connection.settings.mechanisms])
            connection.out.append(sasl_frame(encode_composite(offered)))

    def _expected_by_client(self) -> bytes:
        first = self._connection.phase is Phase.HEADER
        return SASL_HEADER if first and self._mechanism is not None else AMQP_HEADER

    def on_sasl(self, performative: Any) -> None:
        """A SASL frame; each role has its own to expect."""
        connection = self._connection
        kind = type(performative)
        if kind is SaslInit and connection.role is Role.SERVER:
            self._mechanism = performative.mechanism
            connection.move(Signal.SASL_INIT)
            connection.report(
                SaslInitEvent(performative.mechanism, performative.initial_response, performative.hostname)
            )
        elif kind is SaslMechanisms and connection.role is Role.CLIENT:
            self._choose(performative.sasl_server_mechanisms)
        elif kind is SaslOutcome and connection.role is Role.CLIENT:
            self._on_outcome(performative)
        else:
            raise ViolationError(ILLEGAL_STATE, f"{kind.__name__} is not expected now")

    def _choose(self, offered: list[Symbol]) -> None:
        connection = self._connection
        mechanism = self._mechanism or ""
        if mechanism not in offered:
            names = ", ".join(offered)
            raise ViolationError(UNAUTHORIZED_ACCESS, f"the server offers {names}, but not {mechanism}")
        connection.move(Signal.SASL_MECHANISMS)
        chosen = SaslInit(mechanism, self._response, self._hostname)
        connection.out.append(sasl_frame(encode_composite(chosen)))

    def _on_outcome(self, outcome: SaslOutcome) -> None:
        connection = self._connection
        if outcome.code != 0:
            raise ViolationError(UNAUTHORIZED_ACCESS, f"the server refused the client with SASL code {outcome.code}")
        connection.sasl_mechanism = self._mechanism
        connection.move(Signal.SASL_OUTCOME)
        self._send_amqp_header_and_open()
