"""The drill `token-service`: the service that hands out tokens is away, for longer than a token lives.

Who signs with a key of its own (a shared access signature) is not concerned. Who depends on the service works until its
tokens end, is then refused, and works again when the service is back. That is no outage of a datacenter: nothing fails
over, because no namespace would take what is sent without a token.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from twinbus.drill.acting import until
from twinbus.drill.course import Course
from twinbus.drill.ending import Ending, untrue
from twinbus.drill.paired import PairedAct
from twinbus.drill.stage import PRIMARY, SECONDARY, Stage
from twinbus.drill.tokens import ServiceCredential, Signer, paired_with, token_service
from twinbus.pair.backlog.diversion import Diverted
from twinbus.pair.route.health_board import Change

LIFE_S = 10.0  # Of a token. What lives shorter the SDK does not renew before its end.
DEPENDENT = "service-"  # So begin the ids of messages whose sender depends on the service.
QUIET_S = 2.0
ENDED_S = 4.0  # After their end, for the last answers to arrive.


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen beside the verdict."""

    failed: int  # Sends of those who sign for themselves.
    refused: int  # Sends of those who depend on the service.
    # What these had sent when it went away, when their tokens had ended, and a while later.
    sent: tuple[int, int, int]
    resumed: bool
    changes: int
    diverted: int

    def broken(self) -> tuple[str, ...]:
        """The claims that do not hold."""
        with_service, with_old_tokens, without_tokens = self.sent
        return untrue(
            {
                f"{self.failed} sends of those who sign for themselves failed": self.failed == 0,
                "nothing was sent with tokens that were still good": with_old_tokens > with_service,
                "those who depend on the service went on without tokens": without_tokens == with_old_tokens,
                "those who depend on the service were never refused": self.refused > 0,
                "those who depend on the service do not send again": self.resumed,
                f"the state of an entity changed {self.changes} times": self.changes == 0,
                f"{self.diverted} messages were diverted": self.diverted == 0,
            }
        )


async def drill_token_service(stage: Stage) -> Ending:
    """Away until every token has ended, and for the time of the plan after that."""
    course = stage.course
    signers = {site.name: Signer(site.direct.connection_string, LIFE_S) for site in (stage.primary, stage.secondary)}
    changes: list[Change] = []
    diversions: list[Diverted] = []
    async with token_service(signers) as service, PairedAct(stage) as act:
        credentials = ServiceCredential(service, PRIMARY), ServiceCredential(service, SECONDARY)
        pair = stage.described(replace(act.options, enable_syphon=False))
        async with paired_with(pair, credentials, on_change=changes.append, on_diverted=diversions.append) as client:
            act.traffic.send_by(client, DEPENDENT)
            await act.calm()
            await act.flowing()
            await service.go()
            course.say("the token service is away")
            with_service = _sent(course)
            await asyncio.sleep(LIFE_S + max(stage.plan.outage_s - QUIET_S, ENDED_S))
            with_old_tokens = _sent(course)
            await asyncio.sleep(QUIET_S)
            without_tokens = _sent(course)
            course.say(f"who depends on it has sent {without_tokens - with_service:,} since, and is refused now")
            await service.come()
            course.say("the token service is back")
            resumed = await until(lambda: _sent(course) > without_tokens)
            await act.calm()
            await act.traffic.enough()
    failed = _failed(stage.directory / "sent.jsonl")
    found = Found(
        failed=failed[""],
        refused=failed[DEPENDENT],
        sent=(with_service, with_old_tokens, without_tokens),
        resumed=resumed,
        changes=len(changes) + len(act.changes),
        diverted=len(diversions) + len(course.diverted),
    )
    return act.ending(
        f"who signs for itself: {len(course.acknowledged) - _sent(course):,} sent, {failed['']:,} failed",
        f"who depends on the service: {_sent(course):,} sent, {without_tokens - with_service:,} of them while it was"
        f" away with tokens that were still good; {failed[DEPENDENT]:,} refused and sent again later",
        broken=found.broken(),
    )


def _sent(course: Course) -> int:
    """How many messages of those who depend on the service were acknowledged."""
    return sum(message_id.startswith(DEPENDENT) for message_id in course.acknowledged)


def _failed(log: Path) -> Counter[str]:
    """Sends that failed, by whether their sender depends on the service."""
    failed: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        message_id = json.loads(line).get("failed")
        if message_id is not None:
            failed[DEPENDENT if message_id.startswith(DEPENDENT) else ""] += 1
    return failed
