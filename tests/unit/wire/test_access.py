"""Grants from tokens and keys: who gets which rights on which path, and when they end."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.wire import access, sas

NOW_MS = 1_700_000_000_000
EXPIRY_S = NOW_MS // 1000 + 60
ROOT = AuthorizationRule("Root", "root-key-1", "root-key-2", Rights.ALL)
LISTENER = AuthorizationRule("Listener", "listen-key-1", "listen-key-2", Rights.LISTEN)


def rules_for(path: str) -> list[AuthorizationRule]:
    return [ROOT, LISTENER] if path.lower() == "orders" else [ROOT]


def grant(resource: str, audience: str, rule: AuthorizationRule, key: str, expiry_s: int = EXPIRY_S) -> access.Grant:
    return access.by_token(sas.make_token(resource, rule.name, key, expiry_s), audience, rules_for, NOW_MS)


@pytest.mark.parametrize("key", ROOT.keys)
def test_either_key_of_a_namespace_policy_opens_an_entity(key: str) -> None:
    given = grant("sb://host/", "sb://host/orders", ROOT, key)
    assert given.allows("orders", Rights.SEND)
    assert given.allows("ORDERS/$DeadLetterQueue", Rights.LISTEN)
    assert not given.allows("other", Rights.SEND)
    assert given.expires_at_ms == EXPIRY_S * 1000


def test_scope_is_by_segments_not_by_characters() -> None:
    given = grant("sb://host/orders", "sb://host/orders", ROOT, "root-key-1")
    assert not given.allows("orders-2", Rights.LISTEN)


def test_an_entity_policy_grants_its_rights_on_its_entity_only() -> None:
    given = grant("sb://host/orders", "sb://host/orders/$management", LISTENER, "listen-key-2")
    assert given.rights is Rights.LISTEN
    with pytest.raises(BusError):
        grant("sb://host/", "sb://host/orders", LISTENER, "listen-key-2")


@pytest.mark.parametrize(
    ("resource", "audience", "key", "expiry_s"),
    [
        ("sb://host/", "sb://host/orders", "wrong", EXPIRY_S),
        ("sb://host/", "sb://host/orders", "root-key-1", NOW_MS // 1000 - 1),
        ("sb://host/invoices", "sb://host/orders", "root-key-1", EXPIRY_S),
        ("sb://elsewhere/", "sb://host/orders", "root-key-1", EXPIRY_S),
    ],
)
def test_a_token_that_does_not_hold_fails_without_telling_a_secret(
    resource: str, audience: str, key: str, expiry_s: int
) -> None:
    with pytest.raises(BusError) as caught:
        grant(resource, audience, ROOT, key, expiry_s)
    assert caught.value.fault is Fault.AUTHENTICATION_FAILED
    assert key not in str(caught.value)


def test_a_policy_name_and_key_open_the_namespace_and_do_not_lapse() -> None:
    given = access.by_key("Root", "root-key-2", rules_for)
    assert given.allows("anything/at/all", Rights.MANAGE)
    assert given.expires_at_ms == access.NEVER_MS
    assert "root-key-2" not in repr(given)
    with pytest.raises(BusError):
        access.by_key("Root", "root-key-3", rules_for)
    with pytest.raises(BusError):
        access.by_key("Listener", "listen-key-1", rules_for)


def test_a_rotated_key_ends_the_grants_it_made() -> None:
    by_token = grant("sb://host/", "sb://host/orders", ROOT, "root-key-1")
    by_key = access.by_key("Root", "root-key-1", rules_for)
    rotated = AuthorizationRule("Root", "new", "root-key-2", Rights.ALL)
    for given, audience in ((by_token, "sb://host/orders"), (by_key, None)):
        assert access.renewed(given, audience, rules_for, NOW_MS) == given
        assert access.renewed(given, audience, lambda _: [rotated], NOW_MS) is None


class Place:
    """Something with one policy."""

    def __init__(self, *rules: AuthorizationRule) -> None:
        self.rules = rules

    def rules_for(self, path: str) -> list[AuthorizationRule]:
        return list(self.rules)


OTHER = AuthorizationRule("Root", "other-key-1", "other-key-2", Rights.ALL)


def test_a_key_tells_in_which_of_several_places_it_is_good() -> None:
    here, there = Place(ROOT), Place(OTHER)
    place, given = access.where([here, there], lambda rules_for: access.by_key("Root", "other-key-2", rules_for))
    assert (place, given.rights) == (there, Rights.ALL)


def test_a_token_that_is_good_nowhere_is_refused() -> None:
    token = sas.make_token("sb://host/", "Root", "a-key-of-nobody", EXPIRY_S)
    with pytest.raises(BusError) as refused:
        access.where([Place(ROOT), Place(OTHER)], lambda known: access.by_token(token, "sb://host/q", known, NOW_MS))
    assert refused.value.fault is Fault.AUTHENTICATION_FAILED


def test_a_key_that_is_good_in_several_places_does_not_tell() -> None:
    places = [Place(ROOT), Place(ROOT, OTHER)]
    assert len(access.everywhere(places, lambda known: access.by_key("Root", "root-key-1", known))) == 2
    with pytest.raises(BusError, match="does not tell which one is meant"):
        access.where(places, lambda known: access.by_key("Root", "root-key-1", known))
