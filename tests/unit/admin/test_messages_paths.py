"""Which requests are about messages, and which entity and message they mean."""

from __future__ import annotations

from uuid import UUID

import pytest

from twinbus.admin.faults import HttpError
from twinbus.admin.messages_paths import MessageTarget, Place, read
from twinbus.model.address import Address, SubQueue
from twinbus.model.errors import BusError

LOCK = UUID("7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547")


def target(method: str, path: str, *entities: str) -> MessageTarget | None:
    return read(method, path, lambda name: name in entities)


@pytest.mark.parametrize(
    ("method", "path", "place", "address"),
    [
        ("POST", "/q/messages", Place.MESSAGES, Address("q")),
        ("POST", "/q/Messages/", Place.MESSAGES, Address("q")),
        ("POST", "/a/b/messages", Place.MESSAGES, Address("a/b")),
        ("POST", "/a%2Fb/messages", Place.MESSAGES, Address("a/b")),
        ("POST", "/messages/messages", Place.MESSAGES, Address("messages")),
        ("POST", "/q/messages/head", Place.HEAD, Address("q")),
        ("DELETE", "/q/messages/HEAD", Place.HEAD, Address("q")),
        ("POST", "/t/subscriptions/s/messages/head", Place.HEAD, Address("t/Subscriptions/s")),
        ("DELETE", "/T/SUBSCRIPTIONS/s/messages/head", Place.HEAD, Address("T/Subscriptions/s")),
        ("POST", "/q/$DeadLetterQueue/messages/head", Place.HEAD, Address("q", SubQueue.DEAD_LETTER)),
        ("POST", "/q/%24deadletterqueue/messages/head", Place.HEAD, Address("q", SubQueue.DEAD_LETTER)),
        (
            "POST",
            "/t/subscriptions/s/$Transfer/$DeadLetterQueue/messages/head",
            Place.HEAD,
            Address("t/Subscriptions/s", SubQueue.TRANSFER_DEAD_LETTER),
        ),
        ("PUT", f"/q/messages/7/{LOCK}", Place.LOCKED, Address("q")),
        ("DELETE", f"/q/$DeadLetterQueue/messages/7/{LOCK}", Place.LOCKED, Address("q", SubQueue.DEAD_LETTER)),
    ],
)
def test_an_address_of_messages_names_an_entity_in_any_case(
    method: str, path: str, place: Place, address: Address
) -> None:
    found = target(method, path)
    assert found is not None
    assert (found.place, found.address) == (place, address)


def test_a_locked_message_is_named_by_id_or_number_and_by_its_token() -> None:
    found = target("DELETE", f"/q/messages/order%2F7%20b/{str(LOCK).upper()}")
    assert found is not None
    assert (found.message, found.token) == ("order/7 b", LOCK.bytes_le)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/q"),
        ("POST", "/messages"),
        ("POST", "/messages/head"),
        ("POST", "/q/messages/7/not-a-token"),
        ("PUT", "/q/messages"),
        ("DELETE", "/q/messages"),
        ("PUT", "/q/messages/head"),
        ("GET", "/nowhere/messages"),
    ],
)
def test_everything_else_is_administration(method: str, path: str) -> None:
    assert target(method, path) is None


def test_an_entity_with_such_a_name_is_meant_itself() -> None:
    assert target("DELETE", "/q/messages/head", "q/messages/head") is None
    assert target("GET", "/q/messages", "q", "q/messages") is None
    assert target("POST", "/q/messages", "q", "q/messages") == MessageTarget(Place.MESSAGES, "q")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PATCH", "/q/messages", ("POST",)),
        ("HEAD", "/q/messages/head", ("DELETE", "POST")),
        ("OPTIONS", f"/q/messages/7/{LOCK}", ("DELETE", "POST", "PUT")),
    ],
)
def test_another_method_at_an_entitys_messages_is_told_which_there_are(
    method: str, path: str, allow: tuple[str, ...]
) -> None:
    for exists in ("q", "nowhere", path.strip("/")):  # Strangers learn nothing from the answer.
        with pytest.raises(HttpError) as refused:
            target(method, path, exists)
        assert (refused.value.answer.status, refused.value.allow) == (405, allow)


def test_who_reads_messages_with_get_is_told_once_it_is_known_who_asks() -> None:
    assert target("GET", "/q/messages", "q") == MessageTarget(Place.MESSAGES, "q")


@pytest.mark.parametrize("path", ["/%ff/messages", "/q/messages/%ff/" + str(LOCK)])
def test_an_address_that_is_not_utf8_is_refused(path: str) -> None:
    with pytest.raises(BusError):
        target("POST", path)
