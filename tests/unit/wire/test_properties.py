"""Application properties at rest: what is changed, and what must not be touched."""

from __future__ import annotations

import pytest

from twinbus.amqp.types import Int, Symbol
from twinbus.model.errors import BusError, Fault
from twinbus.wire.outgoing import build
from twinbus.wire.properties import decoded, merge, with_dead_letter

# The same numbers in wider encodings than anyone needs, and a name in the long form.
SECTION = (
    b"\x00\x53\x74\xd1\x00\x00\x00\x1b\x00\x00\x00\x04"
    + b"\xa1\x01a\x81\0\0\0\0\0\0\0\x01"
    + b"\xb1\0\0\0\x01b\x71\0\0\0\x02"
)
BARE = b"\x00\x53\x73\xc0\x04\x01\xa1\x01m" + SECTION + b"\x00\x53\x75\xa0\x01x"


def test_values_nobody_changed_keep_their_bytes() -> None:
    section = merge(BARE, None, {"c": True})
    assert SECTION[12:] + b"\xa1\x01c\x41" in section
    assert decoded(BARE, section) == {"a": 1, "b": 2, "c": True}


def test_a_changed_value_keeps_its_place() -> None:
    section = merge(BARE, None, {Symbol("a"): "new"})
    assert list(decoded(BARE, section).items()) == [("a", "new"), ("b", 2)]


def test_a_name_in_the_long_form_is_the_same_name() -> None:
    assert decoded(BARE, merge(BARE, None, {"b": Int(5)})) == {"a": 1, "b": 5}


def test_without_reasons_or_overlay_nothing_changes() -> None:
    assert with_dead_letter(BARE, None, None, None) == BARE


def test_the_other_sections_stay_where_they_are() -> None:
    bare = with_dead_letter(BARE, None, "r", None)
    assert bare.startswith(BARE[:9])
    assert bare.endswith(BARE[-6:])
    assert decoded(bare) == {"a": 1, "b": 2, "DeadLetterReason": "r"}


def test_a_message_without_properties_has_none() -> None:
    assert decoded(build(b"x", message_id="m")) == {}


@pytest.mark.parametrize("value", [object(), "x" * 70_000, Int(2**40)])
def test_a_change_that_cannot_be_carried_is_an_argument_error(value: object) -> None:
    with pytest.raises(BusError) as caught:
        merge(BARE, None, {"c": value})
    assert caught.value.fault is Fault.ARGUMENT
