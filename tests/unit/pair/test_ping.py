"""What a ping is, to the letter."""

from __future__ import annotations

from twinbus.client import messages
from twinbus.pair.route import ping


def test_a_ping_is_empty_has_its_content_type_and_lives_a_second() -> None:
    sent = messages.read(ping.payload())
    assert sent.body == b""
    assert sent.content_type == "application/vnd.ms-servicebus-ping"
    assert sent.ttl_ms == 1000
    assert sent.scheduled_at_ms is None
    assert sent.properties == {}
    assert sent.message_id
    assert sent.session_id
    assert sent.partition_key is None


def test_a_ping_for_a_fragment_has_its_key() -> None:
    sent = messages.read(ping.payload("key"))
    assert (sent.session_id, sent.partition_key) == ("key", "key")


def test_a_probe_is_no_ping_and_is_due_far_ahead() -> None:
    sent = messages.read(ping.payload(None, 4_000_000_000_000))
    assert sent.body == b""
    assert sent.content_type == "application/vnd.twinbus-probe"
    assert sent.scheduled_at_ms == 4_000_000_000_000
