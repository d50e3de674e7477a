"""Which headers and arguments pass the relay, and which stay there."""

from __future__ import annotations

import pytest

from twinbus.relay import headers

VIA = "1.1 relay.example"


def test_what_concerns_one_connection_stays_behind() -> None:
    pairs = [
        ("Host", "h"),
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Content-Length", "3"),
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Trailer", "t"),
        ("Upgrade", "u"),
        ("Accept", "a"),
    ]
    assert headers.of_request(pairs, VIA, strips_authorization=False) == {"Accept": "a", "Via": VIA}


def test_the_relay_s_token_stays_behind_and_the_service_s_own_only_if_it_was_the_relay_s() -> None:
    pairs = [("ServiceBusAuthorization", "s"), ("sb-hc-token", "t"), ("Authorization", "a")]
    assert headers.of_request(pairs, VIA, strips_authorization=False) == {"Authorization": "a", "Via": VIA}
    assert headers.of_request(pairs, VIA, strips_authorization=True) == {"Via": VIA}


def test_several_headers_of_one_name_become_one() -> None:
    pairs = [("Accept", "a"), ("accept", "b"), ("Cookie", "c=1"), ("Cookie", "d=2"), ("Via", "1.0 first")]
    found = headers.of_request(pairs, VIA, strips_authorization=False)
    assert found == {"Accept": "a, b", "Cookie": "c=1; d=2", "Via": f"1.0 first, {VIA}"}


def test_a_handshake_keeps_everything_but_the_token() -> None:
    pairs = [("Sec-WebSocket-Key", "k"), ("Upgrade", "websocket"), ("ServiceBusAuthorization", "s")]
    assert headers.of_connect(pairs) == {"Sec-WebSocket-Key": "k", "Upgrade": "websocket"}


def test_a_response_is_marked_with_via() -> None:
    pairs = [("Content-Length", "1"), ("Set-Cookie", "a"), ("Set-Cookie", "b"), ("via", "1.0 inner")]
    found = headers.of_response(pairs, VIA)
    assert found == [("Set-Cookie", "a"), ("Set-Cookie", "b"), ("Via", f"1.0 inner, {VIA}")]


@pytest.mark.parametrize("pair", [("X\r\nY", "v"), ("X", "v\r\nY: z"), ("", "v"), ("X", "\x00")])
def test_a_header_that_cannot_be_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        headers.of_response([pair], VIA)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("", ""),
        ("a=1&sb-hc-token=x&b=%20", "a=1&b=%20"),
        ("SB-HC-ID=x", ""),
        ("sb-other=1", "sb-other=1"),
    ],
)
def test_arguments_for_the_relay_are_taken_out(query: str, kept: str) -> None:
    assert headers.without_relays(query) == kept
    assert headers.target_of("/p", query) == (f"/p?{kept}" if kept else "/p")


def test_an_address_is_where_the_listener_itself_came_to() -> None:
    address = headers.address_of("ws://host:1", "a b/c", "accept", "7", "x=1&sb-hc-action=connect")
    assert address == "ws://host:1/$hc/a%20b/c?sb-hc-action=accept&sb-hc-id=7&x=1"
