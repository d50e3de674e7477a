"""Names as people type them."""

from __future__ import annotations

import pytest

from twinbus.cli.address import Address, parse_address, path_of
from twinbus.cli.running import PromptError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("orders", Address("orders")),
        ("a/b.c", Address("a/b.c")),
        ("orders:audit", Address("orders", "audit")),
        ("a/b:audit:big", Address("a/b", "audit", "big")),
        ("orders/Subscriptions/audit", Address("orders", "audit")),
        ("/a/b/subscriptions/audit/", Address("a/b", "audit")),
        ("orders/Subscriptions/audit/rules/$Default", Address("orders", "audit", "$Default")),
        ("subscriptions", Address("subscriptions")),
    ],
)
def test_both_spellings_are_understood(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":", "a:", "a::b", "a:b:c:d", "a/Subscriptions", "a/Subscriptions/", "a/Subscriptions/b/c/d"]
)
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(PromptError, match="names nothing"):
        parse_address(text)


def test_an_address_has_a_path_and_a_short_form() -> None:
    assert Address("a/b", "c").path == "a/b/Subscriptions/c"
    assert Address("a/b", "c", "d").path == "a/b/Subscriptions/c"
    assert Address("a/b", "c", "d").short == "a/b:c:d"
    assert path_of("a:b", dead_letters=True) == "a/Subscriptions/b/$DeadLetterQueue"
    with pytest.raises(PromptError, match="is a rule"):
        path_of("a:b:c")
