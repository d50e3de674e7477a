"""Which exception is which kind of failure, and which kinds count under which preset."""

from __future__ import annotations

import pytest
from azure.servicebus import exceptions as sdk_errors
from azure.servicebus._pyamqp.error import AMQPException

from twinbus.client.errors import ClientError
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.route import failures
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.route.presets import PRESETS
from twinbus.pair.sdk import messages as sdk


def refused(condition: str) -> sdk_errors.ServiceBusError:
    """As the SDK raises what a broker says of a message: the general error, with the AMQP one inside."""
    problem = AMQPException(condition.encode())
    return sdk_errors.ServiceBusError("refused", error=problem, condition=condition.encode(), retryable=True)


ERRORS = [
    (sdk_errors.OperationTimeoutError(), Failure.TIMEOUT),
    (sdk_errors.ServiceBusConnectionError(), Failure.TRANSIENT),
    (sdk_errors.ServiceBusCommunicationError(), Failure.TRANSIENT),
    (sdk_errors.ServiceBusServerBusyError(), Failure.BUSY),
    (sdk_errors.ServiceBusAuthenticationError(), Failure.UNAUTHORIZED),
    (sdk_errors.ServiceBusAuthorizationError(), Failure.UNAUTHORIZED),
    (sdk_errors.ServiceBusQuotaExceededError(), Failure.FULL),
    (sdk_errors.MessagingEntityNotFoundError(), Failure.PERMANENT),
    (sdk_errors.MessagingEntityDisabledError(), Failure.PERMANENT),
    (sdk_errors.MessageSizeExceededError(), Failure.MISTAKE),
    (sdk_errors.MessageNotFoundError(), Failure.MISTAKE),
    (refused("amqp:not-allowed"), Failure.MISTAKE),
    (refused("amqp:decode-error"), Failure.MISTAKE),
    (refused("com.microsoft:argument-error"), Failure.MISTAKE),
    (refused("amqp:internal-error"), Failure.TRANSIENT),
    (refused("amqp:client-error"), Failure.TRANSIENT),
    (sdk_errors.ServiceBusError("internal", retryable=True), Failure.TRANSIENT),
    (sdk_errors.ServiceBusError("something else"), Failure.PERMANENT),
    (sdk_errors.ServiceBusError("no route", error=OSError("no route to host")), Failure.TRANSIENT),
    (sdk_errors.ServiceBusError("handler failed", error=TypeError("your fault")), Failure.MISTAKE),
    (ConnectionRefusedError(), Failure.TRANSIENT),
    (TimeoutError(), Failure.TIMEOUT),
    (ValueError("a bad argument"), Failure.MISTAKE),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda value: type(value).__name__)
def test_the_sdks_errors(error: Exception, expected: Failure) -> None:
    assert sdk.failure_of(error) is expected


@pytest.mark.parametrize(
    ("condition", "expected", "as_sdk"),
    [
        ("com.microsoft:server-busy", Failure.BUSY, sdk_errors.ServiceBusServerBusyError),
        ("twinbus:unreachable", Failure.TRANSIENT, sdk_errors.ServiceBusConnectionError),
        ("twinbus:timed-out", Failure.TIMEOUT, sdk_errors.OperationTimeoutError),
        ("amqp:unauthorized-access", Failure.UNAUTHORIZED, sdk_errors.ServiceBusAuthorizationError),
        ("amqp:resource-limit-exceeded", Failure.FULL, sdk_errors.ServiceBusQuotaExceededError),
        ("amqp:not-found", Failure.PERMANENT, sdk_errors.MessagingEntityNotFoundError),
        ("com.microsoft:entity-disabled", Failure.PERMANENT, sdk_errors.MessagingEntityDisabledError),
        ("amqp:link:message-size-exceeded", Failure.MISTAKE, sdk_errors.MessageSizeExceededError),
        ("amqp:not-allowed", Failure.MISTAKE, sdk_errors.ServiceBusError),
        ("amqp:decode-error", Failure.MISTAKE, sdk_errors.ServiceBusError),
    ],
)
def test_our_own_clients_errors(condition: str, expected: Failure, as_sdk: type[Exception]) -> None:
    error = ClientError(condition, "text")

    assert kind_of(error) is expected
    assert type(sdk.as_sdk_error(error)) is as_sdk


def test_what_a_condition_means_is_one_row_for_both_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    condition = "com.microsoft:entity-disabled"
    monkeypatch.setitem(failures._BY_CONDITION, condition, Failure.TRANSIENT)

    assert kind_of(ClientError(condition, "text")) is Failure.TRANSIENT
    assert sdk.failure_of(sdk_errors.MessagingEntityDisabledError(condition=condition)) is Failure.TRANSIENT


@pytest.mark.parametrize(
    ("preset", "counting"),
    [
        ("default", {Failure.TIMEOUT, Failure.TRANSIENT}),
        ("documents", {Failure.TIMEOUT, Failure.PERMANENT, Failure.FULL}),
        ("client-2013", {Failure.TIMEOUT, Failure.TRANSIENT, Failure.BUSY}),
    ],
)
def test_presets(preset: str, counting: set[Failure]) -> None:
    assert PRESETS[preset].counting == counting
    assert not PRESETS[preset].counting & {Failure.UNAUTHORIZED, Failure.MISTAKE}


def test_the_documents_minute_belongs_to_their_preset_and_what_is_given_goes_before_it() -> None:
    options = SendAvailabilityOptions(preset="documents")
    assert (options.failover_interval, options.ping_primary_interval) == (60.0, 60.0)
    assert SendAvailabilityOptions(preset="documents", failover_interval=5).failover_interval == 5
    default = SendAvailabilityOptions()
    assert default.failover_interval == 0
    assert default.seconds("primary_timeout") < 4  # What is left of five seconds is for opening the way to a backlog.
    assert SendAvailabilityOptions(attempt_timeout=2, attempts=3).primary_timeout == 6


@pytest.mark.parametrize(
    "wrong",
    [
        {"backlog_queue_count": 0},
        {"failover_interval": -1},
        {"failover_interval": 3601},
        {"ping_primary_interval": 0.5},
        {"ping_primary_interval": 1801},
        {"preset": "whatever"},
        {"attempts": 0},
        {"poll": "soon"},
    ],
)
def test_options_out_of_bounds_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SendAvailabilityOptions(**wrong)  # type: ignore[arg-type]
