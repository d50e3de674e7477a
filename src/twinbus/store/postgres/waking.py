"""Hints for other gateways, as the text of one notification, and back.

A notification may get lost and has little room; the poll of every second finds what it does not tell.
"""

from __future__ import annotations

import json

from twinbus.store.commands import Hints
from twinbus.store.postgres.work import OWNER_BITS

LARGEST_PAYLOAD = 7_900  # The server takes less than 8,000 bytes.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def payload_of(gateway: int, hints: Hints) -> str | None:
    """What a gateway tells the others; None when it has nothing to tell."""
    lost = [entry for entry in hints.lost_sessions if entry[2] >> OWNER_BITS]
    if not (hints.ready or hints.sessions or lost):
        return None
    ready = sorted(hints.ready)
    sessions = [[queue, *sorted(names)] for queue, names in hints.sessions.items()]
    for told in ([gateway, ready, sessions, lost], [gateway, ready, [], lost], [gateway, ready, [], []]):
        text = _encode(told)
        if len(text) <= LARGEST_PAYLOAD:
            return text
    return None  # Too many queues to name: the poll will find them.


def hints_of(payload: str, gateway: int) -> Hints:
    """What a notification means for this gateway; nothing if it is its own."""
    sender, ready, sessions, lost = json.loads(payload)
    hints = Hints()
    if sender == gateway:
        return hints
    hints.ready.update(ready)
    for queue, *names in sessions:
        hints.sessions[queue] = set(names)
    mask = (1 << OWNER_BITS) - 1
    for queue, session, holder in lost:
        if holder >> OWNER_BITS == gateway:
            hints.lost_sessions.append((queue, session, holder & mask))
    return hints
