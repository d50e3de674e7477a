"""What a paired client tells operators of itself: when it pings next, and how full its outbox is."""

from __future__ import annotations

from pathlib import Path

from twinbus.pair.core import PairCore
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.route.health import Event
from twinbus.pair.route.health_board import Scope

ENDPOINT = "Endpoint=sb://localhost:{};SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true"


class Clock:
    at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def made(clock: Clock) -> PairCore:
    options = SendAvailabilityOptions(failover_interval=5, ping_primary_interval=60)
    pair = PairDescription(*(NamespaceDescription(ENDPOINT.format(port)) for port in (1, 2)), options)
    return PairCore(*pair.namespaces(), options, clock=clock)


async def test_the_next_ping_is_told_while_something_is_failed_over() -> None:
    clock = Clock()
    core = made(clock)
    core.health_board.record(Scope("orders"), Event.FAILED, "down")
    assert core._record()["ping"] is None  # What is due is a failover.
    clock.at_s = 105.0
    core.health_board.record(Scope("orders"), Event.TIME)
    clock.at_s = 120.0
    assert core._record()["ping"] == {"next_in_s": 45.0, "every_s": 60.0}
    clock.at_s = 200.0
    assert core._record()["ping"] == {"next_in_s": 0.0, "every_s": 60.0}
    core.health_board.record(Scope("orders"), Event.PING_SENT)
    assert core._record()["ping"] is None


async def test_pings_are_counted_by_entity() -> None:
    core = made(Clock())
    for entity, count in (("orders", 3), ("carts", 1)):
        for _ in range(count):
            core.background.pings += 1
            core.background.pings_by_entity[entity] += 1
    assert core._record()["pings_by_entity"] == core.status().pings_by_entity == {"orders": 3, "carts": 1}


async def test_an_outbox_is_told_with_its_oldest_message(tmp_path: Path) -> None:
    core = made(Clock())
    assert core._record()["outbox"] is None
    core.use_outbox(tmp_path / "outbox.db", False, None)
    assert core.background.look_first is not None
    await core.background.look_first()
    assert core._record()["outbox"] == {"waiting": 0, "set_aside": 0, "oldest_s": None}
    assert core.outbox is not None
    core.outbox.outbox.put([b"\x00Su\xa0\x01x"], "orders", encoded=True)
    await core.background.look_first()
    told = core._record()["outbox"]
    assert (told["waiting"], told["set_aside"]) == (1, 0)
    assert 0 <= told["oldest_s"] < 60
    await core.outbox.stop()
