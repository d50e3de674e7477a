"""Addresses of the API: what each names, in any case."""

from __future__ import annotations

import pytest

from twinbus.admin.paths import Target, What, read
from twinbus.model.errors import BusError, Fault


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", Target(What.ENTITY, "")),
        ("q", Target(What.ENTITY, "q")),
        ("a/b/C", Target(What.ENTITY, "a/b/C")),
        ("subscriptions", Target(What.ENTITY, "subscriptions")),
        ("subscriptions/x", Target(What.ENTITY, "subscriptions/x")),
        ("$NamespaceInfo", Target(What.NAMESPACE)),
        ("$Resources/queues", Target(What.QUEUES)),
        ("$resources/TOPICS", Target(What.TOPICS)),
        ("$Resources/other", Target(What.ENTITY, "$Resources/other")),
        ("t/Subscriptions", Target(What.SUBSCRIPTIONS, "t")),
        ("A/b/SUBSCRIPTIONS/Sub", Target(What.SUBSCRIPTION, "A/b", "Sub")),
        ("t/subscriptions/s/rules", Target(What.RULES, "t", "s")),
        ("t/Subscriptions/s/Rules/$Default", Target(What.RULE, "t", "s", "$Default")),
        ("t/subscriptions/subscriptions/rules/rules", Target(What.RULE, "t", "subscriptions", "rules")),
    ],
)
def test_an_address_names_one_thing(path: str, target: Target) -> None:
    assert read(path) == target


@pytest.mark.parametrize(
    "path",
    ["t/subscriptions/a/b", "t/subscriptions/s/rules/a/b", "t/subscriptions/s/roles/r", "t/subscriptions/s/x/rules"],
)
def test_what_lies_below_a_subscription_but_is_no_rule_is_refused(path: str) -> None:
    with pytest.raises(BusError) as refused:
        read(path)
    assert refused.value.fault is Fault.ARGUMENT


def test_a_subscription_has_the_path_by_which_the_namespace_knows_it() -> None:
    assert read("T/x/subscriptions/S/rules").subscription_path == "T/x/Subscriptions/S"
