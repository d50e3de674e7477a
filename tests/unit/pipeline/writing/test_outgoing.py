"""Rows on their way out: where they go, under which id, and which are sent together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.messages import build, read
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.writing.outgoing import Encoder, Outgoing, rounds
from twinbus.pipeline.writing.sink_options import Columns


def encoder(
    *names: str, destination: str | None = "orders", column: str | None = None, origin: str = "q/0/0"
) -> Encoder:
    return Encoder(Columns(names, column), destination, origin)


def test_a_row_says_everything_about_its_message() -> None:
    due = datetime(2026, 11, 16, 3, tzinfo=UTC)
    values: dict[str, Any] = {
        "body": b"x", "messageId": "m", "sessionId": "s", "partitionKey": "s", "subject": "sub", "contentType": "t",
        "correlationId": "c", "to": "there", "replyTo": "here", "replyToSessionId": "rs", "timeToLive": 5000,
        "scheduledEnqueueTime": due, "properties": {"a": "1", "n": 2},
    }  # fmt: skip
    found = read(encoder(*values).encode(0, list(values.values())).payload)
    assert (found.body, found.message_id, found.session_id, found.partition_key) == (b"x", "m", "s", "s")
    assert (found.subject, found.content_type, found.correlation_id) == ("sub", "t", "c")
    assert (found.to, found.reply_to, found.reply_to_session_id, found.ttl_ms) == ("there", "here", "rs", 5000)
    assert found.scheduled_at_ms == int(due.timestamp() * 1000)
    assert found.properties == {"a": "1", "n": 2}


def test_what_a_broker_said_of_a_message_is_not_sent() -> None:
    found = read(encoder("body", "messageId", "sequenceNumber", "entity").encode(0, [b"x", "m", 7, "other"]).payload)
    assert (found.sequence_number, found.properties) == (0, {})


def test_the_destination_is_the_columns_or_else_the_one_for_all() -> None:
    some = encoder("body", "where", column="where")
    assert some.encode(0, [b"x", "invoices"]).path == "invoices"
    assert some.encode(1, [b"x", None]).path == "orders"


def test_a_row_that_goes_nowhere_is_named() -> None:
    with pytest.raises(PipelineError, match=r"Row 3 does not say where it goes: its column 'where' is empty"):
        encoder("body", "where", destination=None, column="where").encode(3, [b"x", None])


def test_a_row_that_is_no_message_is_named() -> None:
    with pytest.raises(PipelineError, match=r"Row 5 for 'orders' is no message: timeToLive is -1 ms"):
        encoder("body", "timeToLive").encode(5, [b"x", -1])
    with pytest.raises(PipelineError, match=r"Row 6 for 'orders' is no message: it has no body"):
        encoder("body").encode(6, [None])


def test_a_message_that_has_an_id_keeps_it() -> None:
    assert encoder("body", "messageId").encode(0, [b"x", "mine"]).message_id == "mine"
    whole = build(b"x", message_id="whole")
    assert encoder("payload").encode(0, [whole]).message_id == "whole"


def test_a_message_without_properties_gets_an_id_too() -> None:
    sent = encoder("payload").encode(0, [build(b"x")])
    assert read(sent.payload).message_id == sent.message_id != ""


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12), st.randoms(use_true_random=False))
def test_a_second_attempt_gives_the_same_ids_in_any_order(bodies: list[bytes], chance: Any) -> None:
    first = [each.message_id for each in (encoder("body").encode(n, [body]) for n, body in enumerate(bodies))]
    shuffled = list(bodies)
    chance.shuffle(shuffled)
    again = encoder("body")
    second = [again.encode(number, [body]).message_id for number, body in enumerate(shuffled)]
    assert len({*second}) == len(bodies)  # Equal rows are different messages.
    assert len(first) == len(second)
    same = encoder("body")
    assert sorted(same.encode(number, [body]).message_id for number, body in enumerate(bodies)) == sorted(second)


def test_ids_differ_between_tasks_and_batches() -> None:
    ids = {encoder("body", origin=f"q/{batch}/{task}").encode(0, [b"x"]).message_id for batch in "01" for task in "01"}
    assert len(ids) == 4


def message(row: int, path: str, size: int = 1) -> Outgoing:
    return Outgoing(row, path, str(row), b"x" * size)


def test_a_round_has_so_many_messages_and_keeps_their_order() -> None:
    found = list(rounds([message(0, "a"), message(1, "b"), message(2, "a"), message(3, "a")], 3))
    assert [{path: [each.row for each in some] for path, some in each.items()} for each in found] == [
        {"a": [0, 2], "b": [1]},
        {"a": [3]},
    ]


def test_a_round_has_so_many_bytes_but_always_a_message() -> None:
    found = list(rounds([message(0, "a", 50), message(1, "a", 8), message(2, "a", 8)], 10, bytes_max=16))
    assert [[each.row for each in one["a"]] for one in found] == [[0], [1, 2]]
