"""The drill `slow`: the primary takes what is sent, but answers later than an attempt may take.

So senders hold failed what is stored, and send it again or divert it. That nothing is worked on twice is the ledger's
doing, and the drill claims that it had to.
"""

from __future__ import annotations

from dataclasses import replace

from twinbus.drill.ending import Ending
from twinbus.drill.paired import OPTIONS, PairedAct
from twinbus.drill.stage import Stage

ATTEMPT_S = 2.5


async def slow(stage: Stage) -> Ending:
    """Slow for the time of the plan."""
    async with PairedAct(stage, replace(OPTIONS, attempt_timeout=ATTEMPT_S)) as act:
        await act.at_ease()
        late_s = act.options.seconds("attempt_timeout")  # Each way, so that an answer takes twice as long.
        stage.primary.proxy.latency_s = late_s
        stage.primary.is_gone(f"each byte to and from the primary takes {late_s:g} s")
        await act.silence()
        stage.primary.proxy.latency_s = 0.0
        stage.primary.is_back("the primary is quick again")
        await act.home()
        await act.calm()
    ending = act.ending()
    return replace(ending, broken=untried(len(stage.course.diverted), ending.suppressed))


def untried(diverted: int, suppressed: int) -> tuple[str, ...]:
    """A primary that is too slow makes senders divert, and some of what they divert is in it already."""
    claims = (("no message was diverted", diverted), ("no message arrived twice", suppressed))
    return tuple(words for words, count in claims if not count)
