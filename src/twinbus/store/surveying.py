"""A survey: how every entity of a store stands at one moment, in one command, for whoever watches all of them.

Counts are in memory; of each queue that holds something the first message is looked up, which costs one step in the
index. Who asks, and how often, is the broker's business.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from twinbus.model.message import Counts
from twinbus.store.commands import Command
from twinbus.store.reading import counts_of
from twinbus.store.work import Work

OLDEST = """
SELECT json_group_array(json_array(q.value, (
    SELECT m.enqueued_at FROM message AS m WHERE m.queue = q.value AND m.state = 0 ORDER BY m.seq LIMIT 1)))
  FROM json_each(?) AS q"""


class Stand(NamedTuple):
    """How one entity, or one fragment of a partitioned one, stands."""

    counts: Counts
    locked: int
    oldest_ms: int | None  # When the oldest of its active messages was enqueued.


@dataclass(slots=True, eq=False, kw_only=True)
class Survey(Command):
    """Tell how all entities of the store stand, by their ids. `queue` is ignored."""

    result: dict[int, Stand] = field(default_factory=dict)


def survey(work: Work, command: Survey) -> None:
    """The embedded store: what memory knows, and the oldest messages from the file."""
    mains = [entity.queues[0] for entity in work.memory.entities.values() if not entity.dropped]
    holding = json.dumps([queue.id for queue in mains if queue.active])
    work.flush()
    oldest = dict(json.loads(work.database.execute(OLDEST, (holding,)).get))
    command.result = {
        queue.id >> 2: Stand(counts_of(queue.entity), len(queue.locks), oldest.get(queue.id)) for queue in mains
    }
