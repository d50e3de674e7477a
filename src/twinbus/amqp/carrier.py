"""The part of a link that carries deliveries: putting incoming ones together, and cutting outgoing ones into frames.

Attaching and credit are left to `link`, windows and settlement to `traffic`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, cast

from twinbus.amqp.conditions import INVALID_FIELD, NOT_ALLOWED, NotAttachedError
from twinbus.amqp.encoder import encode_binary, encode_list, encode_uint
from twinbus.amqp.events import Deliveries, Event, Oversized
from twinbus.amqp.performatives import MAX_UINT, Transfer
from twinbus.amqp.types import EncodeError

if TYPE_CHECKING:
    from twinbus.amqp.link import Link
    from twinbus.amqp.session import Session

MAX_TAG_SIZE = 32
# How the fields of a transfer that fits one frame end: message format 0, the settled flag, and six that say nothing.
# All of them are there, because some clients take the payload for the twelfth (see `composite`).
_SETTLED = b"\x43\x41" + b"\x40" * 6
_UNSETTLED = b"\x43\x42" + b"\x40" * 6
_AFTER_MORE = [b"\x40"] * 5


class LinkRole(IntEnum):
    """Which end of a link one is; the value is that of the role field on the wire."""

    SENDER = 0
    RECEIVER = 1


class _Partial:
    """A delivery of which more frames are to come."""

    __slots__ = ("delivery_id", "message_format", "pieces", "settled", "size", "tag")

    def __init__(self, delivery_id: int, tag: bytes, message_format: int) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = False
        self.pieces: list[bytes] = []
        self.size = 0


class Carrier:
    """What transfers need of a link; `Link` is the whole."""

    __slots__ = (
        "_before_id",
        "_before_tag",
        "_head_size",
        "_pack",
        "_partial",
        "_tag_size",
        "credit",
        "delivery_count",
        "handle",
        "name",
        "receiving",
        "role",
        "sending",
        "session",
        "size_limit",
    )

    def __init__(self, session: Session, name: str, role: LinkRole, handle: int) -> None:
        settings = session.connection.settings
        self.session = session
        self.name = name
        self.role = role
        self.handle = handle
        # Credit left: the peer's grant to us as a sender, ours to the peer as a receiver (then it may fall below
        # zero, because some clients ignore credit).
        self.credit = 0
        # Grows without bound here and is cut to 32 bits on the wire. A receiver learns it from the attach.
        self.delivery_count = 0
        self.size_limit = settings.max_message_size + settings.message_size_slack
        # True while transfers may be sent, or taken.
        self.sending = False
        self.receiving = False
        self._partial: _Partial | None = None
        self._lay_out(16)

    def fail(self, condition: str, description: str, events: list[Event]) -> None:
        """Detaches the link because the peer broke a rule on it."""
        raise NotImplementedError

    def _lay_out(self, tag_size: int) -> None:
        """Prepares the frame of a transfer that needs no second one, up to what each delivery fills in.

        It is done again when the size of the tags changes, which on most links it never does.
        """
        handle = encode_uint(self.handle)
        list_size = 1 + len(handle) + 5 + 2 + tag_size + len(_SETTLED)
        before = (
            struct.pack(">BBH", 2, 0, self.session.channel)
            + b"\x00\x53\x14"
            + struct.pack(">BBB", 0xC0, list_size, 11)
            + handle
            + b"\x70"
        )
        layout = struct.Struct(f">I{len(before)}sI2s{tag_size}s{len(_SETTLED)}s")
        self._pack = layout.pack
        self._before_id = before
        self._before_tag = struct.pack(">BB", 0xA0, tag_size)
        self._tag_size = tag_size
        self._head_size = layout.size

    # --- deliveries from the peer ---

    def on_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> None:
        """Any transfer: one of several frames, an aborted one, or a whole delivery (2.6.14)."""
        delivery_id, tag = transfer.delivery_id, transfer.delivery_tag
        partial = self._partial
        if partial is None:
            if delivery_id is None or tag is None or len(tag) > MAX_TAG_SIZE:
                self.fail(INVALID_FIELD, "a delivery needs an id, and a tag of at most 32 bytes", events)
                return
            partial = _Partial(delivery_id, tag, transfer.message_format or 0)
            self.credit -= 1
            self.delivery_count += 1
        elif delivery_id is not None and delivery_id != partial.delivery_id:
            self.fail(NOT_ALLOWED, "a delivery began before the one before it was complete", events)
            return
        if transfer.aborted:
            self._partial = None
            return
        partial.settled = partial.settled or transfer.settled is True
        partial.size += len(payload)
        if partial.size > self.size_limit:
            partial.pieces.clear()
        else:
            partial.pieces.append(payload)
        self._partial = partial if transfer.more else None
        if not transfer.more:
            self._complete(partial, events)

    def _complete(self, partial: _Partial, events: list[Event]) -> None:
        link = cast("Link", self)
        delivery_id, tag, settled = partial.delivery_id, partial.tag, partial.settled
        if not settled and not self.session.remember_incoming(link, delivery_id, tag, events):
            return
        if partial.size > self.size_limit:
            events.append(Oversized(link, delivery_id, tag, settled, partial.size))
            return
        item = (delivery_id, tag, partial.message_format, settled, b"".join(partial.pieces))
        last = events[-1] if events else None
        if type(last) is Deliveries and last.link is self:
            last.items.append(item)
        else:
            events.append(Deliveries(link, [item]))

    # --- deliveries to the peer ---

    def transfer(self, tag: bytes, payload: bytes, settled: bool, message_format: int = 0) -> int:
        """Sends one delivery and gives its id; what the peer's window does not take yet waits in the session."""
        if not self.sending:
            raise NotAttachedError(f"link {self.name!r} is not attached for sending")
        if len(tag) != self._tag_size:
            if len(tag) > MAX_TAG_SIZE:
                raise EncodeError(f"a delivery tag has at most {MAX_TAG_SIZE} bytes")
            self._lay_out(len(tag))
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & MAX_UINT
        if not settled:
            session.outgoing[delivery_id] = (self, tag)
        self.delivery_count += 1
        self.credit -= 1
        frame_size = self._head_size + len(payload)
        if frame_size > session.max_frame_size or session.remote_window <= 0 or message_format or session.waiting:
            self._transfer_in_parts(delivery_id, tag, payload, settled, message_format)
            return delivery_id
        session.remote_window -= 1
        session.next_outgoing_id += 1
        flags = _SETTLED if settled else _UNSETTLED
        out = session.out
        out.append(self._pack(frame_size, self._before_id, delivery_id, self._before_tag, tag, flags))
        out.append(payload)
        return delivery_id

    def _transfer_in_parts(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, message_format: int
    ) -> None:
        """As many frames as it takes. Only the first names the delivery: one client starts anew on an id."""
        session = self.session
        handle = encode_uint(self.handle)
        flag = b"\x41" if settled else b"\x42"
        named = [handle, encode_uint(delivery_id), encode_binary(tag), encode_uint(message_format), flag]
        position, size = 0, len(payload)
        while True:
            head = b"\x00\x53\x14" + encode_list([*named, b"\x42", *_AFTER_MORE])
            after = position + session.max_frame_size - 8 - len(head)
            more = after < size
            if more:
                head = b"\x00\x53\x14" + encode_list([*named, b"\x41", *_AFTER_MORE])
            session.send_transfer(head, payload[position:after])
            if not more:
                return
            position = after
            named = [handle, b"\x40", b"\x40", b"\x40", flag]
