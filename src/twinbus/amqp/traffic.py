"""The part of a session that moves deliveries: windows both ways, delivery ids, unsettled deliveries, settlement.

Begin, end and handles are left to `session`; what a single link carries, to `carrier`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from twinbus.amqp.carrier import MAX_TAG_SIZE, LinkRole
from twinbus.amqp.composite import encode_any, encode_composite
from twinbus.amqp.conditions import INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED, WINDOW_VIOLATION
from twinbus.amqp.encoder import encode_list, encode_uint
from twinbus.amqp.events import Deliveries, Event, Oversized, Settlements, WindowOpened
from twinbus.amqp.frames import amqp_frame
from twinbus.amqp.performatives import ACCEPTED, MAX_UINT, Flow, Transfer
from twinbus.amqp.states import LinkState, SessionState

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection
    from twinbus.amqp.disposition import DispositionFields
    from twinbus.amqp.link import Link
    from twinbus.amqp.session import Session

# List8, its size and count, the handle (as 0, or in one byte), the delivery id, and the head of the tag.
_handle_0 = struct.Struct(">BBBxBIBB").unpack_from
_handle_8 = struct.Struct(">BBBxBBIBB").unpack_from


def _whole_deliveries() -> dict[bytes, tuple[bool, int]]:
    """What follows the tag in a transfer that is a whole delivery, to whether it is settled and the count of fields.

    Message format 0, settled, more, rcv-settle-mode, state, resume, aborted, batchable, as many as there are; each
    false or absent, but for settled and batchable.
    """
    absent, false, true = 0x40, 0x42, 0x41
    every = product(
        (0x43, absent),
        (false, true, absent),
        (false, absent),
        (absent,),
        (absent,),
        (false, absent),
        (false, absent),
        (false, true, absent),
    )
    return {bytes(tail[:size]): (size > 1 and tail[1] == true, 3 + size) for tail in every for size in range(1, 9)}


_WHOLE_DELIVERY = _whole_deliveries()
_TAKING_FLOWS = (LinkState.ATTACHED, LinkState.ATTACH_RECEIVED)
_ACCEPTED_BYTES = encode_composite(ACCEPTED)


class Traffic:
    """What deliveries need of a session; `Session` is the whole."""

    __slots__ = (
        "_hold",
        "_links_by_remote",
        "_max_unsettled",
        "_reopen_at",
        "_window",
        "_window_floor",
        "channel",
        "connection",
        "incoming",
        "max_frame_size",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "out",
        "outgoing",
        "remote_window",
        "state",
        "waiting",
        "wants_window",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        settings = connection.settings
        self.connection = connection
        self.channel = channel
        self.state = SessionState.UNMAPPED
        self._links_by_remote: dict[int, Link] = {}
        # Frames, both ways. The numbers grow without bound here and are cut to 32 bits on the wire.
        self.next_outgoing_id = 0
        self.next_incoming_id = 0
        self.remote_window = 0
        self._window = settings.incoming_window
        self._reopen_at = self._window // 2
        self._window_floor = -settings.window_overrun
        self._hold = False
        # Unsettled deliveries: id -> (link, tag). Those we sent, and those we received. (A link is typed Any because
        # the part of it that sends knows only itself.)
        self.next_delivery_id = 0
        self.outgoing: dict[int, tuple[Any, bytes]] = {}
        self.incoming: dict[int, tuple[Any, bytes]] = {}
        self._max_unsettled = settings.max_unsettled
        # Frames that wait for the peer's window: (is it a transfer, its pieces).
        self.waiting: deque[tuple[bool, tuple[bytes, ...]]] = deque()
        # Set by a caller who has something to send and found no room; reset with the event that tells of room.
        self.wants_window = False
        self.out = connection.out
        self.max_frame_size = connection.remote_max_frame_size

    def fail(self, condition: str, description: str, events: list[Event]) -> None:
        """Ends the session because the peer broke one of its rules."""
        raise NotImplementedError

    # --- windows ---

    @property
    def hold(self) -> bool:
        """While True the incoming window is not opened again: the peer has to stop when it is used up."""
        return self._hold

    @hold.setter
    def hold(self, hold: bool) -> None:
        reopen = self._hold and not hold and self._window <= self._reopen_at
        self._hold = hold
        if reopen:
            self.send_flow()

    @property
    def window_left(self) -> int:
        """Frames that the peer may still send before it has to wait; below zero when it did not wait."""
        return self._window

    @property
    def sendable_frames(self) -> int:
        """Transfers that the peer's window takes now, beyond those that wait for it already."""
        return self.remote_window - len(self.waiting)

    def send_flow(self, link: Link | None = None, behind_transfers: bool = False) -> None:
        """Tells the peer our windows, and our view of a link if one is given."""
        if self.state is not SessionState.MAPPED and self.state is not SessionState.BEGIN_SENT:
            return
        if not self._hold:
            self._window = self.connection.settings.incoming_window
        answered = self.state is SessionState.MAPPED
        flow = Flow(
            next_incoming_id=self.next_incoming_id & MAX_UINT if answered else None,
            incoming_window=max(0, self._window),
            next_outgoing_id=self.next_outgoing_id & MAX_UINT,
            outgoing_window=MAX_UINT,
        )
        if link is not None:
            flow.handle = link.handle
            flow.link_credit = max(0, link.credit)
            flow.drain = link.drain
            if link.role is LinkRole.SENDER or link.remote is not None:
                flow.delivery_count = link.delivery_count & MAX_UINT
        if behind_transfers:
            self.send_behind_transfers(flow)
        else:
            self.connection.send(self.channel, flow)

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Takes over the peer's windows, sends what they let through, and passes on what concerns a link."""
        if flow.next_incoming_id is None:
            unseen = self.next_outgoing_id
        else:
            unseen = (self.next_outgoing_id - flow.next_incoming_id) & MAX_UINT
        # A peer that claims to have seen more frames than there were has seen all of them.
        self.remote_window = flow.incoming_window - (unseen if unseen < 0x80000000 else 0)
        self._send_waiting()
        if self.wants_window and self.sendable_frames > 0:
            self.wants_window = False
            events.append(WindowOpened(cast("Session", self)))
        if flow.handle is not None:
            link = self._links_by_remote.get(flow.handle)
            if link is not None and link.state in _TAKING_FLOWS:
                link.on_flow(flow, events)
        elif flow.echo:
            self.send_flow()

    # --- frames out ---

    def send_behind_transfers(self, performative: object) -> None:
        """Sends a performative that must not overtake the transfers that wait for the peer's window."""
        if self.waiting:
            body = encode_composite(performative)
            self.waiting.append((False, (amqp_frame(self.channel, body),)))
        else:
            self.connection.send(self.channel, performative)

    def send_transfer(self, head: bytes, payload: bytes) -> None:
        """Sends one frame of a delivery, or lets it wait for the peer's window."""
        size = len(head) + len(payload) + 8
        start = b"%b\x02\x00%b" % (size.to_bytes(4, "big"), self.channel.to_bytes(2, "big"))
        self.waiting.append((True, (start + head, payload)))
        self._send_waiting()

    def _send_waiting(self) -> None:
        waiting = self.waiting
        while waiting and (self.remote_window > 0 or not waiting[0][0]):
            is_transfer, pieces = waiting.popleft()
            self.out += pieces
            if is_transfer:
                self.remote_window -= 1
                self.next_outgoing_id += 1

    # --- deliveries from the peer ---

    def on_plain_transfer(self, data: bytes, pos: int, end: int, events: list[Event]) -> bool:
        """Handles a transfer in the one layout that nearly all of them have; False leaves it to `on_transfer`.

        `pos` is behind the descriptor. The layout is a short list of handle, delivery id as a wide uint, short tag,
        message format 0, and flags that tell of a whole delivery.
        """
        if end - pos < 12:
            return False
        if data[pos + 3] == 0x43:
            constructor, size, count, id_code, delivery_id, tag_code, tag_size = _handle_0(data, pos)
            handle, tag_at = 0, pos + 11
        elif data[pos + 3] == 0x52:
            constructor, size, count, handle, id_code, delivery_id, tag_code, tag_size = _handle_8(data, pos)
            tag_at = pos + 12
        else:
            return False
        start = pos + 2 + size
        tag_end = tag_at + tag_size
        flags = _WHOLE_DELIVERY.get(data[tag_end:start])
        link = self._links_by_remote.get(handle)
        if (
            flags is None
            or constructor != 0xC0
            or id_code != 0x70
            or tag_code != 0xA0
            or tag_size > MAX_TAG_SIZE
            or flags[1] != count
            or start > end
            or link is None
            or link._partial is not None
            or not link.receiving
        ):
            return False
        self.next_incoming_id += 1
        self._window -= 1
        if self._window <= self._reopen_at:
            self._window_used(events)
        link.credit -= 1
        link.delivery_count += 1
        settled = flags[0]
        tag = data[tag_at:tag_end]
        if not settled:
            self.incoming[delivery_id] = (link, tag)
            if len(self.incoming) > self._max_unsettled:
                self._end_for_unsettled(events)
                return True
        if end - start > link.size_limit:
            events.append(Oversized(link, delivery_id, tag, settled, end - start))
            return True
        last = events[-1] if events else None
        if type(last) is Deliveries and last.link is link:
            last.items.append((delivery_id, tag, 0, settled, data[start:end]))
        else:
            events.append(Deliveries(link, [(delivery_id, tag, 0, settled, data[start:end])]))
        return True

    def on_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> None:
        """A transfer of any form. A handle that is not attached is forgiven: the link may just have been detached."""
        self.next_incoming_id += 1
        self._window -= 1
        if self._window <= self._reopen_at:
            self._window_used(events)
        link = self._links_by_remote.get(transfer.handle)
        if link is not None and link.receiving:
            link.on_transfer(transfer, payload, events)

    def _window_used(self, events: list[Event]) -> None:
        """Half of the incoming window is used: opens it again, or bears with a peer that should have stopped."""
        if not self._hold:
            self.send_flow()
        elif self._window < self._window_floor:
            self.fail(WINDOW_VIOLATION, "the session's incoming window was used up long ago", events)

    def remember_incoming(self, link: Link, delivery_id: int, tag: bytes, events: list[Event]) -> bool:
        """Notes a delivery that waits for our outcome; False when there are too many and the session ended."""
        self.incoming[delivery_id] = (link, tag)
        if len(self.incoming) <= self._max_unsettled:
            return True
        self._end_for_unsettled(events)
        return False

    def _end_for_unsettled(self, events: list[Event]) -> None:
        self.fail(RESOURCE_LIMIT_EXCEEDED, "the session has too many unsettled deliveries", events)

    # --- settlement ---

    def settle(self, delivery_ids: Iterable[int], state: Any, role: LinkRole, settled: bool = True) -> None:
        """Tells the peer the state of deliveries: as their receiver, or as their sender in answer to it.

        Neighbouring ids share one disposition. Ids that are settled already, or whose link is gone, are left out.
        """
        if self.state is not SessionState.MAPPED:
            return
        entries = self.incoming if role is LinkRole.RECEIVER else self.outgoing
        if settled:
            pop = entries.pop
            known = [delivery_id for delivery_id in delivery_ids if pop(delivery_id, None) is not None]
        else:
            known = [delivery_id for delivery_id in dict.fromkeys(delivery_ids) if delivery_id in entries]
        if not known:
            return
        known.sort()
        ending = [
            b"\x41" if settled else b"\x42",
            _ACCEPTED_BYTES if state is ACCEPTED else encode_any(state),
        ]
        first = known[0]
        if known[-1] - first == len(known) - 1:
            self._dispose(role, first, known[-1], ending)
            return
        previous = first
        for delivery_id in known[1:]:
            if delivery_id != previous + 1:
                self._dispose(role, first, previous, ending)
                first = delivery_id
            previous = delivery_id
        self._dispose(role, first, previous, ending)

    def _dispose(self, role: LinkRole, first: int, last: int, ending: list[bytes]) -> None:
        side = b"\x41" if role is LinkRole.RECEIVER else b"\x42"
        fields = encode_list([side, encode_uint(first), encode_uint(last), *ending, b"\x40"])
        self.connection.send_body(self.channel, b"\x00\x53\x15" + fields)

    def on_disposition(self, fields: DispositionFields, events: list[Event]) -> None:
        """What the peer says of a range of deliveries, which may span several links."""
        peer_is_receiver, first, last, settled, state = fields
        entries = self.outgoing if peer_is_receiver else self.incoming
        span = (last - first) & MAX_UINT
        if span >= 0x80000000:
            self.fail(INVALID_FIELD, "the last delivery of a disposition comes before its first", events)
            return
        ids: Iterable[int] = (first,)
        if span:
            few = span < 2 * len(entries) and last > first
            ids = range(first, last + 1) if few else self._ids_within(entries, first, span)
        find = entries.pop if settled else entries.get
        current = events[-1] if events else None
        for delivery_id in ids:
            entry = find(delivery_id, None)
            if entry is None:
                continue
            link, tag = entry
            if type(current) is Settlements and current.link is link:
                current.items.append((delivery_id, tag, state, settled))
            else:
                current = Settlements(link, [(delivery_id, tag, state, settled)])
                events.append(current)

    def forget(self, delivery_id: int) -> bool:
        """Drop a delivery that we sent, without a word to the peer; False when it is settled already."""
        return self.outgoing.pop(delivery_id, None) is not None

    @staticmethod
    def _ids_within(entries: dict[int, tuple[Any, bytes]], first: int, span: int) -> list[int]:
        """The known ids of a range that is much larger than they are many, or that wraps around."""
        within = [key for key in entries if (key - first) & MAX_UINT <= span]
        return sorted(within, key=lambda key: (key - first) & MAX_UINT)
