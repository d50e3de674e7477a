"""How long a syphon waits for what takes nothing: missing entities, destinations that are passed over, a namespace."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from twinbus.client.errors import ClientError
from twinbus.client.mover import Moved
from twinbus.pair.backlog.queues import in_spans, spans
from twinbus.pair.namespace import reachability
from twinbus.pair.namespace.port import BrokerFacts, Received
from twinbus.pair.namespace.reachability import Reachability
from twinbus.pair.syphon import drain
from twinbus.pair.syphon.drain import PassedOver
from twinbus.pair.syphon.missing import MissingEntities


class Clock:
    at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


class TestMissingEntities:
    def test_the_wait_begins_with_the_first_time_and_has_an_end(self) -> None:
        clock = Clock()
        missing = MissingEntities(300, clock)
        assert missing.waits_until("orders") == 1300
        for clock.at_s in (1060, 1120, 1180, 1240, 1299):
            assert missing.waits_until("orders") == 1300
        clock.at_s = 1300
        assert missing.waits_until("orders") is None
        assert missing.waits_until("others") == 1600

    def test_it_begins_anew_when_the_entity_was_there_or_the_primary_away_or_nobody_tried(self) -> None:
        clock = Clock()
        missing = MissingEntities(300, clock)
        missing.waits_until("orders")
        clock.at_s = 1200
        missing.found("orders")
        assert missing.waits_until("orders") == 1500
        clock.at_s = 1300
        missing.begin_anew()
        assert missing.waits_until("orders") == 1600
        clock.at_s = 9000
        assert missing.waits_until("orders") == 9300


def blocked(condition: str) -> Moved[Received]:
    return Moved(blocked={"orders": ClientError(condition, "no")})


class TestPassedOver:
    def test_what_may_pass_is_tried_every_second(self) -> None:
        passed_over = PassedOver(0.5)
        for length_s in (0.5, 1.0, 1.0):
            passed_over.learn(blocked("com.microsoft:server-busy"), 100.0)
            assert passed_over.next_try_s(100.0) == length_s

    def test_what_waits_for_an_operator_is_tried_less_often(self) -> None:
        passed_over = PassedOver(0.5)
        for length_s in (0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
            passed_over.learn(blocked("amqp:unauthorized-access"), 100.0)
            assert passed_over.next_try_s(100.0) == length_s

    def test_a_run_that_ends_tries_nothing_twice(self) -> None:
        passed_over = PassedOver.to_the_end()
        passed_over.learn(blocked("com.microsoft:server-busy"), 100.0)
        assert passed_over.paths(1e9) == {"orders"}


@pytest.mark.parametrize(
    ("lock_s", "least", "most"), [(60, 30, 30), (10, 7, 8), (5, 3, 3), (-1000, 3, 3), (None, 30, 30)]
)
def test_a_message_is_held_for_less_than_its_lock(
    lock_s: float | None, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's clock may be another."""
    until_ms = None if lock_s is None else int((time.time() + lock_s) * 1000)
    monkeypatch.setattr(drain.messages, "read", lambda payload: SimpleNamespace(locked_until_ms=until_ms))
    assert least <= drain._held_s(SimpleNamespace(payload=b"")) <= most


class Namespace:
    """It hangs for so many looks, and then answers each new one."""

    def __init__(self, hangs: int) -> None:
        self.hangs = hangs
        self.asked = self.open = self.open_most = 0

    async def ask(self) -> BrokerFacts:
        self.asked += 1
        self.open += 1
        self.open_most = max(self.open, self.open_most)
        try:
            if self.asked <= self.hangs:
                await asyncio.Event().wait()
            return BrokerFacts(True, None)
        finally:
            self.open -= 1


class TestReachability:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reachability, "LOOK_S", 0.005)

    async def test_all_who_wait_share_its_looks_and_a_look_that_hangs_is_no_obstacle(self) -> None:
        namespace, heard = Namespace(hangs=25), []
        found = Reachability(namespace, lambda: heard.append(found.is_lost))  # type: ignore[arg-type]
        await found.back()  # It is not lost.
        assert namespace.asked == 0
        found.lost(ClientError("twinbus:unreachable", "nobody is there"))
        async with asyncio.timeout(5):
            await asyncio.gather(*(found.back() for _ in range(200)))
        assert namespace.asked == 26
        assert namespace.open_most <= reachability.LOOKS_AT_ONCE + 1
        assert (namespace.open, heard) == (0, [True, False])

    async def test_nobody_looks_when_nobody_waits_any_more(self) -> None:
        namespace = Namespace(hangs=1000)
        found = Reachability(namespace)  # type: ignore[arg-type]
        found.lost(ClientError("twinbus:unreachable", "nobody is there"))
        waiting = asyncio.create_task(found.back())
        await asyncio.sleep(0.02)
        assert found.next_look_s() is not None
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (namespace.open, found.next_look_s()) == (0, None)


def test_the_numbers_of_queues_in_few_characters() -> None:
    assert spans(f"p/x-servicebus-transfer/{index}" for index in (0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert spans([]) == ""
    assert [index for index in range(10) if in_spans(index, "0-2,5,7-8")] == [0, 1, 2, 5, 7, 8]
    assert not any(in_spans(0, text) for text in ("", "x", "-", "a-b", "1-"))
