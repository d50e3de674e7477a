"""Link addresses in every spelling that clients use."""

from __future__ import annotations

import pytest

from twinbus.model.address import Address, SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.wire.address import format_address, parse

DEAD = SubQueue.DEAD_LETTER
TRANSFER = SubQueue.TRANSFER_DEAD_LETTER


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("q", Address("q")),
        ("/q/", Address("q")),
        ("Orders/East", Address("Orders/East")),
        ("amqps://localhost/q", Address("q")),
        ("amqps://localhost:5672/q", Address("q")),
        ("amqps://ns.example.org/a/b/c", Address("a/b/c")),
        ("AMQPS://[::1]:5672/q", Address("q")),
        ("sb://ns/q/", Address("q")),
        ("amqps://h/a%2Fb", Address("a/b")),
        ("amqps://h/%c3%a4", Address("ä")),
        ("a%2Fb", Address("a%2Fb")),
        ("$cbs", Address("", cbs=True)),
        ("amqps://h/$CBS", Address("", cbs=True)),
        ("q/$management", Address("q", management=True)),
        ("q/$Management", Address("q", management=True)),
        ("q/$DeadLetterQueue", Address("q", DEAD)),
        ("q/$deadletterqueue", Address("q", DEAD)),
        ("amqps://h/q/%24DeadLetterQueue", Address("q", DEAD)),
        ("q/$DeadLetterQueue/$management", Address("q", DEAD, True)),
        ("q/$Transfer/$DeadLetterQueue", Address("q", TRANSFER)),
        ("q/$transfer/$deadletterqueue/$management", Address("q", TRANSFER, True)),
        ("t/Subscriptions/s", Address("t/Subscriptions/s")),
        ("t/subscriptions/s", Address("t/Subscriptions/s")),
        ("a/t/SUBSCRIPTIONS/s/$DeadLetterQueue", Address("a/t/Subscriptions/s", DEAD)),
        ("Subscriptions/q", Address("Subscriptions/q")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "amqps://",
        "amqps://h",
        "amqps://h/",
        "amqps:///q",
        "ftp://h/q",
        "a//b",
        " ",
        "a/ /b",
        "a\nb",
        "a\0b",
        "amqps://h/%ff",
        "amqps://h/%00",
        "$management",
        "$DeadLetterQueue",
        "$Transfer/$DeadLetterQueue",
        "q/$unknown",
        "$x/q",
        "q/$management/$management",
        "q/$DeadLetterQueue/$DeadLetterQueue",
        "q/$DeadLetterQueue/x",
        "q/$cbs",
        "q" * 1025,
    ],
)
def test_what_names_no_entity_is_an_argument_error(text: str) -> None:
    with pytest.raises(BusError) as caught:
        parse(text)
    assert caught.value.fault is Fault.ARGUMENT
    assert caught.value.text.isprintable()


@pytest.mark.parametrize(
    "address",
    [
        Address("", cbs=True),
        Address("a/b"),
        Address("q", DEAD),
        Address("q", TRANSFER, True),
        Address("t/Subscriptions/s", management=True),
    ],
)
def test_a_written_address_is_read_back(address: Address) -> None:
    assert parse(format_address(address)) == address
