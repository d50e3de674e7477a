"""What the first backlog queue of a name says of the primary that it belongs to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twinbus.pair.backlog.making import provisional
from twinbus.pair.backlog.signs import NOT_KNOWN, Signs


def test_an_address_without_an_id_is_a_provisional_name_until_it_is_found_out() -> None:
    signs = Signs()
    assert signs.add(NOT_KNOWN, "here:1")
    assert not signs.add(NOT_KNOWN, "here:1")
    assert (signs.id_at("here:1"), signs.ids, signs.is_provisional) == (None, set(), True)
    assert signs.add("the id", "here:1")
    assert (signs.id_at("here:1"), signs.ids, signs.is_provisional) == ("the id", {"the id"}, True)


def test_provisional_names_are_told_from_the_primaries_own() -> None:
    def queue(name: str, *ids: str) -> Any:
        signs = Signs()
        for each in ids:
            signs.add(each, "here:1")
        return SimpleNamespace(name=name, user_metadata=signs.to_text())

    queues = [
        queue("contoso/x-servicebus-transfer/0", "a"),
        queue("here-1/x-servicebus-transfer/0", NOT_KNOWN, "a"),
        queue("there-2/x-servicebus-transfer/0", NOT_KNOWN),
        queue("there-2/x-servicebus-transfer/1", NOT_KNOWN),
        queue("orders"),
    ]
    assert provisional(queues) == {"here-1": {"a"}, "there-2": set()}
