"""Which addresses of the HTTP door are about messages: `…/messages`, `…/messages/head`, `…/messages/{id}/{lock token}`.

A queue may bear such a name too, so that whether one does is asked first; what is done with a message is `messages`'.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote
from uuid import UUID

from twinbus.admin.faults import HttpError
from twinbus.model.address import Address
from twinbus.model.errors import BusError, Fault
from twinbus.wire import address as wire_address


class Place(Enum):
    """The three kinds of addresses, each with the methods that it knows."""

    MESSAGES = ("POST",)
    HEAD = ("DELETE", "POST")
    LOCKED = ("DELETE", "POST", "PUT")


class MessageTarget(NamedTuple):
    """One address, taken apart: of an entity or its dead-letter queue, and of a locked message in it."""

    place: Place
    path: str  # Of the entity, sub-queue included.
    message: str = ""  # The id or the number of a locked message.
    token: bytes = b""

    @property
    def address(self) -> Address:
        """The entity, and which of its queues; ARGUMENT where the path names none."""
        return wire_address.parse(self.path)


def read(method: str, raw_path: str, exists: Callable[[str], bool]) -> MessageTarget | None:
    """The target of a request as it was sent; None for one to the administration API, or to something else.

    `exists` tells whether an entity has a path. A method that neither knows is refused, to strangers too, in the same
    way whatever exists.
    """
    segments = [_decoded(segment) for segment in raw_path.strip("/").split("/")]
    target = _shape(segments)
    if target is None or method == "POST":
        return target
    if method in ("DELETE", "PUT"):
        # The administration knows them too: it is meant where an entity has this name, or may get it.
        return target if method in target.place.value and not exists("/".join(segments)) else None
    if method == "GET":
        return target if exists(target.path) and not exists("/".join(segments)) else None
    raise unknown_method(method, target)


def unknown_method(method: str, target: MessageTarget) -> HttpError:
    """The refusal of a method that an address of messages does not know."""
    methods = target.place.value
    return HttpError(405, f"{method} is not a method here: use {' or '.join(methods)}.", methods)


def _shape(segments: list[str]) -> MessageTarget | None:
    # A name's slashes may be escaped, and those of a message id have to be: only the latter are told apart here.
    match [segment.lower() for segment in segments]:
        case [_, *_, "messages"]:
            return MessageTarget(Place.MESSAGES, "/".join(segments[:-1]))
        case [_, *_, "messages", "head"]:
            return MessageTarget(Place.HEAD, "/".join(segments[:-2]))
        case [_, *_, "messages", _, token]:
            held = _token(token)
            if held is not None:
                return MessageTarget(Place.LOCKED, "/".join(segments[:-3]), segments[-2], held)
    return None


def _token(text: str) -> bytes | None:
    """A lock token in the byte order of a delivery tag, which is what the stores know."""
    try:
        return UUID(text).bytes_le
    except ValueError:
        return None


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise BusError(Fault.ARGUMENT, "The address is not percent-encoded UTF-8.") from None
