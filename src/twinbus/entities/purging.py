"""Emptying a queue: all its messages are removed, whatever they wait for, in chunks that leave others their turn.

Locked messages stay, because somebody works on them; what arrives meanwhile stays too.
"""

from __future__ import annotations

from twinbus.entities.entity import AnyEntity
from twinbus.model.address import SubQueue
from twinbus.model.message import Origin

CHUNK = 1_000


async def purge(entity: AnyEntity, sub_queue: SubQueue, now_ms: int, origin: Origin) -> int:
    """Remove what is in the queue now; returns how many messages that were."""
    mailbox = entity.mailbox(sub_queue)
    removed = 0
    while True:
        gone = await mailbox.delete_batch(CHUNK, now_ms + 1, origin, every_state=True)
        removed += gone
        if gone == 0:
            return removed
