"""From a commit's plan to the statements that write it, one for each kind of change, whatever the number of rows.

What the changes mean is known to the operations; when they are sent is `work`'s business.
"""

from __future__ import annotations

from typing import Any, LiteralString, TypeAlias

from twinbus.sql.postgres import integers
from twinbus.store.plan import Plan
from twinbus.store.postgres import dialect
from twinbus.store.postgres.text import to_json
from twinbus.store.volatile import Entity

Statement: TypeAlias = tuple[LiteralString, tuple[Any, ...] | dict[str, Any]]


def statements_of(plan: Plan, at_ms: int) -> list[Statement]:
    """What writes the messages and records of a plan. New ones come first, changed rows are removed and placed anew."""
    made: list[Statement] = []
    blob = b"".join(plan.pieces) if plan.pieces else b""
    if plan.cuts:
        made.append((dialect.STORE_BODIES, (plan.first_body, 1, blob, integers(plan.cuts))))
        made.append((dialect.STORE_MESSAGES, _fresh(plan, at_ms)))
    if plan.shared_cuts:
        made.append((dialect.STORE_BODIES, (plan.first_shared, -1, blob, integers(plan.shared_cuts))))
    if plan.copies:
        made.append((dialect.STORE_COPIES, (at_ms, to_json(plan.copies))))
    if plan.gone:
        made.append((dialect.REMOVE_MESSAGES, (integers(plan.gone),)))
    if plan.placed:
        made.append((dialect.PLACE_MESSAGES, (to_json(plan.placed),)))
    if plan.freed:
        made += _freed(plan.freed)
    if plan.duplicates:
        made.append((dialect.KEEP_DUPLICATES, (at_ms, to_json(list(dict.fromkeys(plan.duplicates))))))
    return made


def _freed(bodies: list[int]) -> list[Statement]:
    """Bodies go with their message, shared ones with their last copy."""
    made: list[Statement] = []
    own = [body for body in bodies if body > 0]
    if own:
        made.append((dialect.REMOVE_BODIES, (integers(own),)))
    shared = sorted({body for body in bodies if body < 0})
    if shared:
        made.append((dialect.HOLD_SHARED, (integers(shared),)))
        made.append((dialect.RELEASE_SHARED, (integers(shared),)))
    return made


def _fresh(plan: Plan, at_ms: int) -> tuple[Any, ...]:
    """New messages as columns. One that is empty in all rows is not sent at all."""
    queues: list[int] = []
    seqs: list[int] = []
    states: list[int] = []
    expires: list[int | None] = []
    dues: list[int | None] = []
    sessions: list[str | None] = []
    for queue, seq_at_zero, kind, start, stop in plan.runs:
        count = stop - start
        queues += [queue] * count
        seqs += range(seq_at_zero + start, seq_at_zero + stop)
        states += [kind.state] * count
        expires += [kind.expires_at_ms] * count
        dues += [kind.due_at_ms] * count
        sessions += [kind.session] * count
    return (
        plan.first_body,
        at_ms,
        integers(queues),
        integers(seqs),
        integers(plan.cuts),
        integers(states) if any(states) else None,
        _unless_empty(expires),
        _unless_empty(dues),
        None if sessions.count(None) == len(sessions) else to_json(sessions),
        to_json(plan.ids),
    )


def _unless_empty(values: list[int | None]) -> str | None:
    return None if values.count(None) == len(values) else integers(values)


def counts_of(entity: Entity) -> str:
    """The counters of an entity's three queues, in the order of `schema.COUNTERS`."""
    values: list[int] = []
    for queue in entity.queues:
        head = min([queue.line.read_to, *queue.line.returned[:1]])
        values += [*queue.row()[1:], head]
    return integers(values)


def set_counts(entities: list[Entity], changed: set[int]) -> Statement:
    """Write the rows that rule entities; `changed` are those in which something may have become available."""
    return (
        dialect.SET_COUNTS,
        (
            integers([entity.id for entity in entities]),
            to_json([counts_of(entity) for entity in entities]),
            integers([int(entity.id in changed) for entity in entities]),
        ),
    )
