"""When the other relay is tried, when the roles swap, and which endpoints can be a pair."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError
from twinbus.relay.endpoint import RelayEndpoint, check_pair
from twinbus.relay.roles import Outcome, Roles, may_reissue, outcome_of
from twinbus.wire import sas


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


def test_roles_swap_when_the_other_one_answers_and_not_when_both_fail() -> None:
    roles = Roles(0)
    assert roles.after(0, Outcome.ANSWERED) == Roles(0)
    assert roles.after(0, Outcome.UNKNOWN).after(1, Outcome.ANSWERED) == Roles(1)
    assert roles.after(0, Outcome.UNKNOWN).after(1, Outcome.NOT_DELIVERED) == Roles(0)


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
