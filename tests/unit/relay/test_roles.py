"""When the other relay is tried, when the roles swap, and which endpoints can be a pair."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest

from twinbus.model.errors import BusError
from twinbus.relay.calling import RelayClient, RelayError
from twinbus.relay.endpoint import RelayEndpoint, check_pair
from twinbus.relay.roles import Outcome, Roles, Tried, may_reissue, outcome_of
from twinbus.wire import sas

ONE = RelayEndpoint("https://contosoprimary.example/myPrimaryService")
OTHER = RelayEndpoint("https://contososecondary.example/mySecondaryService")


@pytest.mark.parametrize(
    ("status", "has_via", "outcome"),
    [
        (200, True, Outcome.ANSWERED),
        (503, True, Outcome.ANSWERED),
        (500, True, Outcome.ANSWERED),
        (401, False, Outcome.NOT_DELIVERED),
        (404, False, Outcome.NOT_DELIVERED),
        (502, False, Outcome.NOT_DELIVERED),
        (504, False, Outcome.UNKNOWN),
        (500, False, Outcome.UNKNOWN),
    ],
)
def test_via_tells_whose_answer_it_is(status: int, has_via: bool, outcome: Outcome) -> None:
    assert outcome_of(status, has_via) is outcome


@pytest.mark.parametrize(
    ("outcome", "method", "reissue", "may"),
    [
        (Outcome.ANSWERED, "GET", True, False),
        (Outcome.NOT_DELIVERED, "POST", None, True),
        (Outcome.NOT_DELIVERED, "POST", False, True),
        (Outcome.UNKNOWN, "GET", None, True),
        (Outcome.UNKNOWN, "put", None, True),
        (Outcome.UNKNOWN, "POST", None, False),
        (Outcome.UNKNOWN, "POST", True, True),
        (Outcome.UNKNOWN, "GET", False, False),
    ],
)
def test_a_request_is_issued_again_only_where_that_is_safe(
    outcome: Outcome, method: str, reissue: bool | None, may: bool
) -> None:
    assert may_reissue(outcome, method, reissue) is may


ANSWERED, NOT_DELIVERED, UNKNOWN = Outcome.ANSWERED, Outcome.NOT_DELIVERED, Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("tries", "active"),
    [
        ([(0, ANSWERED)], 0),
        ([(0, UNKNOWN), (1, ANSWERED)], 1),
        ([(0, NOT_DELIVERED), (1, ANSWERED)], 1),
        ([(0, UNKNOWN), (1, NOT_DELIVERED)], 0),  # Both failed.
        ([(0, NOT_DELIVERED), (1, UNKNOWN)], 0),
        ([(0, UNKNOWN)], 1),  # It could not be issued again: the next call goes elsewhere.
        ([(1, UNKNOWN)], 0),  # Begun before the roles changed, and no news: the other one is active already.
        ([(1, ANSWERED)], 0),  # An answer that was under way for long does not change them back.
    ],
)
def test_roles_swap_when_the_other_one_answers_or_has_to_be_tried_next(
    tries: list[tuple[int, Outcome]], active: int
) -> None:
    assert Roles(0).after([Tried(*each) for each in tries]) == Roles(active)


@pytest.mark.parametrize(
    ("problem", "is_definite"),
    [
        (aiohttp.ConnectionTimeoutError("no connection in time"), True),
        (aiohttp.SocketTimeoutError("no answer in time"), False),
        (aiohttp.ServerDisconnectedError(), False),
        (TimeoutError(), False),
    ],
)
async def test_what_was_never_connected_was_never_delivered(problem: Exception, is_definite: bool) -> None:
    """So that a POST is issued again where a relay's machine swallows everything, and not where it may have it."""
    client = RelayClient(ONE, OTHER, choose=lambda _: 0)

    class Failing:
        def request(self, *arguments: object, **settings: object) -> None:
            raise problem

    client._opened = Failing  # type: ignore[method-assign, assignment]
    with pytest.raises(RelayError) as told:
        await client.request("POST")
    assert (told.value.is_definite, len(told.value.statuses)) == (is_definite, 2 if is_definite else 1)


def test_a_client_begins_with_either_endpoint_at_random() -> None:
    assert {RelayClient(ONE, OTHER).active for _ in range(64)} == {ONE, OTHER}


def test_two_relays_in_one_datacenter_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    north = replace(ONE, datacenter="North")
    for other in ("", "south"):
        RelayClient(north, replace(OTHER, datacenter=other))
    RelayClient(ONE, OTHER)
    assert caplog.records == []
    RelayClient(north, replace(OTHER, datacenter="north"))
    (record,) = caplog.records
    assert record.getMessage() == "both relays are in the datacenter 'North', and would be lost together"


def test_endpoints_of_a_pair_differ_in_namespace_and_name() -> None:
    one = RelayEndpoint("https://contosoprimary.example/myPrimaryService")
    check_pair(one, RelayEndpoint("https://contososecondary.example/mySecondaryService"))
    for other in ("https://CONTOSOPRIMARY.example/other", "https://elsewhere.example/MYPRIMARYSERVICE", one.url):
        with pytest.raises(BusError):
            check_pair(one, RelayEndpoint(other))


@pytest.mark.parametrize(
    "url", ["contoso.example/service", "ftp://h/service", "https://h", "https://h/", "http://h/s?a"]
)
def test_an_endpoint_is_a_url_with_a_path(url: str) -> None:
    with pytest.raises(BusError):
        RelayEndpoint(url)


def test_an_endpoint_s_addresses_and_token() -> None:
    endpoint = RelayEndpoint("http://Host:5300/a/b", "policy", "key")
    assert endpoint.socket_url("connect", "/more") == "ws://Host:5300/$hc/a/b/more?sb-hc-action=connect"
    assert [endpoint.request_url(target) for target in ("", "/x", "x?y", "?y")] == [
        "http://Host:5300/a/b",
        "http://Host:5300/a/b/x",
        "http://Host:5300/a/b/x?y",
        "http://Host:5300/a/b?y",
    ]
    token = sas.parse(endpoint.token(999.1))
    assert (token.resource, token.policy, token.expires_at_s) == ("http://host:5300/a/b", "policy", 4600)
    assert sas.verify(token, ["key"])
    assert RelayEndpoint("http://h/a").headers(0) == {}
    assert "key" not in repr(endpoint).replace("key=", "")
