"""What the primary last said of an entity, and what is refused by it while the primary cannot be asked."""

from __future__ import annotations

import pytest

from twinbus.client import messages
from twinbus.client.errors import ClientError
from twinbus.pair.route.entities import Entities
from twinbus.pair.route.entity_facts import EntityFacts

PLAIN = messages.build(b"x", message_id="m")
IN_SESSION = messages.build(b"x", message_id="m", session_id="s")
NO_NAME = messages.build(b"x", message_id="m", properties={1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("facts", "payload", "condition"),
    [
        (EntityFacts(), PLAIN, None),
        (EntityFacts(), NO_NAME, "amqp:decode-error"),
        (EntityFacts(), b"\x00\x53", "amqp:decode-error"),
        (EntityFacts(message_bytes_max=len(PLAIN)), PLAIN, None),
        (EntityFacts(message_bytes_max=len(PLAIN) - 1), PLAIN, "amqp:link:message-size-exceeded"),
        (EntityFacts(requires_session=False), PLAIN, None),
        (EntityFacts(requires_session=True), PLAIN, "amqp:not-allowed"),
        (EntityFacts(requires_session=True), IN_SESSION, None),
    ],
)
def test_only_what_is_known_is_refused(facts: EntityFacts, payload: bytes, condition: str | None) -> None:
    refused = facts.refusal(payload, "q")

    assert (refused.condition if refused else None) == condition


@pytest.mark.parametrize(
    ("condition", "text", "payloads", "learnt"),
    [
        ("amqp:not-allowed", "Queue 'q' requires sessions; the message has no session id.", [PLAIN], True),
        ("amqp:not-allowed", "The SessionId was not set on a message.", [IN_SESSION, PLAIN], True),
        ("amqp:not-allowed", "The SessionId was not set on a message.", [IN_SESSION], None),
        ("amqp:not-allowed", "Something else.", [PLAIN], None),
        ("amqp:internal-error", "No session could be opened.", [PLAIN], None),
    ],
)
def test_a_refusal_teaches_that_sessions_are_required(
    condition: str, text: str, payloads: list[bytes], learnt: bool | None
) -> None:
    facts = EntityFacts()

    facts.refused(condition, text, payloads)

    assert facts.requires_session is learnt


def test_facts_are_plain_values_by_path_whatever_its_case() -> None:
    known = Entities(None)  # type: ignore[arg-type]
    known.of("Orders").message_bytes_max = 5

    assert known.of("orders").message_bytes_max == 5
    assert known.document() == {"orders": {"message_bytes_max": 5}}
    known.restore({"Orders": {"message_bytes_max": 7}, "Carts": {"partitioned": True, "unknown": 1}})
    assert known.document() == {"orders": {"message_bytes_max": 5}, "carts": {"partitioned": True}}


def test_a_message_is_checked_in_the_words_of_a_broker() -> None:
    assert messages.check(IN_SESSION) == "s"
    with pytest.raises(ClientError, match="the name of an application property is not a string"):
        messages.check(NO_NAME)
