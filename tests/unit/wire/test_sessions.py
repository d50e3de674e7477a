"""Session filters and grants in attach frames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus._common.utils import utc_from_timestamp

from twinbus.amqp import codec
from twinbus.amqp.types import Described, Symbol, UInt, ULong
from twinbus.model.errors import BusError, Fault
from twinbus.wire.sessions import (
    WantedSession,
    from_ticks,
    granted_filter,
    granted_properties,
    read_session_filter,
    read_timeout_ms,
    to_ticks,
)

NAME = Symbol("com.microsoft:session-filter")


@pytest.mark.parametrize(
    ("source_filter", "wanted"),
    [
        (None, None),
        ({}, None),
        ({Symbol("apache.org:selector-filter:string"): "x"}, None),
        ({NAME: "s"}, WantedSession("s")),
        ({NAME: ""}, WantedSession("")),
        ({NAME: None}, WantedSession(None)),
        ({"com.microsoft:session-filter": "s"}, WantedSession("s")),
        ({NAME: Described(NAME, "s")}, WantedSession("s")),
        ({NAME: Described(ULong(0x137000000C), None)}, WantedSession(None)),
        ({Symbol("session"): Described(ULong(0x137000000C), "s")}, WantedSession("s")),
        ({Symbol("session"): Described(NAME, "s")}, WantedSession("s")),
    ],
)
def test_a_filter_asks_for_a_session(source_filter: dict[Any, Any] | None, wanted: WantedSession | None) -> None:
    assert read_session_filter(source_filter) == wanted


@pytest.mark.parametrize("value", [5, b"s", ["s"], "s" * 129, "a\0b", Described(NAME, 5)])
def test_a_filter_that_is_no_session_id(value: Any) -> None:
    with pytest.raises(BusError) as caught:
        read_session_filter({NAME: value})
    assert caught.value.fault is Fault.ARGUMENT


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (None, {NAME: "s"}),
        ({NAME: "s"}, {NAME: "s"}),
        ({NAME: None}, {NAME: "s"}),
        ({NAME: Described(ULong(0x137000000C), None)}, {NAME: Described(ULong(0x137000000C), "s")}),
        ({Symbol("session"): Described(NAME, "s")}, {Symbol("session"): Described(NAME, "s")}),
    ],
)
def test_a_session_is_granted_in_the_form_in_which_it_was_asked_for(
    asked: dict[Any, Any] | None, granted: dict[Any, Any]
) -> None:
    answer = granted_filter("s", asked)
    assert codec.decode(codec.encode(answer))[0] == granted
    assert read_session_filter(answer) == WantedSession("s")


def test_the_official_client_reads_the_end_of_the_lock() -> None:
    locked_until = datetime(2030, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    ticks = granted_properties(int(locked_until.timestamp() * 1000))[Symbol("com.microsoft:locked-until-utc")]
    # The client's own arithmetic.
    assert utc_from_timestamp((ticks - 621355968000000000) / 10000000) == locked_until
    assert codec.encode(ticks)[0] == 0x81


@pytest.mark.parametrize("instant_ms", [0, 1, 1_700_000_000_123])
def test_ticks_there_and_back(instant_ms: int) -> None:
    assert from_ticks(to_ticks(instant_ms)) == instant_ms
    assert to_ticks(0) == 621_355_968_000_000_000
    assert datetime(1, 1, 1) + timedelta(microseconds=to_ticks(0) // 10) == datetime(1970, 1, 1)


@pytest.mark.parametrize(
    ("properties", "timeout"),
    [
        (None, None),
        ({}, None),
        ({Symbol("com.microsoft:timeout"): UInt(5000)}, 5000),
        ({Symbol("com.microsoft:timeout"): 59_500.5}, 59_500),
        ({Symbol("com.microsoft:timeout"): 0}, 0),
        ({Symbol("com.microsoft:timeout"): -1}, None),
        ({Symbol("com.microsoft:timeout"): "soon"}, None),
        ({Symbol("com.microsoft:timeout"): True}, None),
        ({Symbol("com.microsoft:timeout"): float("nan")}, None),
    ],
)
def test_how_long_a_receiver_waits(properties: dict[Any, Any] | None, timeout: int | None) -> None:
    assert read_timeout_ms(properties) == timeout
