"""What a start finds: claims of locks that no longer exist, each of which counts as a delivery.

Everything else needs no recovery, because the database has it.
"""

from __future__ import annotations

import json

from twinbus.store import statements
from twinbus.store.settling import give_back
from twinbus.store.work import BROKER, Work, columns_of

CHUNK = 5_000


def count_claims(work: Work) -> None:
    """Count a delivery for every message that was locked, once, however often it was claimed."""
    claimed: dict[int, dict[int, int]] = {}
    for queue_id, held in work.database.execute(statements.CLAIMS):
        counts = claimed.setdefault(queue_id, {})
        for seq, delivery_count in json.loads(held):
            counts[seq] = max(counts.get(seq, 0), delivery_count)
    if not claimed:
        return
    for queue_id, counts in claimed.items():
        queue = work.memory.queues.get(queue_id)
        if queue is None or queue.entity.dropped:
            continue
        numbers = sorted(counts)
        for start in range(0, len(numbers), CHUNK):
            chunk = json.dumps(numbers[start : start + CHUNK])
            found = work.states(queue, statements.STATES_BY_NUMBER, seqs=chunk)
            # A message whose count has passed the claim's was unlocked, and counted, before the end.
            out = [message for message in found if message.state < 2 and message.delivery_count <= counts[message.seq]]
            work.journal.add("expire_lock", queue.id, BROKER, columns_of(out), "restart")
            for message in out:
                give_back(work, queue, message, counted=True)
            work.flush()
    work.execute(statements.FORGET_CLAIMS)
