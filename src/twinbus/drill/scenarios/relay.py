"""The drill `relay`: a service listens at two relays, callers call at a steady rate, and one relay is killed.

Calls with an idempotent method are issued again through the other relay, and every one of them is answered as it was
sent. A POST that may have arrived is not issued again: it may fail, but it is never worked on twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace

from twinbus.client import ConnectionString
from twinbus.drill.acting import until
from twinbus.drill.course import Course
from twinbus.drill.ending import Ending, untrue
from twinbus.drill.history import SendLog, Verdict, judge
from twinbus.drill.stage import Plan, Site, Stage
from twinbus.relay import RelayClient, RelayedRequest, RelayedResponse, RelayEndpoint, RelayError, RelayListener

CONFIGS = (
    '[[hybrid_connections]]\nName = "myPrimaryService"\n',
    '[[hybrid_connections]]\nName = "mySecondaryService"\n',
)
NAMES = ("myPrimaryService", "mySecondaryService")
IDEMPOTENT = ("GET", "PUT")
METHODS = (*IDEMPOTENT, "PUT", "POST")
PROBE = "is-it-there-again"
CALM_S = 3.0
WORK_S = 0.05  # What the service does takes a moment, so that calls are under way when the relay dies.
LISTENING_S = 60.0  # How long a service may take to listen again.


class Calls:
    """Callers, and the service that they call."""

    def __init__(self, plan: Plan, course: Course, log: SendLog) -> None:
        self._course = course
        self._log = log
        self._pause_s = 1 / plan.rate
        self._random = random.Random(plan.seed)
        self._under_way: set[asyncio.Task[None]] = set()
        self.methods: dict[str, str] = {}
        self.wrong: set[str] = set()  # Answered with something else than was sent.
        self.unanswered: set[str] = set()
        self.by_endpoint: Counter[int] = Counter()

    async def work(self, request: RelayedRequest) -> RelayedResponse:
        """The service."""
        name = request.below.rpartition("/")[2]
        body = await request.read()
        await asyncio.sleep(WORK_S)
        self._course.received[name] += 1
        return RelayedResponse(200, name.encode() + b": " + body)

    async def call_for_ever(self, client: RelayClient) -> None:
        """One call after the other, without waiting for answers."""
        while True:
            method = self._random.choice(METHODS)
            name = f"{method.lower()}-{len(self.methods):06}"
            self.methods[name] = method
            task = asyncio.create_task(self._call(client, method, name))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            self._course.sample()
            await asyncio.sleep(self._pause_s)

    async def answered(self) -> None:
        """Wait for the outcome of every call."""
        await asyncio.gather(*self._under_way)

    async def _call(self, client: RelayClient, method: str, name: str) -> None:
        body = b"" if method == "GET" else self._random.randbytes(self._random.choice((10, 1_000, 100_000)))
        self._course.attempted.add(name)
        self._log.attempted(name, method, time.time())
        try:
            response = await client.request(method, f"work/{name}", body=body)
        except RelayError as error:
            self._course.failed += 1
            self.unanswered.add(name)
            self._log.failed(name, time.time(), str(error))
            return
        self.by_endpoint[response.endpoint] += 1
        if response.status != 200 or response.body != name.encode() + b": " + body:
            self.wrong.add(name)
        self._course.acknowledged.add(name)
        self._log.acknowledged(name, time.time(), False)

    def repeated(self, received: Counter[str]) -> int:
        """How many calls of an idempotent method were worked on more than once."""
        return sum(times > 1 for name, times in received.items() if self.methods[name] in IDEMPOTENT)

    def verdict(self, received: Counter[str]) -> Verdict:
        """As for messages; what repeats an idempotent call is not worked on twice as far as anybody can tell."""
        counted = {name: 1 if self.methods[name] in IDEMPOTENT else times for name, times in received.items()}
        return judge(self._log.path, Counter(counted))


async def relay(stage: Stage) -> Ending:
    """The relay that the callers use is killed under them, and comes back."""
    course, chance = stage.course, random.Random(stage.plan.seed)
    endpoints = [_endpoint(site, name) for site, name in zip((stage.primary, stage.secondary), NAMES, strict=True)]
    with SendLog(stage.directory / "sent.jsonl") as log:
        calls = Calls(stage.plan, course, log)
        async with (
            RelayListener(endpoints, calls.work) as listener,
            RelayClient(*endpoints, choose=chance.randrange) as client,
        ):
            await listener.listening()
            calling = asyncio.create_task(calls.call_for_ever(client))
            await asyncio.sleep(CALM_S)
            await until(lambda: calls.by_endpoint[endpoints.index(client.active)] > 0)
            dead = endpoints.index(client.active)
            site = (stage.primary, stage.secondary)[dead]
            await site.go_away()
            before = calls.by_endpoint[dead]
            await asyncio.sleep(stage.plan.outage_s)
            await until(lambda: calls.by_endpoint[1 - dead] > 0)
            await site.come_back()
            async with asyncio.timeout(LISTENING_S):
                await listener.listening(dead)
            course.mark("healed")
            course.say("the service listens at both relays again")
            await asyncio.sleep(CALM_S)
            calling.cancel()
            await calls.answered()
            reached = await _reach(endpoints[dead])
    del course.received[PROBE]
    course.sample()
    verdict = replace(calls.verdict(course.received), heal_s=course.times()["heal"])
    failed = Counter(calls.methods[name] for name in calls.unanswered)
    claims = {
        f"not answered though idempotent: {dict(failed)}": not (failed.keys() - {"POST"}),
        f"answered otherwise than sent: {sorted(calls.wrong)[:10]}": not calls.wrong,
        "no call was answered before the relay died, so that nothing was rehearsed": before > 0,
        "no call was answered by the other relay": calls.by_endpoint[1 - dead] > 0,
        "the relay that came back does not reach the service": reached,
    }
    return Ending(
        verdict,
        remarks=(
            f"answered by the relay that was killed {calls.by_endpoint[dead]:,}, by the other one"
            f" {calls.by_endpoint[1 - dead]:,}",
            f"worked on more than once, which is allowed for GET and PUT: {calls.repeated(course.received):,}",
            f"POST without an answer, because they may have arrived: {failed['POST']:,}",
        ),
        broken=untrue(claims),
    )


def _endpoint(site: Site, name: str) -> RelayEndpoint:
    assert site.broker is not None
    target = ConnectionString.parse(site.broker.connection_string)
    return RelayEndpoint(f"{site.broker.http_address}/{name}", target.policy or "", target.key or "")


async def _reach(endpoint: RelayEndpoint) -> bool:
    """Whether one relay alone brings a call to the service."""
    async with RelayClient(endpoint) as client:
        try:
            return (await client.request("GET", f"work/{PROBE}")).body == f"{PROBE}: ".encode()
        except RelayError:
            return False
