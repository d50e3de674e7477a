"""The table of statuses, and the error document."""

from __future__ import annotations

import pytest

from twinbus.admin.faults import ANSWERS, Answer, HttpError, error_document
from twinbus.model.errors import FACTS, Fault
from twinbus.wire.markup import parse

# What azure-core tries again without being told (azure.core.pipeline.policies.RetryPolicy).
RETRIED = {408, 429, 500, 502, 503, 504}


def test_every_fault_has_an_answer() -> None:
    assert set(ANSWERS) == set(Fault)


def test_a_subcode_refines_its_status() -> None:
    assert [fault for fault, answer in ANSWERS.items() if answer.subcode // 100 != answer.status] == []


@pytest.mark.parametrize("fault", [fault for fault in Fault if not FACTS[fault].transient])
def test_clients_do_not_repeat_what_cannot_help(fault: Fault) -> None:
    assert ANSWERS[fault].status not in RETRIED


def test_what_the_javascript_client_takes_for_an_invalid_operation_and_for_a_quota() -> None:
    assert ANSWERS[Fault.NOT_ALLOWED] == Answer(403, 40301)
    assert ANSWERS[Fault.QUOTA_EXCEEDED] == Answer(403, 40300)


def test_the_document_has_a_code_and_a_detail_that_can_be_found_again() -> None:
    text = error_document(ANSWERS[Fault.ENTITY_NOT_FOUND], "No <queue>.", "t-1", "bus:q", "2024-01-01T00:00:00Z")
    root = parse(text.encode())
    assert root.name == "Error"
    assert [(child.name, child.text) for child in root.children] == [
        ("Code", "404"),
        (
            "Detail",
            "SubCode=40400. No <queue>. TrackingId:t-1, SystemTracker:bus:q, Timestamp:2024-01-01T00:00:00Z",
        ),
    ]


def test_a_long_text_is_cut() -> None:
    assert len(error_document(Answer(400, 40000), "x" * 100_000, "t", "y" * 100_000, "now")) < 3_000


def test_a_fault_of_http_has_its_status() -> None:
    assert HttpError(412, "no").answer == Answer(412, 41200)
