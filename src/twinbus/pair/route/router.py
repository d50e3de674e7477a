"""The router: which step comes next for a send. A pure table, without I/O, time or threads.

`next_step(step, answer, situation)` says what to do after each answer; `carrier` does it. Whether an entity is healthy
is `health`'s part of the situation, where earlier messages of a key are is `order`'s. The table is shown in
docs/pairing.md.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from twinbus.pair.route.health import Route


class Step(Enum):
    """What can be done with a send."""

    BEGIN = "begin"
    LOOK = "look for earlier messages of the key in the backlog"
    PRIMARY = "send to the primary"
    BACKLOG = "send to a backlog queue"
    WAIT = "wait a little"
    OUTBOX = "put into the outbox"
    DONE = "it is done"
    GIVE_UP = "raise the last error"


class Answer(Enum):
    """What came of a step."""

    READY = "nothing was done yet"
    SENT = "taken"
    FAILED = "not taken, in a way that counts against the entity's health"
    BUSY = "not taken now: the server is busy"
    REFUSED = "not taken, in a way that does not count"
    NONE_THERE = "the backlog has none"
    SOME_THERE = "the backlog has some"


class Situation(NamedTuple):
    """What is known when the next step is chosen."""

    route: Route  # As the health of the entity says.
    must_look: bool = False  # An ordered key whose earlier messages may be in the backlog.
    has_outbox: bool = False
    outbox_first: bool = False  # The application wants it so, or an earlier message of the key waits there.
    has_time: bool = True  # There is time to wait and to try again.


# When a step may be taken.
_MAY: dict[Step, Callable[[Situation], bool]] = {
    Step.LOOK: lambda at: at.route is Route.PRIMARY and at.must_look,
    Step.PRIMARY: lambda at: at.route is Route.PRIMARY,
    Step.BACKLOG: lambda at: at.route is Route.BACKLOG,
    Step.WAIT: lambda at: at.has_time,
    Step.OUTBOX: lambda at: at.has_outbox,
    Step.DONE: lambda at: True,
    Step.GIVE_UP: lambda at: True,
}

# After a step and its answer: the first of these that may be taken.
NEXT: dict[tuple[Step, Answer], tuple[Step, ...]] = {
    (Step.BEGIN, Answer.READY): (Step.LOOK, Step.PRIMARY, Step.BACKLOG, Step.GIVE_UP),
    (Step.LOOK, Answer.NONE_THERE): (Step.PRIMARY, Step.BACKLOG, Step.GIVE_UP),
    (Step.LOOK, Answer.FAILED): (Step.OUTBOX, Step.GIVE_UP),
    (Step.PRIMARY, Answer.SENT): (Step.DONE,),
    (Step.PRIMARY, Answer.FAILED): (Step.BACKLOG, Step.GIVE_UP),
    (Step.PRIMARY, Answer.BUSY): (Step.WAIT, Step.GIVE_UP),
    (Step.WAIT, Answer.READY): (Step.PRIMARY, Step.BACKLOG, Step.GIVE_UP),
    (Step.PRIMARY, Answer.REFUSED): (Step.GIVE_UP,),
    (Step.BACKLOG, Answer.SENT): (Step.DONE,),
    (Step.BACKLOG, Answer.FAILED): (Step.OUTBOX, Step.GIVE_UP),
    (Step.BACKLOG, Answer.REFUSED): (Step.GIVE_UP,),
    (Step.OUTBOX, Answer.SENT): (Step.DONE,),
    (Step.OUTBOX, Answer.FAILED): (Step.GIVE_UP,),
    (Step.OUTBOX, Answer.REFUSED): (Step.GIVE_UP,),
}


def next_step(step: Step, answer: Answer, situation: Situation) -> Step:
    """What to do now."""
    if step is Step.BEGIN and situation.outbox_first:
        return Step.OUTBOX if situation.has_outbox else Step.GIVE_UP
    if (step, answer) == (Step.LOOK, Answer.SOME_THERE):
        return Step.BACKLOG  # Even to a healthy primary's cost: a later message must not overtake an earlier one.
    return next(each for each in NEXT[step, answer] if _MAY[each](situation))
