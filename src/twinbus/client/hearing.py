"""What a connection hears of its peer beyond the answers to its user: for those who judge whether a client is sound.

What follows from it is left to them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple


class What(Enum):
    """What was heard."""

    TOKEN_TAKEN = "the token was taken"
    TOKEN_REFUSED = "the token itself was refused, whatever right it was for"
    RIGHT_REFUSED = "something was refused as not authorised: a right is missing, or the token was revoked"
    PROTOCOL_BROKEN = "an open connection said what is no AMQP"


class Heard(NamedTuple):
    """What was heard, over which entity if it is about one, and the id of the namespace where the peer says it."""

    what: What
    path: str = ""
    namespace_id: str = ""


Listener = Callable[[Heard], None]
