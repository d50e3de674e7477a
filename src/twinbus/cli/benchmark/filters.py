"""What filters cost: deciding which subscriptions get a message, by itself and within a broker that stores the copies.

The first part calls the rules as a topic does, with the reading of a message's properties; the second publishes through
a broker process. Showing the figures is `bench_filters`' work.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from twinbus.client import Connection
from twinbus.client.messages import build
from twinbus.model.rule import (
    DEFAULT_RULE_NAME,
    CorrelationFilter,
    Filter,
    RuleDescription,
    SqlFilter,
    TrueFilter,
)
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.index import TopicRules
from twinbus.rules.matching import compile_rule
from twinbus.rules.view import MessageView
from twinbus.wire import message, view

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

COUNTS = (1, 100, 2000)
BODY_BYTES = 1024
WINDOW = 200
LOT = 10
CREATED_AT_ONCE = 32
MATCHED = 0  # The subscription, by its number, whose filter takes the messages.

# The filters of so many subscriptions. Of each kind but the last, one takes the messages.
FILTERS: dict[str, Callable[[int], Filter]] = {
    "correlation": lambda n: CorrelationFilter(subject="order", properties={"region": f"r-{n}"}),
    "SQL with an equality": lambda n: SqlFilter(f"region = 'r-{n}' AND amount > 100"),
    "SQL without": lambda n: SqlFilter(f"amount > {1000 + n} AND colour LIKE 're%'"),
    "true": lambda n: TrueFilter(),
}
PUBLISHED = ("SQL with an equality", "SQL without", "true")
PROPERTIES = {"region": f"r-{MATCHED}", "amount": 1001, "colour": "red", "customer": "c-77", "priority": 3, "new": True}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Deciding about one message."""

    filters: str
    subscriptions: int
    message_us: float

    @property
    def rule_us(self) -> float:
        return self.message_us / self.subscriptions


@dataclass(frozen=True, slots=True)
class Publishing:
    """Messages to a topic, from the first send to the last accepted one."""

    filters: str
    subscriptions: int
    copies: int  # Of each message.
    per_s: float
    broker_us: float  # Processor time of the broker for each message.


def payload() -> bytes:
    """A message as applications send them: an id, a subject, and a few properties."""
    return build(b"x" * BODY_BYTES, message_id=uuid4().hex, subject="order", properties=PROPERTIES)


def evaluate(seconds: float) -> Iterator[Evaluation]:
    """What each kind of filter costs, for each number of subscriptions; `seconds` for each of them."""
    (incoming,) = message.read(payload(), 0, ttl_ceiling_ms=None, new_id=lambda: uuid4().hex)
    for name, make in FILTERS.items():
        for count in COUNTS:
            rules = TopicRules({n: [compile_rule(RuleDescription("r", make(n)))] for n in range(count)})
            decide = partial(_decide, rules, incoming.record)
            expected = count if name == "true" else 1
            if len(decide()) != expected:
                raise AssertionError(f"{name}: {len(decide())} of {count} subscriptions instead of {expected}")
            yield Evaluation(name, count, _fastest_us(decide, seconds))


def _decide(rules: TopicRules[int], record: bytes) -> dict[int, object]:
    seen = MessageView(partial(view.system_properties, record), partial(view.user_properties, record), _new_id)
    return dict(rules.match(seen))


def _new_id() -> UUID:
    return UUID(int=1)


def _fastest_us(action: Callable[[], object], seconds: float) -> float:
    """The best of some rounds: what others do on the machine only makes it slower."""
    best, end = float("inf"), time.perf_counter() + seconds
    number = 1
    while True:
        start = time.perf_counter()
        for _ in range(number):
            action()
        took = time.perf_counter() - start
        best = min(best, took / number)
        if time.perf_counter() > end:
            return best * 1e6
        number = max(1, min(int(seconds / 8 / max(took / number, 1e-9)), 10 * number))


async def subscribe(administration: Administration, name: str, count: int, progress: Callable[[int], None]) -> str:
    """A topic with so many subscriptions of one kind of filter; its name."""
    topic = f"bench-{name.replace(' ', '-').lower()}-{count}"
    await administration.create(TopicDescription(name=topic, max_size_mb=5120))
    make = FILTERS[name]

    async def one(number: int) -> None:
        rule = RuleDescription(DEFAULT_RULE_NAME, make(number))
        await administration.create(SubscriptionDescription(topic=topic, name=f"s-{number}"), rule)
        progress(1)

    for first in range(0, count, CREATED_AT_ONCE):
        await asyncio.gather(*map(one, range(first, min(first + CREATED_AT_ONCE, count))))
    return topic


async def publish(
    connect: Callable[[], AbstractAsyncContextManager[Connection]], topic: str, seconds: float
) -> tuple[int, float]:
    """Publishes for a time with a full window; how many were accepted, and the seconds to the last."""
    sent, under_way = 0, deque[asyncio.Future[None]]()
    async with connect() as connection:
        sender = await connection.sender(topic)
        await sender.send([payload()])  # What is made once, such as compiled rules, is made now.
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            under_way.append(sender.send_nowait([payload() for _ in range(LOT)]))
            sent += LOT
            if len(under_way) >= WINDOW // LOT:
                await under_way.popleft()
        while under_way:
            await under_way.popleft()
        return sent, time.perf_counter() - start
