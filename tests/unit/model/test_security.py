"""Authorization rules: what a rule must have, and that its keys stay out of sight."""

from __future__ import annotations

import json

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights

RULE = AuthorizationRule("reader", "first-secret", "second-secret", Rights.LISTEN)


@pytest.mark.parametrize("rights", [Rights.LISTEN, Rights.SEND, Rights.LISTEN | Rights.SEND, Rights.ALL], ids=str)
def test_a_rule_grants_listen_send_or_everything(rights: Rights) -> None:
    assert AuthorizationRule("rule", "a", "b", rights).rights is rights


@pytest.mark.parametrize("rights", [Rights.MANAGE, Rights.MANAGE | Rights.LISTEN, Rights.MANAGE | Rights.SEND], ids=str)
def test_manage_is_not_granted_without_listen_and_send(rights: Rights) -> None:
    with pytest.raises(BusError, match="'rule' must grant Listen and Send with Manage") as refused:
        AuthorizationRule("rule", "a", "b", rights)
    assert refused.value.fault is Fault.ARGUMENT


def test_a_rule_without_rights_is_refused() -> None:
    with pytest.raises(BusError, match="'rule' grants no right") as refused:
        AuthorizationRule("rule", "a", "b", Rights(0))
    assert refused.value.fault is Fault.ARGUMENT


@pytest.mark.parametrize(("name", "primary", "secondary"), [("", "a", "b"), ("rule", "", "b"), ("rule", "a", "")])
def test_a_rule_needs_a_name_and_both_keys(name: str, primary: str, secondary: str) -> None:
    with pytest.raises(BusError, match="needs a name and two keys") as refused:
        AuthorizationRule(name, primary, secondary, Rights.SEND)
    assert refused.value.fault is Fault.ARGUMENT


def test_both_keys_are_offered_for_verification() -> None:
    assert RULE.keys == ("first-secret", "second-secret")


def test_the_keys_are_not_in_the_representation() -> None:
    assert "secret" not in repr(RULE)
    assert "reader" in repr(RULE)


@pytest.mark.parametrize("rights", [Rights.LISTEN, Rights.SEND, Rights.ALL], ids=str)
def test_a_rule_survives_the_round_trip_through_json(rights: Rights) -> None:
    rule = AuthorizationRule("rule", "a", "b", rights)
    assert AuthorizationRule.from_document(json.loads(json.dumps(rule.to_document()))) == rule
