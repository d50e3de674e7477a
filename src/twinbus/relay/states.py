"""What may come next from a listener, as a table: (state, what came) to the next state.

What is not in the table breaks the protocol. The same holds on a control channel and on a rendezvous for a request.
"""

from __future__ import annotations

from enum import Enum


class Expected(Enum):
    """What a listener's socket is expected to say next."""

    COMMAND = "a command"
    COMMAND_END = "the rest of a command"
    BODY = "the body of the response that came before"


class Came(Enum):
    """What a piece was."""

    TEXT_PART = "a part of a text"
    COMMAND = "a text that needs nothing more"
    COMMAND_WITH_BODY = "a response with a body to come"
    BODY_PART = "a part of a body"
    BODY_END = "the last part of a body"


NEXT: dict[tuple[Expected, Came], Expected] = {
    (Expected.COMMAND, Came.TEXT_PART): Expected.COMMAND_END,
    (Expected.COMMAND, Came.COMMAND): Expected.COMMAND,
    (Expected.COMMAND, Came.COMMAND_WITH_BODY): Expected.BODY,
    (Expected.COMMAND_END, Came.TEXT_PART): Expected.COMMAND_END,
    (Expected.COMMAND_END, Came.COMMAND): Expected.COMMAND,
    (Expected.COMMAND_END, Came.COMMAND_WITH_BODY): Expected.BODY,
    (Expected.BODY, Came.BODY_PART): Expected.BODY,
    (Expected.BODY, Came.BODY_END): Expected.COMMAND,
}
