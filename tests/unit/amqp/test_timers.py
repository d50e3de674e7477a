"""Heartbeats and time-outs on a clock that the test moves (AMQP 1.0, section 2.4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import Connection, LinkRole, Role, Settings
from twinbus.amqp.events import ConnectionClosed, ConnectionFailed
from twinbus.amqp.frames import AMQP_HEADER, EMPTY_FRAME
from twinbus.amqp.performatives import Close


@pytest.mark.parametrize(("idle_ms", "interval_ms"), [(1000, 500), (60_000, 30_000), (600_000, 30_000), (1, 1)])
def test_a_heartbeat_goes_out_at_half_of_the_peers_patience_or_every_thirty_seconds(
    make_peer: Any, idle_ms: int, interval_ms: int
) -> None:
    peer = make_peer()
    peer.open(idle_time_out=idle_ms)
    server = peer.server
    assert server.deadline_ms == interval_ms
    assert server.tick(interval_ms - 1) == []
    assert server.take() == b""
    server.tick(interval_ms)
    assert server.take() == EMPTY_FRAME
    server.tick(2 * interval_ms - 1)
    assert server.take() == b""
    server.tick(2 * interval_ms)
    assert server.take() == EMPTY_FRAME


@pytest.mark.parametrize("idle_ms", [None, 0])
def test_a_peer_that_does_not_ask_for_heartbeats_gets_none(make_peer: Any, idle_ms: int | None) -> None:
    peer = make_peer()
    peer.open(idle_time_out=idle_ms)
    peer.server.tick(400_000)
    assert peer.server.take() == b""


def test_what_is_sent_anyway_takes_the_place_of_a_heartbeat(make_peer: Any) -> None:
    peer = make_peer()
    peer.open(idle_time_out=1000)
    peer.begin()
    server = peer.server
    link = peer.attach(LinkRole.RECEIVER)
    server.tick(400)
    link.transfer(b"t", b"x", True)
    assert server.take()
    server.tick(600)
    assert server.take() == b""
    link.transfer(b"t", b"x", True)
    server.tick(2000)
    assert EMPTY_FRAME not in server.take()
    server.tick(2500)
    assert server.take() == EMPTY_FRAME


def test_a_silent_peer_is_given_up_after_twice_what_it_was_told(peer: Any) -> None:
    peer.server.receive(EMPTY_FRAME, 1000)
    assert peer.server.tick(480_999) == []
    [failed] = peer.server.tick(481_000)
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.condition == "amqp:resource-limit-exceeded"
    assert peer.performatives() == [Close(failed.error)]
    assert peer.server.closed
    assert peer.server.tick(481_001) == []


def test_heartbeats_keep_two_ends_together(make_pair: Any) -> None:
    short = Settings(idle_timeout_ms=1000)
    pair = make_pair(short, short)
    pair.open()
    for now_ms in range(100, 20_000, 100):
        pair.tick(now_ms)
        pair.run()
    assert pair.server.opened
    assert pair.client.opened
    assert pair.server.deadline_ms == 20_000


def test_without_an_idle_time_out_silence_is_borne_for_ever(make_peer: Any) -> None:
    peer = make_peer(Settings(sasl_required=False, idle_timeout_ms=0))
    peer.open()
    assert peer.server.deadline_ms is None
    assert peer.server.tick(10**12) == []
    assert peer.server.opened


@pytest.mark.parametrize("data", [b"", b"AMQ", AMQP_HEADER])
def test_a_connection_that_is_not_opened_in_time_is_given_up(data: bytes) -> None:
    server = Connection(Role.SERVER, "server", Settings(sasl_required=False), now_ms=1000)
    server.receive(data, 50_000)
    assert server.deadline_ms == 61_000
    assert server.tick(60_999) == []
    [failed] = server.tick(61_000)
    assert isinstance(failed, ConnectionFailed)
    assert server.wants_close
    assert server.deadline_ms is None


def test_the_answer_to_our_close_is_not_waited_for_for_ever(peer: Any) -> None:
    peer.server.tick(1000)
    peer.server.close()
    assert [type(item) for item in peer.performatives()] == [Close]
    assert peer.server.deadline_ms == 6000
    assert peer.server.tick(5999) == []
    assert not peer.server.wants_close
    assert peer.server.tick(6000) == [ConnectionClosed(None)]
    assert peer.server.closed
