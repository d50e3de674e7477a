"""What a condition says about trying again."""

from __future__ import annotations

import pytest

from twinbus.amqp.performatives import Error
from twinbus.client import ClientError
from twinbus.client.errors import CONNECTION_LOST, NOT_TAKEN, UNREACHABLE, from_peer, is_refusal, of_several


@pytest.mark.parametrize(
    ("condition", "transient", "definite"),
    [
        ("com.microsoft:server-busy", True, True),
        ("amqp:link:message-size-exceeded", False, True),
        ("amqp:internal-error", True, False),
        ("com.microsoft:message-lock-lost", False, True),
        (UNREACHABLE, True, True),
        (CONNECTION_LOST, True, False),
        (NOT_TAKEN, True, True),
        ("x:nobody-knows", True, False),
    ],
)
def test_a_condition_answers_both_questions(condition: str, transient: bool, definite: bool) -> None:
    error = ClientError(condition, "text")
    assert (error.transient, error.definite) == (transient, definite)
    assert str(error) == f"{condition}: text"


def test_a_peer_without_an_error_gets_our_words() -> None:
    assert from_peer(None, CONNECTION_LOST, "it hung up").text == "it hung up"
    assert from_peer(Error("amqp:not-found", "no such queue"), CONNECTION_LOST, "").text == "no such queue"


def test_several_failures_are_definite_and_transient_only_together() -> None:
    busy, unknown = ClientError("com.microsoft:server-busy", "busy"), ClientError(CONNECTION_LOST, "lost")
    error = of_several({3: unknown, 1: busy}, 5)
    assert list(error.failed) == [1, 3]
    assert error.condition == "com.microsoft:server-busy"
    assert error.text == "2 of 5 failed, the first with: busy"
    assert (error.transient, error.definite) == (True, False)
    assert of_several({0: busy}, 1).text == "busy"


@pytest.mark.parametrize(
    ("condition", "is_final"),
    [
        ("com.microsoft:entity-disabled", False),
        ("amqp:unauthorized-access", False),
        ("amqp:resource-limit-exceeded", False),
        ("com.microsoft:server-busy", False),
        (CONNECTION_LOST, False),
        (NOT_TAKEN, False),
        ("x:nobody-knows", False),
        ("amqp:not-found", True),
        ("amqp:link:message-size-exceeded", True),
    ],
)
def test_a_refusal_is_what_no_waiting_and_no_operator_changes(condition: str, is_final: bool) -> None:
    assert is_refusal(ClientError(condition, "")) is is_final
