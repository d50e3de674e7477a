"""The tag of a message: one definition for everybody."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.pair.ledger.tags import Kind, Tag
from twinbus.pair.sdk.messages import each, fields_of, new_batch, with_ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("message_id", Tag()),
        ("subject", Tag(Kind.SUBJECT)),
        ("property:job-id", Tag(Kind.PROPERTY, "job-id")),
    ],
)
def test_a_tag_is_named_in_one_word(text: str, expected: Tag) -> None:
    assert Tag.parse(text) == expected
    assert str(expected) == text
    assert Tag.parse(expected) is expected


@pytest.mark.parametrize("text", ["", "property:", "label", "MessageId"])
def test_what_is_no_tag_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="message_id, subject or property"):
        Tag.parse(text)


def test_the_tag_is_found_in_every_kind_of_message() -> None:
    kinds = [
        ServiceBusMessage(b"", message_id="i", subject="s", application_properties={"job": 7}),
        {"body": b"", "message_id": "i", "subject": "s", "application_properties": {"job": 7}},
        AmqpAnnotatedMessage(
            data_body=b"",
            properties=AmqpMessageProperties(message_id=b"i", subject=b"s"),
            application_properties={b"job": 7},
        ),
    ]
    for message in kinds:
        fields = fields_of(message)
        assert [Tag.parse(tag).of(*fields) for tag in ("message_id", "subject", "property:job")] == ["i", "s", "7"]


def test_a_message_without_the_field_has_no_tag() -> None:
    fields = fields_of(AmqpAnnotatedMessage(data_body=b""))
    assert [Tag.parse(tag).of(*fields) for tag in ("message_id", "subject", "property:job")] == [None, None, None]


def test_messages_without_an_id_get_one_and_others_keep_theirs() -> None:
    numbers = iter("abcdefgh")
    own = ServiceBusMessage(b"", message_id=None)
    own.message_id = None
    batch = new_batch(1000)
    batch.add_message(ServiceBusMessage(b"1", message_id="kept"))
    batch.add_message(AmqpAnnotatedMessage(data_body=b"2"))
    annotated = AmqpAnnotatedMessage(data_body=b"")

    def ids(messages: object) -> list[object]:
        return [fields_of(message)[0] for message in each(messages)]  # type: ignore[arg-type]

    assert ids(with_ids(own, lambda: next(numbers))) == ["a"]
    assert own.message_id == "a"
    assert ids(with_ids(batch, lambda: next(numbers))) == ["kept", "b"]
    assert ids(with_ids([{"body": b""}, annotated], lambda: next(numbers))) == ["c", "d"]
    assert ids(with_ids(annotated, lambda: next(numbers))) == ["d"]
