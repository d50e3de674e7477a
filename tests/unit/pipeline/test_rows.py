"""Messages as rows, and rows as messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.messages import build, read
from twinbus.pipeline import rows
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.rows import COLUMNS, RowMaker, payload_of

TEXT = st.none() | st.text(min_size=1, max_size=20)


def as_row(payload: bytes) -> dict[str, Any]:
    return dict(zip(COLUMNS, rows.row(payload, "orders", "contoso", 5_000), strict=True))


def test_every_column_has_a_value_and_a_type() -> None:
    assert len(rows.row(build(b"x"), "q", "n", None)) == len(COLUMNS)
    assert rows.ddl(payload=True) == f"{rows.ddl()}, `payload` BINARY"
    assert "`to` STRING" in rows.ddl()


@given(
    st.fixed_dictionaries(
        {
            "body": st.binary(max_size=50),
            "messageId": TEXT,
            "sessionId": TEXT,
            "partitionKey": TEXT,
            "subject": TEXT,
            "contentType": st.none() | st.just("application/json"),
            "correlationId": TEXT,
            "to": TEXT,
            "replyTo": TEXT,
            "replyToSessionId": TEXT,
            "timeToLive": st.none() | st.integers(0, 2**32 - 1),
            "scheduledEnqueueTime": st.none()
            | st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
                lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
            ),
            "properties": st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9), max_size=3),
        }
    )
)
def test_a_row_that_is_sent_is_the_row_that_is_read(values: dict[str, Any]) -> None:
    found = as_row(payload_of(values))
    assert {name: found[name] for name in values} == values


def test_properties_become_texts() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    payload = build(b"", properties={"n": 5, "f": 1.5, "b": True, "t": "x", "none": None, "raw": b"\x01"})
    assert as_row(payload)["properties"] == {
        "n": "5", "f": "1.5", "b": "true", "t": "x", "none": None, "raw": "01",
    }  # fmt: skip
    assert rows._text(at) == "2026-01-02T00:00:00+00:00"


def test_the_mark_of_a_claim_is_nobodys_business() -> None:
    assert as_row(build(b"", properties={rows.CLAIM: "me", "a": "b"}))["properties"] == {"a": "b"}


def test_the_path_of_a_diverted_message_is_a_column() -> None:
    assert as_row(build(b"", properties={"x-ms-path": "orders"}))["path"] == "orders"


@pytest.mark.parametrize(
    ("body", "told"), [(b"\xff", b"\xff"), ("é", "é".encode()), ({"a": [1, None]}, b'{"a": [1, null]}')]
)
def test_a_body_is_bytes_whatever_it_was(body: object, told: bytes) -> None:
    assert rows.body_bytes(body) == told


def test_a_text_column_may_be_the_body() -> None:
    assert read(payload_of({"body": "é"})).body == "é".encode()
    assert read(payload_of({})).body == b""


def test_with_a_payload_the_message_keeps_its_types() -> None:
    original = build(b"x", message_id="m", properties={"n": 5})
    assert read(payload_of({"payload": original, "messageId": "m", "body": b"ignored"})).properties == {"n": 5}
    assert read(payload_of({"payload": original, "messageId": "other"})).message_id == "other"


def test_a_time_to_live_below_nothing_is_refused() -> None:
    with pytest.raises(PipelineError, match="less than nothing"):
        payload_of({"timeToLive": -1})


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    make = RowMaker({"messageId": "string", "body": "binary"})
    assert make(build(b"x", message_id="m"), "q", "n", None) == ("m", b"x")


def test_columns_that_cannot_be_had_are_told() -> None:
    with pytest.raises(PipelineError, match="has no column 'colour'"):
        RowMaker({"colour": "string"})
    with pytest.raises(PipelineError, match="'body' is binary, not string"):
        RowMaker({"body": "string"})
    assert RowMaker({"properties": "map<string,string>"})
