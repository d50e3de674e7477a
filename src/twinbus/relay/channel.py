"""A listener's control channel: hands it requests and sockets, and brings its answers to the exchanges that wait.

Choosing among listeners is `listeners`' business; what a token is worth is `rights`'.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus.model.logged import EventLog
from twinbus.relay.commands import CommandError, RenewToken, Response
from twinbus.relay.exchange import Exchange
from twinbus.relay.framing import Close, Opcode, Piece
from twinbus.relay.hearing import BodyPart, Heard, Hearing
from twinbus.relay.limits import Limits
from twinbus.relay.socket import Ended, Socket
from twinbus.wire.access import Grant

log = EventLog("twinbus.relay")


class Channel:
    """One listener."""

    def __init__(self, socket: Socket, base: str, grant: Grant, limits: Limits, renew: Callable[[str], Grant]) -> None:
        """`base` is how the listener reached the relay, and reaches it for a rendezvous; `renew` checks a new token."""
        self.socket = socket
        self.base = base
        self.grant = grant
        self._renew = renew
        self._hearing = Hearing(limits.control_text_bytes_max, limits.control_body_bytes_max)
        self._exchanges: dict[str, Exchange] = {}
        self._answered: Exchange | None = None  # Whose body comes next; None for one that nobody waits for.
        self.on_ended: Callable[[], None] = lambda: None
        self.on_renewed: Callable[[], None] = lambda: None
        socket.on_piece = self._hear
        socket.on_ended = self._ended

    async def tell(self, command: bytes, body: bytes | None = None) -> None:
        """Say something; a request's body is said in the same breath."""
        await self.socket.drained()
        pieces = [Piece(Opcode.TEXT, command)]
        if body is not None:
            pieces.append(Piece(Opcode.BINARY, body))
        self.socket.send(*pieces)

    def expect(self, exchange: Exchange) -> None:
        """A response to this may come."""
        self._exchanges[exchange.number] = exchange
        if not self.socket.is_open:
            exchange.lost()

    def forget(self, exchange: Exchange) -> None:
        """A response to this interests nobody any more."""
        self._exchanges.pop(exchange.number, None)

    def _hear(self, piece: Piece) -> None:
        try:
            heard = self._hearing.hear(piece)
        except CommandError as error:
            log.info("relay.listener.given_up", "a listener was given up: {reason}", reason=error)
            self.socket.close(Close.POLICY, str(error))
            self._ended(Ended(False))
            return
        if heard is not None:
            self._take(heard)

    def _take(self, heard: Heard) -> None:
        if isinstance(heard, Response):
            exchange = self._exchanges.get(heard.request_id)
            self._answered = None if exchange is None or exchange.is_answered else exchange
            if self._answered is not None:
                self._answered.answer(heard)
        elif isinstance(heard, BodyPart):
            if self._answered is not None:
                self._answered.add(heard)
        elif isinstance(heard, RenewToken):
            self.renew(heard.token)

    def renew(self, token: str) -> None:
        """Go on under a new token, or not at all."""
        try:
            self.grant = self._renew(token)
        except Exception as error:
            log.info("relay.token.refused", "a listener's new token was refused: {reason}", reason=error)
            self.socket.close(Close.POLICY, "The new token was refused.")
            return
        self.on_renewed()

    def _ended(self, how: Ended) -> None:
        for exchange in list(self._exchanges.values()):
            # A response that comes on a rendezvous does not need the control channel any more.
            if not exchange.rendezvous.done():
                exchange.lost()
        self._exchanges.clear()
        self.on_ended()


class RequestRendezvous:
    """A socket that a listener opened for one request: the answer comes here."""

    def __init__(self, socket: Socket, exchange: Exchange, limits: Limits) -> None:
        self._exchange = exchange
        self._socket = socket
        self._hearing = Hearing(limits.control_text_bytes_max)
        self._is_ours = False  # Whether the response that is being told is the exchange's.
        socket.on_piece = self._hear
        socket.on_ended = self._ended

    def _hear(self, piece: Piece) -> None:
        try:
            heard = self._hearing.hear(piece)
            if isinstance(heard, RenewToken):
                raise CommandError("A token is renewed on the control channel.")
        except CommandError as error:
            log.info("relay.rendezvous.given_up", "a listener's rendezvous was given up: {reason}", reason=error)
            self._socket.close(Close.POLICY, str(error))
            self._exchange.lost()
            return
        if isinstance(heard, Response):
            # A response elsewhere for this request, or here for another, is nobody's.
            self._is_ours = heard.request_id == self._exchange.number and not self._exchange.is_answered
            if self._is_ours:
                self._exchange.answer(heard)
        elif isinstance(heard, BodyPart) and self._is_ours:
            self._exchange.add(heard)

    def _ended(self, how: Ended) -> None:
        self._exchange.lost()
