"""Faults on the wire, and what the official client makes of them."""

from __future__ import annotations

import logging

import pytest
from azure.servicebus import exceptions
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from twinbus.amqp.composite import encode_composite
from twinbus.model.errors import BusError, Fault
from twinbus.wire.conditions import (
    CONDITIONS,
    condition_of,
    describe,
    entity_not_found,
    management_status,
    to_error,
)

NOW_MS = 1_700_000_000_123


def test_every_fault_has_a_condition() -> None:
    assert CONDITIONS.keys() == set(Fault)


@pytest.mark.parametrize(
    ("fault", "condition", "status"),
    [
        (Fault.LOCK_LOST, "com.microsoft:message-lock-lost", 410),
        (Fault.SESSION_LOCK_LOST, "com.microsoft:session-lock-lost", 410),
        (Fault.SESSION_HELD, "com.microsoft:session-cannot-be-locked", 409),
        (Fault.MESSAGE_NOT_FOUND, "com.microsoft:message-not-found", 404),
        (Fault.ENTITY_NOT_FOUND, "amqp:not-found", 404),
        (Fault.MESSAGE_TOO_LARGE, "amqp:link:message-size-exceeded", 413),
        (Fault.QUOTA_EXCEEDED, "amqp:resource-limit-exceeded", 403),
        (Fault.SERVER_BUSY, "com.microsoft:server-busy", 503),
        (Fault.TIMEOUT, "com.microsoft:timeout", 408),
        (Fault.UNAUTHORIZED, "amqp:unauthorized-access", 401),
    ],
)
def test_conditions_the_clients_know(fault: Fault, condition: str, status: int) -> None:
    assert condition_of(fault) == condition
    assert management_status(fault) == status


def test_a_description_can_be_found_in_the_log() -> None:
    full = BusError(Fault.QUOTA_EXCEEDED, "The queue is full.")
    error = to_error(full, "t-1", namespace="ns", entity="q", now_ms=NOW_MS)
    assert error.condition == "amqp:resource-limit-exceeded"
    assert error.description == ("The queue is full. TrackingId:t-1, SystemTracker:ns:q, Timestamp:2023-11-14T22:13:20")


@pytest.mark.parametrize("error", [BusError(Fault.ENTITY_NOT_FOUND, "No such thing."), entity_not_found("ns", "q")])
def test_a_missing_entity_is_told_in_the_phrase_that_clients_match(error: BusError) -> None:
    text = describe(error, "t-1", namespace="ns", entity="q", now_ms=NOW_MS)
    assert text.startswith("The messaging entity 'sb://ns/q' could not be found. TrackingId:t-1")


def test_an_error_is_written_with_all_three_fields() -> None:
    error = to_error(BusError(Fault.INTERNAL, "Oh."), "t", namespace="n", entity="e", now_ms=NOW_MS)
    encoded = encode_composite(error)
    assert encoded[:4] == b"\x00\x53\x1d\xc0"
    assert encoded[5] == 3
    assert encoded.endswith(b"\x40")


@pytest.mark.parametrize(
    ("fault", "exception"),
    [
        (Fault.LOCK_LOST, exceptions.MessageLockLostError),
        (Fault.SESSION_LOCK_LOST, exceptions.SessionLockLostError),
        (Fault.SESSION_HELD, exceptions.SessionCannotBeLockedError),
        (Fault.MESSAGE_NOT_FOUND, exceptions.MessageNotFoundError),
        (Fault.ENTITY_NOT_FOUND, exceptions.MessagingEntityNotFoundError),
        (Fault.ENTITY_DISABLED, exceptions.MessagingEntityDisabledError),
        (Fault.ENTITY_EXISTS, exceptions.MessagingEntityAlreadyExistsError),
        (Fault.MESSAGE_TOO_LARGE, exceptions.MessageSizeExceededError),
        (Fault.QUOTA_EXCEEDED, exceptions.ServiceBusQuotaExceededError),
        (Fault.SERVER_BUSY, exceptions.ServiceBusServerBusyError),
        (Fault.TIMEOUT, exceptions.OperationTimeoutError),
        (Fault.UNAUTHORIZED, exceptions.ServiceBusAuthorizationError),
        (Fault.AUTHENTICATION_FAILED, exceptions.ServiceBusAuthorizationError),
    ],
)
def test_the_official_client_raises_its_own_exception(
    fault: Fault, exception: type[exceptions.ServiceBusError]
) -> None:
    raised = PyamqpTransport.create_servicebus_exception(
        logging.getLogger(__name__), AMQPException(condition_of(fault).encode(), description="description")
    )
    assert type(raised) is exception
