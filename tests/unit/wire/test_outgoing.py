"""Messages that our own client builds, as others read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twinbus.amqp.types import Int
from twinbus.model.message import Incoming
from twinbus.wire.message import BATCH_FORMAT, bare_message, read
from twinbus.wire.outgoing import batch, build


def test_everything_at_once(proton: Any) -> None:
    message = proton.Message()
    message.decode(
        build(
            b"x" * 300,
            message_id="m",
            session_id="s",
            subject="subject",
            correlation_id="c",
            content_type="text/plain",
            ttl_ms=5000,
            due_at_ms=1_700_000_000_000,
            partition_key="p",
            properties={"a": Int(1), "b": "two"},
        )
    )
    assert message.body == b"x" * 300
    assert (message.id, message.group_id, message.subject, message.correlation_id) == ("m", "s", "subject", "c")
    assert message.content_type == "text/plain"
    assert message.ttl == 5.0
    assert message.annotations == {
        "x-opt-scheduled-enqueue-time": 1_700_000_000_000,
        "x-opt-partition-key": "p",
    }
    assert message.properties == {"a": 1, "b": "two"}


@pytest.mark.parametrize("options", [{}, {"message_id": "m"}, {"session_id": "s"}, {"properties": {}}])
def test_the_official_client_reads_it(azure_decode: Callable[[bytes], Any], options: dict[str, Any]) -> None:
    message = azure_decode(build(b"body", **options))
    assert message.data == [b"body"]
    if "message_id" in options:
        assert message.properties.message_id == b"m"


def test_a_batch_is_read_message_by_message(read_one: Callable[..., Incoming]) -> None:
    messages = [build(b"x" * size, message_id=str(size)) for size in (0, 10, 1000)]
    incoming = read(batch(messages), BATCH_FORMAT, ttl_ceiling_ms=None, new_id=lambda: "")
    assert incoming == [read_one(message) for message in messages]
    assert [bare_message(one.record) for one in incoming] == messages
