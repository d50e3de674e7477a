"""Headers, SASL, open and close (AMQP 1.0, sections 2.2, 2.4 and 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import Connection, NotAttachedError, Role, Settings
from twinbus.amqp.composite import decode_composite, encode_composite
from twinbus.amqp.connection import MAX_SENT_AHEAD
from twinbus.amqp.events import ConnectionClosed, ConnectionFailed, LinkAttached, Opened, SaslInit
from twinbus.amqp.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, amqp_frame, sasl_frame
from twinbus.amqp.performatives import Attach, Begin, Close, Error, Open, SaslMechanisms, Source, Target
from twinbus.amqp.performatives import SaslInit as SaslInitFrame
from twinbus.amqp.types import Symbol

PLAIN_RESPONSE = b"\x00user\x00password"


def test_a_client_authenticates_and_opens(make_pair: Any) -> None:
    pair = make_pair(
        Settings(mechanisms=("MSSBCBS", "ANONYMOUS", "PLAIN"), idle_timeout_ms=1000, properties={Symbol("a"): "b"})
    )
    pair.client.start("PLAIN", PLAIN_RESPONSE, "my.host")
    pair.run()
    assert pair.all(SaslInit) == [SaslInit("PLAIN", PLAIN_RESPONSE, "my.host")]
    assert pair.server.sasl_mechanism == pair.client.sasl_mechanism == "PLAIN"
    [opened] = pair.all(Opened)
    assert (opened.performative.container_id, opened.performative.hostname) == ("client", "my.host")
    [answer] = pair.at_client(Opened)
    assert answer.performative == Open("server", None, 65536, 1023, 1000, properties={Symbol("a"): "b"})
    assert pair.server.opened
    assert pair.client.opened


def test_the_mechanisms_are_offered_as_an_array() -> None:
    server = Connection(Role.SERVER, "server", Settings(mechanisms=("ANONYMOUS",)))
    server.receive(SASL_HEADER, 0)
    answer = server.take()
    assert answer[:8] == SASL_HEADER
    assert decode_composite(answer, 16)[0] == SaslMechanisms([Symbol("ANONYMOUS")])
    assert answer[22] == 0xE0


def test_a_client_that_is_not_authenticated_is_told_so(make_pair: Any) -> None:
    pair = make_pair()
    server, client = pair.server, pair.client
    client.start("PLAIN", b"")
    server.receive(client.take(), 0)
    client.receive(server.take(), 0)
    [init] = server.receive(client.take(), 0)
    assert init == SaslInit("PLAIN", b"", None)
    [failed] = server.sasl_outcome(False)
    assert isinstance(failed, ConnectionFailed)
    assert server.wants_close
    assert not server.closed
    [refused] = client.receive(server.take(), 0)
    assert refused.error.condition == "amqp:unauthorized-access"
    assert server.closed
    assert client.closed


def test_a_client_does_not_choose_what_is_not_offered(make_pair: Any) -> None:
    pair = make_pair()
    pair.client.start("EXTERNAL")
    pair.run()
    [failed] = pair.at_client(ConnectionFailed)
    assert failed.error.condition == "amqp:unauthorized-access"
    assert "ANONYMOUS, PLAIN" in (failed.error.description or "")


def test_a_client_may_go_without_sasl_where_that_is_allowed(make_pair: Any) -> None:
    pair = make_pair(Settings(sasl_required=False))
    pair.client.start()
    pair.run()
    assert pair.server.opened
    assert pair.client.opened
    assert pair.server.sasl_mechanism is None


def pipelined() -> bytes:
    return (
        AMQP_HEADER
        + amqp_frame(0, encode_composite(Open("c")))
        + amqp_frame(1, encode_composite(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)))
        + amqp_frame(1, encode_composite(Attach("l", 1, False, source=Source("a"), target=Target("b"))))
    )


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_what_a_client_sends_ahead_of_the_sasl_outcome_is_kept_and_handled_after_it(piece: int) -> None:
    server = Connection(Role.SERVER, "server", Settings())
    data = SASL_HEADER + sasl_frame(encode_composite(SaslInitFrame("ANONYMOUS", b"", "h"))) + pipelined()
    events = []
    for start in range(0, len(data), piece):
        events += server.receive(data[start : start + piece], 0)
    assert [type(event).__name__ for event in events] == ["SaslInit"]
    ahead = server.sasl_outcome(True)
    assert [type(event).__name__ for event in ahead] == ["Opened", "SessionBegun", "LinkAttached"]
    assert server.sasl_outcome(True) == []


def test_too_much_sent_ahead_of_the_outcome_ends_the_connection() -> None:
    server = Connection(Role.SERVER, "server", Settings())
    server.receive(SASL_HEADER + sasl_frame(encode_composite(SaslInitFrame("ANONYMOUS"))), 0)
    assert server.receive(bytes(MAX_SENT_AHEAD), 0) == []
    [failed] = server.receive(b"x", 0)
    assert failed.error.condition == "amqp:resource-limit-exceeded"  # type: ignore[union-attr]


def test_everything_after_the_header_may_be_pipelined_without_sasl() -> None:
    server = Connection(Role.SERVER, "server", Settings(sasl_required=False))
    events = server.receive(pipelined(), 0)
    assert [type(event).__name__ for event in events] == ["Opened", "SessionBegun", "LinkAttached"]
    link = events[2].link  # type: ignore[union-attr]
    assert isinstance(events[2], LinkAttached)
    assert link.remote.source == Source("a")


@pytest.mark.parametrize("header", [TLS_HEADER, b"AMQP\x00\x00\x09\x01", b"GET / HT", AMQP_HEADER])
def test_a_header_that_is_not_supported_is_answered_with_the_one_that_is(header: bytes) -> None:
    server = Connection(Role.SERVER, "server", Settings())
    [failed] = server.receive(header + b"more", 0)
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.condition == "amqp:connection:framing-error"
    assert server.take() == SASL_HEADER
    assert server.closed
    assert server.receive(pipelined(), 0) == []


def test_sasl_twice_is_not_supported() -> None:
    server = Connection(Role.SERVER, "server", Settings())
    server.receive(SASL_HEADER + sasl_frame(encode_composite(SaslInitFrame("ANONYMOUS"))), 0)
    server.sasl_outcome(True)
    server.take()
    [failed] = server.receive(SASL_HEADER, 0)
    assert isinstance(failed, ConnectionFailed)
    assert server.take() == AMQP_HEADER


@pytest.mark.parametrize("header", [SASL_HEADER, AMQP_HEADER])
def test_a_client_gives_up_on_a_server_that_answers_with_another_header(header: bytes) -> None:
    client = Connection(Role.CLIENT, "client", Settings())
    client.start(None if header == SASL_HEADER else "ANONYMOUS")
    client.take()
    [failed] = client.receive(header, 0)
    assert isinstance(failed, ConnectionFailed)


def test_either_end_may_close_and_the_other_answers(make_pair: Any) -> None:
    for closer, other in (("client", "server"), ("server", "client")):
        pair = make_pair()
        pair.open()
        error = Error("amqp:connection:forced", "going away")
        getattr(pair, closer).close(error)
        assert not getattr(pair, closer).wants_close
        pair.run()
        assert pair.server.closed
        assert pair.client.closed
        events = {"client": pair.at_client, "server": pair.all}
        assert events[other](ConnectionClosed) == [ConnectionClosed(error)]
        assert events[closer](ConnectionClosed) == [ConnectionClosed(None)]
        with pytest.raises(NotAttachedError):
            pair.client.begin()


def test_a_server_may_close_before_the_client_has_opened(make_peer: Any) -> None:
    peer = make_peer()
    peer.send(AMQP_HEADER)
    peer.server.close(Error("amqp:connection:forced"))
    assert [type(item) for item in peer.performatives()] == [Open, Close]
    peer.say(Open("peer"))
    assert not peer.server.wants_close
    assert peer.say(Close()) == [ConnectionClosed(None)]
    assert peer.server.closed


def test_closing_before_any_header_just_ends_the_connection() -> None:
    server = Connection(Role.SERVER, "server", Settings())
    server.close()
    assert server.closed


def test_frames_that_follow_our_close_are_ignored_until_the_peer_closes(peer: Any) -> None:
    peer.server.close()
    assert peer.say(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=7) == []
    assert peer.say(Close()) == [ConnectionClosed(None)]


def test_intents_before_the_connection_is_open_are_refused() -> None:
    client = Connection(Role.CLIENT, "client", Settings())
    with pytest.raises(NotAttachedError):
        client.begin()
