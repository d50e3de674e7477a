"""Roles, names and scopes of replicated entities."""

from __future__ import annotations

import pytest

from twinbus.pair.replication.policy import Mode, Names, Roles, scope_of


def test_roles_change_when_the_backup_took_a_message_and_only_once() -> None:
    roles = Roles()
    assert roles.active("Orders") == 0
    assert roles.sent_to_backup("orders", 1)
    assert roles.active("ORDERS") == 1
    assert not roles.sent_to_backup("orders", 1)
    assert roles.active("other") == 0
    assert roles.swapped() == {"orders": 1}
    assert roles.sent_to_backup("orders", 0)
    assert roles.swapped() == {}


def test_names_are_equal_unless_they_are_mapped() -> None:
    names = Names({"Orders": "orders-b", "events/Subscriptions/a": "events-b/subscriptions/b"})
    assert [names.entity("orders", namespace) for namespace in (0, 1)] == ["orders", "orders-b"]
    assert names.entity("other", 1) == "other"
    assert names.subscription("events", "a", 0) == ("events", "a")
    assert names.subscription("events", "a", 1) == ("events-b", "b")
    assert names.subscription("orders", "x", 1) == ("orders-b", "x")


def test_a_scope_is_the_path_of_what_is_read() -> None:
    assert scope_of("Orders") == "orders"
    assert scope_of("Events", "A") == "events/subscriptions/a"
    assert scope_of("q", None, "deadletter") == "q/$deadletter"


def test_a_mode_is_active_or_passive() -> None:
    assert Mode.parse("active") is Mode.parse(Mode.ACTIVE)
    with pytest.raises(ValueError, match="active or passive"):
        Mode.parse("both")
