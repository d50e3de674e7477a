"""Whatever a REST client puts into headers and JSON is a message or a refusal, and never the broker's failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from twinbus.admin.messages_headers import headers_of, is_reserved, properties_in
from twinbus.admin.messages_json import NewMessage, batch_in, broker_properties_in, broker_properties_of
from twinbus.admin.messages_paths import read as read_target
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire import brokered
from twinbus.wire import message as wire_message

NOW_MS = 1_700_000_000_000
NAMES = [
    "ContentType",
    "CorrelationId",
    "DeliveryCount",
    "Label",
    "LockToken",
    "MessageId",
    "PartitionKey",
    "ReplyTo",
    "ReplyToSessionId",
    "ScheduledEnqueueTimeUtc",
    "SessionId",
    "TimeToLive",
    "TimeToLiveTimeSpan",
    "To",
    "ViaPartitionKey",
]
REFUSALS = {Fault.ARGUMENT, Fault.DECODE}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("1.02:03:04"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
system = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), anything, max_size=6)
# What an HTTP parser lets through: bytes that are not UTF-8 come as half surrogates.
header_text = st.text(st.characters(exclude_characters="\r\n\0"), max_size=40)
header_value = header_text | header_text.map('"{}"'.format) | st.integers().map(str) | st.floats().map(str)
token = st.text("abcXYZ019-_!~", min_size=1, max_size=12)


def unless_refused(read: Callable[..., Any], *given: Any) -> Any:
    """What was read; None if that was refused in one of the ways in which bad input is."""
    try:
        return read(*given)
    except BusError as error:
        if error.fault not in REFUSALS:
            raise
        return None


def stored(message: NewMessage) -> Delivered | None:
    """The message as a receiver gets it; None if a rule of the wire refuses it."""
    payload = unless_refused(brokered.encode, message.body, message.system, message.user, NOW_MS)
    unit = payload and unless_refused(partial(wire_message.read, ttl_ceiling_ms=None, new_id=lambda: "new"), payload, 0)
    if unit is None:
        return None
    (incoming,) = unit
    return Delivered(1, incoming.record, incoming.message_id, 0, NOW_MS, token=bytes(16), locked_until_ms=NOW_MS)


def told(delivered: Delivered) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """What a receiver is told: JSON in ASCII, and headers of one line each."""
    received = brokered.read(delivered)
    text = broker_properties_of(delivered, received)
    headers = list(headers_of(received.user))
    assert text.isascii()
    assert text.isprintable()
    for name, value in headers:
        assert name.isascii()
        assert not set(value) & set("\r\n\0")
        value.encode()
    return json.loads(text), headers


@given(st.text(st.characters()) | system.map(json.dumps) | anything.map(json.dumps))
def test_any_broker_properties_are_read_or_refused(text: str) -> None:
    read = unless_refused(broker_properties_in, text)
    delivered = None if read is None else stored(NewMessage(b"", read, {}))
    if delivered is not None:
        found, _ = told(delivered)
        texts = {name: value for name, value in read.items() if isinstance(value, str) and name != "ContentType"}
        assert texts.items() <= found.items()


@given(st.binary() | st.lists(st.fixed_dictionaries({}, optional={
    "Body": anything, "BrokerProperties": system | anything,
    "UserProperties": st.dictionaries(st.text(st.characters(), max_size=5), anything, max_size=3) | anything,
}), max_size=3).map(json.dumps).map(str.encode))  # fmt: skip
def test_any_batch_is_read_or_refused(body: bytes) -> None:
    for message in unless_refused(batch_in, body) or []:
        delivered = stored(message)
        if delivered is not None:
            told(delivered)
            assert brokered.read(delivered).body == message.body


@given(st.lists(st.tuples(token, header_value), max_size=5))
def test_any_headers_are_properties_or_refused_and_properties_come_back(headers: list[tuple[str, str]]) -> None:
    user = unless_refused(properties_in, headers)
    if user is None:
        return
    assert user.keys() == {name for name, _ in headers if not is_reserved(name)}
    delivered = stored(NewMessage(b"", {}, user))
    if delivered is not None:
        _, shown = told(delivered)
        again = properties_in(shown)
        plain = {name: value for name, value in user.items() if not isinstance(value, str) or value.isprintable()}
        assert {name: again[name] for name in plain} == plain


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]), st.lists(st.text(max_size=8) | st.just("messages"), max_size=6)
)
def test_any_path_is_read_or_refused(method: str, segments: list[str]) -> None:
    target = unless_refused(read_target, method, "/" + "/".join(segments), lambda path: False)
    if target is not None:
        assert method in target.place.value
        unless_refused(lambda: target.address)
