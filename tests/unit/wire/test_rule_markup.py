"""Rule descriptions and their typed values as XML, both ways."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.model.errors import BusError, Fault
from twinbus.rules.description import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.wire import rule_markup as rules
from twinbus.wire import rule_values as values
from twinbus.wire.markup import INSTANCE, SERVICE_BUS, Element, parse

VALUES: dict[str, Any] = {
    "text": ' <&"> é\r\n',
    "empty": "",
    "int": -7,
    "long": 2**40,
    "double": 2.0,
    "infinite": -math.inf,
    "yes": True,
    "instant": datetime(2024, 2, 29, 12, 30, 15, 250_000, UTC),
    "local": datetime(2024, 2, 29, 12, 30),
    "span": timedelta(days=1, seconds=2.5),
    "back": timedelta(seconds=-2.5),
    "id": UUID(int=5),
    "decimal": Decimal("1.50"),
    "binary": b"\x00\xff",
    "nothing": None,
}


def element(inside: str) -> Element:
    text = f'<RuleDescription xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inside}</RuleDescription>'
    return parse(text.encode())


def pair(kind: str, text: str, key: str = "k") -> str:
    return (
        f"<KeyValueOfstringanyType><Key>{key}</Key>"
        f'<Value xmlns:l28="http://www.w3.org/2001/XMLSchema" i:type="l28:{kind}">{text}</Value>'
        "</KeyValueOfstringanyType>"
    )


def read_pairs(inside: str) -> dict[str, Any]:
    return values.read(element(inside))


def filter_of(inside: str, kind: str) -> str:
    return f'<Filter i:type="{kind}">{inside}</Filter>'


class TestRules:
    @pytest.mark.parametrize(
        "rule",
        [
            RuleDescription("$Default", TrueFilter()),
            RuleDescription("r", FalseFilter()),
            RuleDescription("r", SqlFilter(" a = 'x  y' AND b < @p", VALUES), SqlAction("SET a = @p", VALUES)),
            RuleDescription("r", CorrelationFilter(properties=VALUES)),
            RuleDescription(
                "r",
                CorrelationFilter(
                    correlation_id="1",
                    message_id="2",
                    to="3",
                    reply_to="4",
                    subject="5",
                    session_id="6",
                    reply_to_session_id="7",
                    content_type="",
                ),
            ),
        ],
    )
    def test_survive_being_written_and_read(self, rule: RuleDescription) -> None:
        assert rules.read_at(parse(rules.write(rule).encode()), rule.name) == rule

    def test_are_written_as_the_javascript_client_needs_them(self) -> None:
        text = rules.write(RuleDescription("r", TrueFilter(), None, 1_700_000_000_123))
        assert text == (
            f'<RuleDescription xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">'
            '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>'
            "<CompatibilityLevel>20</CompatibilityLevel><RequiresPreprocessing>true</RequiresPreprocessing></Filter>"
            '<Action i:type="EmptyRuleAction"/><CreatedAt>2023-11-14T22:13:20.123Z</CreatedAt>'
            "<Name>r</Name></RuleDescription>"
        )
        assert "<SqlExpression>1=0<" in rules.write(RuleDescription("r", FalseFilter()))

    def test_of_the_address_have_its_spelling_and_may_leave_their_own_name_out(self) -> None:
        name = "<Name>RULE</Name>"
        assert rules.read_at(element(filter_of("", "TrueFilter") + name), "Rule").name == "Rule"
        assert rules.read_at(element(filter_of("", "TrueFilter")), "Rule").name == "Rule"

    def test_are_read_whatever_prefixes_the_types_have(self) -> None:
        inside = (
            f'<Filter xmlns:p4="{INSTANCE}" p4:type="q:SqlFilter" xmlns:q="{SERVICE_BUS}">'
            "<SqlExpression>1=1</SqlExpression></Filter>"
        )
        assert rules.read_at(element(inside), "r") == RuleDescription("r", SqlFilter("1=1"))

    @pytest.mark.parametrize(
        ("inside", "words"),
        [
            ("", "no Filter"),
            ("<Filter/>", "type of a Filter"),
            (filter_of("", "DateFilter"), "type of a Filter"),
            (filter_of("", "SqlFilter"), "no SqlExpression"),
            (filter_of("", "TrueFilter") + "<Action/>", "type of an Action"),
            (filter_of("", "TrueFilter") + '<Action i:type="SqlRuleAction"/>', "no SqlExpression"),
            (filter_of("", "TrueFilter") * 2, "Filter occurs twice"),
            (filter_of("", "TrueFilter") + "<Name>other</Name>", "'other'"),
            (filter_of("<Properties><Other/></Properties>", "CorrelationFilter"), "KeyValueOfstringanyType"),
        ],
    )
    def test_that_cannot_be_are_refused(self, inside: str, words: str) -> None:
        with pytest.raises(BusError, match=words) as refused:
            rules.read_at(element(inside), "r")
        assert refused.value.fault is Fault.ARGUMENT


class TestValues:
    def test_survive_being_written_and_read_with_their_types(self) -> None:
        again = read_pairs(values.write(VALUES))
        assert again == VALUES
        assert {name: type(value) for name, value in again.items()} == {name: type(v) for name, v in VALUES.items()}

    @given(
        st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1),
            st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False)
            | st.booleans()
            | st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
            | st.datetimes(timezones=st.just(UTC)),
        )
    )
    def test_of_any_kind_survive(self, given_values: dict[str, Any]) -> None:
        assert read_pairs(values.write(given_values)) == given_values

    @pytest.mark.parametrize(
        ("value", "spelt"),
        [
            (2**31 - 1, "int"),
            (2**31, "long"),
            (-(2**31), "int"),
            (-(2**31) - 1, "long"),
            (1.0, "double"),
            (True, "boolean"),
            ("x", "string"),
            (datetime(2024, 1, 1, tzinfo=UTC), "dateTime"),
            (timedelta(1), "duration"),
        ],
    )
    def test_have_a_prefix_of_four_characters_and_the_type_of_the_schema(self, value: Any, spelt: str) -> None:
        assert f' i:type="d6p1:{spelt}">' in values.write({"k": value})

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            ("double", "7", 7.0),
            ("double", "INF", math.inf),
            ("double", "-Infinity", -math.inf),
            ("double", "1e-7", 1e-7),
            ("boolean", "True", True),
            ("boolean", "0", False),
            ("int", " 5 ", 5),
            ("int", "-3000000000", -3_000_000_000),  # As the Python client words it.
            ("dateTime", "2024-01-01T00:00:00.1234567Z", datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)),
            ("dateTime", "2024-01-01T02:00:00+02:00", datetime(2024, 1, 1, tzinfo=UTC)),
            ("duration", "-PT1M", timedelta(minutes=-1)),
        ],
    )
    def test_are_read_as_clients_spell_them(self, kind: str, text: str, value: Any) -> None:
        assert read_pairs(pair(kind, text)) == {"k": value}

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ("", "x"),
            ("anyType", "x"),
            ("int", "1.5"),
            ("int", ""),
            ("int", "٣"),
            ("long", "9" * 20),
            ("double", "1_0"),
            ("double", "one"),
            ("double", "1" * 900_000 + "x"),
            ("decimal", "1" * 65),
            ("decimal", "NaN"),
            ("boolean", "yes"),
            ("dateTime", "2024-01-01"),
            ("dateTime", "2024-02-30T00:00:00Z"),
            ("dateTime", "0001-01-01T00:00:00+01:00"),
            ("duration", "1 day"),
            ("guid", "x"),
            ("base64Binary", "*"),
        ],
    )
    def test_that_are_not_of_their_type_are_refused(self, kind: str, text: str) -> None:
        with pytest.raises(BusError, match="The value of 'k'") as refused:
            read_pairs(pair(kind, text))
        assert refused.value.fault is Fault.ARGUMENT
        assert len(refused.value.text) < 300

    @pytest.mark.parametrize(
        "inside",
        [
            pair("int", "1") * 2,
            "<KeyValueOfstringanyType><Key>k</Key></KeyValueOfstringanyType>",
            "<KeyValueOfstringanyType><Value>k</Value></KeyValueOfstringanyType>",
            "<Other/>",
        ],
    )
    def test_without_a_key_of_their_own_are_refused(self, inside: str) -> None:
        with pytest.raises(BusError) as refused:
            read_pairs(inside)
        assert refused.value.fault is Fault.ARGUMENT
