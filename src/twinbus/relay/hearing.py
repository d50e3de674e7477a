"""What a listener's socket says, piece by piece: commands are put together, bodies are passed on as they come.

Keeps to the table in `states`; to whom a response belongs is the caller's business.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.relay import commands
from twinbus.relay.commands import CommandError, RenewToken, Response
from twinbus.relay.framing import Opcode, Piece
from twinbus.relay.states import NEXT, Came, Expected


class BodyPart(NamedTuple):
    """A part of the body of the response that came before."""

    data: bytes | bytearray
    ends: bool


Heard = Response | RenewToken | BodyPart


class Hearing:
    """Of one socket."""

    def __init__(self, text_bytes_max: int, body_bytes_max: int | None = None) -> None:
        self._text_bytes_max = text_bytes_max
        self._body_bytes_max = body_bytes_max  # None on a rendezvous.
        self._expected = Expected.COMMAND
        self._text = b""
        self._body_bytes = 0

    @property
    def is_amid(self) -> bool:
        """Whether something that began has not ended."""
        return self._expected is not Expected.COMMAND

    def hear(self, piece: Piece) -> Heard | None:
        """What a data piece completes; a CommandError if it must not come now."""
        if piece.opcode is Opcode.BINARY:
            self._go(Came.BODY_END if piece.ends else Came.BODY_PART)
            self._count(piece)
            return BodyPart(piece.data, piece.ends)
        self._text += piece.data
        if len(self._text) > self._text_bytes_max:
            raise CommandError(f"A command has at most {self._text_bytes_max} bytes.")
        if not piece.ends:
            self._go(Came.TEXT_PART)
            return None
        heard, self._text = commands.read(self._text), b""
        has_body = isinstance(heard, Response) and heard.has_body
        self._go(Came.COMMAND_WITH_BODY if has_body else Came.COMMAND)
        return heard

    def _go(self, came: Came) -> None:
        if (self._expected, came) not in NEXT:
            raise CommandError(f"Instead of {self._expected.value}, {came.value} came.")
        self._expected = NEXT[self._expected, came]

    def _count(self, piece: Piece) -> None:
        self._body_bytes += len(piece.data)
        if self._body_bytes_max is not None and self._body_bytes > self._body_bytes_max:
            raise CommandError(f"A body on the control channel has at most {self._body_bytes_max} bytes.")
        if piece.ends:
            self._body_bytes = 0
