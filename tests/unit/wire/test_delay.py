"""The property by which an abandoned message is to wait: where it is looked for, and which values count."""

from __future__ import annotations

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire import delay, outgoing
from twinbus.wire import message as wire_message


def delivered(properties: dict[str, object] | None = None, body: bytes = b"body") -> Delivered:
    payload = outgoing.build(body, message_id="m", properties=properties)
    [incoming] = wire_message.read(payload, 0, ttl_ceiling_ms=None, new_id=lambda: "new")
    return Delivered(1, incoming.record, "m", 0, 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1_000),
        (0.25, 250),
        (86_400, 86_400_000),
        ("PT90S", 90_000),
        ("P1D", 86_400_000),
        (0, None),
        (-5, None),
        (86_401, None),
        ("P2D", None),
        ("PT0S", None),
        ("soon", None),
        (True, None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_seconds_and_durations_up_to_a_day_count(value: object, expected: int | None) -> None:
    assert delay.own_ms(delivered({delay.PROPERTY: value})) == (expected or 0)
    if expected is None:
        with pytest.raises(BusError) as refused:
            delay.take_ms({delay.PROPERTY: value})
        assert refused.value.fault is Fault.ARGUMENT
    else:
        assert delay.take_ms({delay.PROPERTY: value}) == expected


def test_what_an_abandon_says_is_taken_out_of_its_changes() -> None:
    changes = {delay.PROPERTY: 5, "tried": 1}
    assert delay.take_ms(changes) == 5_000
    assert changes == {"tried": 1}
    assert delay.take_ms(changes) == 0


def test_an_overlay_stands_for_the_messages_own_properties() -> None:
    message = delivered({"a": 1})
    assert delay.own_ms(message) == 0
    overlay = wire_message.merge_properties(message.record, None, {delay.PROPERTY: 2})
    changed = message._replace(overlay=overlay)
    assert delay.own_ms(changed) == 2_000


def test_a_body_is_no_property() -> None:
    assert delay.own_ms(delivered(body=delay.PROPERTY.encode())) == 0
