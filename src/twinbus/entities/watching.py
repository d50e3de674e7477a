"""How entities stand at one moment, for whoever watches many of them: counts, locks, and how far their numbers are.

Costs one small command for each fragment; who watches how often, and what follows from two moments, is told elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twinbus.entities.entity import AnyEntity
from twinbus.entities.fragments import call_all
from twinbus.model.address import SubQueue
from twinbus.model.message import Counts
from twinbus.store.commands import Count


class Seen(NamedTuple):
    """An entity at one moment. Where a store is down, its part is missing, and `problem` says so."""

    counts: Counts
    arrived: int = 0  # How many numbers it has given to messages, ever.
    locked: int = 0
    problem: str | None = None


async def see(entities: Sequence[AnyEntity]) -> list[Seen]:
    """Look at all of them at once."""
    asked = [
        (fragment.store, Count(queue=fragment.number(SubQueue.MAIN)))
        for entity in entities
        for fragment in entity.fragments
    ]
    answers = iter(await call_all(asked))
    return [_sum([next(answers) for _ in entity.fragments]) for entity in entities]


def _sum(answers: Sequence[Count | Exception]) -> Seen:
    counts, arrived, locked, problem = Counts(), 0, 0, None
    for answer in answers:
        if isinstance(answer, Count):
            if answer.result is not None:
                counts = (
                    Counts(*map(sum, zip(counts, answer.result, strict=True))) if len(answers) > 1 else answer.result
                )
            arrived += answer.last_number
            locked += answer.locked
        else:
            problem = str(answer)
    return Seen(counts, arrived, locked, problem)
