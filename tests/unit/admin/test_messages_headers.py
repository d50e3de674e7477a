"""Application properties as headers: which type a value has, what is nobody's property, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.admin.messages_headers import headers_of, http_date, instant_of, is_reserved, properties_in
from twinbus.model.errors import BusError, Fault
from twinbus.wire.brokered import Instant

NOVEMBER_1994 = 784_111_777_000

VALUES: list[tuple[str, Any]] = [
    ('"High"', "High"),
    ('""', ""),
    ('"12345,ABC"', "12345,ABC"),
    ('"say \\"hello\\""', 'say "hello"'),
    ('"C:\\new"', "C:\\new"),
    ('"true"', "true"),
    ('"7"', "7"),
    ('"größer"', "größer"),
    ("true", True),
    ("false", False),
    ("0", 0),
    ("-42", -42),
    ("+7", 7),
    ("9223372036854775807", 2**63 - 1),
    ("9223372036854775808", 2.0**63),
    ("299.98", 299.98),
    ("1e3", 1000.0),
    (".5", 0.5),
    ('"Sun, 06 Nov 1994 08:49:37 GMT"', Instant(NOVEMBER_1994)),
    ('"Sun, 06 Nov 1994 08:49:37 CET"', "Sun, 06 Nov 1994 08:49:37 CET"),
    ('"Sun, 31 Feb 2021 08:49:37 GMT"', "Sun, 31 Feb 2021 08:49:37 GMT"),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_the_form_of_a_value_tells_its_type(text: str, value: Any) -> None:
    (found,) = properties_in([("prop", text)]).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["High", "True", "", '"', '"open', "1,5", "0x10", "NaN", "inf", "1e999", "1_000", "\udcff"]
)
def test_a_value_without_a_type_is_refused_in_a_sentence_that_names_the_header(text: str) -> None:
    with pytest.raises(BusError, match="Priority") as refused:
        properties_in([("Priority", text)])
    assert refused.value.fault is Fault.ARGUMENT


def test_headers_of_http_of_clients_and_of_proxies_are_no_properties() -> None:
    sent = ["Host", "User-Agent", "accept", "Content-Type", "BrokerProperties", "Authorization", "X-Forwarded-For"]
    sent += ["Sec-Fetch-Mode", "traceparent", "x-ms-retrypolicy", "Proxy-Connection", "Expect"]
    assert properties_in([(name, "whatever it is") for name in sent]) == {}


def test_names_keep_their_case_and_one_that_occurs_twice_is_refused() -> None:
    assert properties_in([("Priority", "1"), ("x-ms-path", '"q"')]) == {"Priority": 1, "x-ms-path": "q"}
    with pytest.raises(BusError, match="twice"):
        properties_in([("Priority", "1"), ("Priority", "2")])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("High", '"High"'),
        ('a "b"', '"a \\"b\\""'),
        ("two\r\nSet-Cookie: lines", '"two  Set-Cookie: lines"'),
        (True, "true"),
        (False, "false"),
        (-7, "-7"),
        (2.5, "2.5"),
        (float("inf"), '"inf"'),
        (Instant(NOVEMBER_1994), '"Sun, 06 Nov 1994 08:49:37 GMT"'),
        (Instant(2**62), str(2**62)),
    ],
)
def test_a_value_is_written_in_the_form_of_its_type(value: Any, text: str) -> None:
    assert list(headers_of({"prop": value})) == [("prop", text)]


@pytest.mark.parametrize("name", ["", "two words", "naïve", "a:b", "Content-Length", "location", "a\r\nb"])
def test_a_name_that_no_header_can_have_is_left_out(name: str) -> None:
    assert list(headers_of({name: 1, "kept": 2})) == [("kept", "2")]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_what_was_read_is_written_so_that_it_reads_the_same(text: str, value: Any) -> None:
    ((_, written),) = headers_of({"prop": value})
    assert properties_in([("prop", written)]) == {"prop": value}


def test_dates_are_those_of_http_whatever_the_year() -> None:
    for instant_ms in (0, 951_782_400_000, NOVEMBER_1994, 253_402_300_799_000):
        assert instant_of(http_date(instant_ms)) == instant_ms
    assert http_date(0) == "Thu, 01 Jan 1970 00:00:00 GMT"


def test_priority_is_a_property_although_http_knows_such_a_header() -> None:
    assert not is_reserved("Priority")
