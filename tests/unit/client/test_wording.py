"""Errors in words."""

from __future__ import annotations

import pytest

from twinbus.client import ClientError
from twinbus.client.wording import explain

SENTENCE = "The messaging entity 'sb://bus/nope' could not be found."


@pytest.mark.parametrize(
    "text",
    [
        f"{SENTENCE} TrackingId:abc123, SystemTracker:bus:nope, Timestamp:2026-11-15T22:00:00",
        f"SubCode=40400. {SENTENCE} TrackingId:abc123, SystemTracker:bus:nope, Timestamp:2026-11-15T22:00:00",
        f"40400: {SENTENCE} TrackingId:abc123, SystemTracker:bus:nope, Timestamp:x",
        f"{SENTENCE}\nTrackingId:abc123, SystemTracker:bus",
    ],
)
def test_what_machines_read_is_cut_off(text: str) -> None:
    told = explain(ClientError("amqp:not-found", text))
    assert told == (SENTENCE, "Create the entity or correct its name.", "abc123")


def test_our_own_errors_become_sentences() -> None:
    told = explain(ClientError("twinbus:unreachable", "no connection to localhost:1"))
    assert told.sentence == "No connection to localhost:1."
    assert "running" in told.advice
    assert told.tracking_id is None


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert explain(ClientError("contoso:odd", "")) == ("Contoso:odd.", "", None)


def test_two_faults_of_one_condition_get_advice_for_both() -> None:
    assert explain(ClientError("amqp:unauthorized-access", "no")).advice.startswith("Check the policy")
