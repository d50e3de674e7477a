"""What the first backlog queue of a name says of the primary that it belongs to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twinbus.pair.backlog.making import signed
from twinbus.pair.backlog.signs import NOT_KNOWN, Signs


def test_an_address_without_an_id_is_a_provisional_name_until_it_is_found_out() -> None:
    signs = Signs()
    assert signs.add(NOT_KNOWN, "here:1")
    assert not signs.add(NOT_KNOWN, "here:1")
    assert (signs.id_at("here:1"), signs.ids, signs.is_provisional) == (None, set(), True)
    assert signs.add("the id", "here:1")
    assert (signs.id_at("here:1"), signs.ids, signs.is_provisional) == ("the id", {"the id"}, True)


def test_whose_a_name_is_is_said_by_its_first_queue() -> None:
    def queue(name: str, *signed_by: tuple[str, str]) -> Any:
        signs = Signs()
        for each, address in signed_by:
            signs.add(each, address)
        return SimpleNamespace(name=name, user_metadata=signs.to_text())

    known = signed(
        [
            queue("contoso/x-servicebus-transfer/0", ("a", "here:1")),
            queue("here-1/x-servicebus-transfer/0", (NOT_KNOWN, "here:1"), ("a", "here:1")),
            queue("there-2/x-servicebus-transfer/0", (NOT_KNOWN, "there:2")),
            queue("there-2/x-servicebus-transfer/1", (NOT_KNOWN, "there:2")),
            queue("moved/x-servicebus-transfer/0", ("c", "here:1"), ("c", "there:2")),
            queue("orders"),
        ]
    )
    assert {name for name, signs in known.items() if signs.is_provisional} == {"here-1", "there-2"}
    assert {name for name, signs in known.items() if signs.belongs("a", "elsewhere:3")} == {"here-1"}
    # Another one in the same place; but who has moved since took its messages along.
    assert {name for name, signs in known.items() if signs.belongs("b", "here:1")} == {"contoso", "here-1"}
