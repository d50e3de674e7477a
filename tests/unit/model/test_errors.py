"""The table of faults: complete, and consistent in what it says about retries."""

from __future__ import annotations

import pytest

from twinbus.model.errors import FACTS, BusError, Fault


def test_every_fault_has_its_facts() -> None:
    assert set(FACTS) == set(Fault)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.value)
def test_the_advice_is_a_sentence(fault: Fault) -> None:
    advice = FACTS[fault].advice
    assert advice[0].isupper()
    assert advice.endswith(".")


def test_only_these_faults_leave_it_open_whether_the_operation_happened() -> None:
    indefinite = {fault for fault, facts in FACTS.items() if not facts.definite}
    assert indefinite == {Fault.INTERNAL, Fault.STORE_UNAVAILABLE, Fault.TIMEOUT}


def test_whoever_cannot_know_the_result_may_try_again() -> None:
    assert all(facts.transient for facts in FACTS.values() if not facts.definite)


@pytest.mark.parametrize("fault", [Fault.SERVER_BUSY, Fault.ENTITY_DISABLED, Fault.SESSION_HELD])
def test_faults_that_pass_by_themselves_are_transient(fault: Fault) -> None:
    assert FACTS[fault].transient


@pytest.mark.parametrize(
    "fault",
    [Fault.LOCK_LOST, Fault.MESSAGE_TOO_LARGE, Fault.UNAUTHORIZED, Fault.ENTITY_NOT_FOUND, Fault.ARGUMENT],
)
def test_faults_that_a_retry_meets_again_are_not_transient(fault: Fault) -> None:
    assert not FACTS[fault].transient


def test_an_error_carries_its_fault_its_text_and_its_facts() -> None:
    error = BusError(Fault.LOCK_LOST, "The lock has expired.")
    assert (error.fault, error.text, str(error)) == (
        Fault.LOCK_LOST,
        "The lock has expired.",
        "The lock has expired.",
    )
    assert error.facts is FACTS[Fault.LOCK_LOST]
