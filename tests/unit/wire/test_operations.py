"""Bodies of management requests and of their responses, one table for each direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp import codec
from twinbus.amqp.types import Array, Int, Long, Symbol, Timestamp, UInt
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.wire import operations
from twinbus.wire.management import read_request, response
from twinbus.wire.operations import Operation, read_operation
from twinbus.wire.outcomes import Decision

A, B = UUID("00112233-4455-6677-8899-aabbccddeeff"), UUID(int=2)
TOKENS = Array([A, B], 0x98)


def operation(name: str, body: dict[Any, Any]) -> Operation:
    payload = (
        b"\x00\x53\x74" + codec.encode({"operation": f"com.microsoft:{name}"}) + b"\x00\x53\x77" + codec.encode(body)
    )
    return read_operation(read_request(payload))


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("renew-lock", {"lock-tokens": TOKENS}, operations.RenewLocks([A.bytes_le, B.bytes_le])),
        ("renew-lock", {"lock-tokens": [A]}, operations.RenewLocks([A.bytes_le])),
        ("renew-lock", {Symbol("lock-tokens"): [A]}, operations.RenewLocks([A.bytes_le])),
        (
            "peek-message",
            {"from-sequence-number": Long(5), "message-count": Int(10)},
            operations.PeekMessages(5, 10, None),
        ),
        (
            "peek-message",
            {"from-sequence-number": 0, "message-count": Int(1), "session-id": "s", "omit-message-body": True},
            operations.PeekMessages(0, 1, "s"),
        ),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": Array([1, 2], 0x81), "receiver-settle-mode": UInt(1)},
            operations.ReceiveDeferred([1, 2], ReceiveMode.PEEK_LOCK, None),
        ),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": [Long(2**60)], "receiver-settle-mode": UInt(0), "session-id": "s"},
            operations.ReceiveDeferred([2**60], ReceiveMode.RECEIVE_AND_DELETE, "s"),
        ),
        (
            "update-disposition",
            {"disposition-status": "completed", "lock-tokens": TOKENS},
            operations.UpdateDisposition([A.bytes_le, B.bytes_le], Decision(Outcome.COMPLETE), None),
        ),
        (
            "update-disposition",
            {"disposition-status": "abandoned", "lock-tokens": [A], "properties-to-modify": {"a": 1}},
            operations.UpdateDisposition([A.bytes_le], Decision(Outcome.ABANDON, changes={"a": 1}), None),
        ),
        (
            "update-disposition",
            {"disposition-status": "defered", "lock-tokens": [A], "session-id": "s"},
            operations.UpdateDisposition([A.bytes_le], Decision(Outcome.DEFER), "s"),
        ),
        (
            "update-disposition",
            {
                "disposition-status": "suspended",
                "lock-tokens": [A],
                "deadletter-reason": "r",
                "deadletter-description": "d",
            },
            operations.UpdateDisposition([A.bytes_le], Decision(Outcome.DEAD_LETTER, "r", "d"), None),
        ),
        (
            "schedule-message",
            {"messages": [{"message-id": "m", "message": b"one"}, {"message": b"two", "session-id": "s"}]},
            operations.ScheduleMessages([b"one", b"two"]),
        ),
        ("cancel-scheduled-message", {"sequence-numbers": Array([7], 0x81)}, operations.CancelScheduled([7])),
        ("renew-session-lock", {"session-id": "s"}, operations.RenewSessionLock("s")),
        ("get-session-state", {"session-id": ""}, operations.GetSessionState("")),
        ("set-session-state", {"session-id": "s", "session-state": b"x"}, operations.SetSessionState("s", b"x")),
        ("set-session-state", {"session-id": "s", "session-state": None}, operations.SetSessionState("s", None)),
        (
            "get-message-sessions",
            {"last-updated-time": Timestamp(253402300800000), "skip": Int(0), "top": Int(100)},
            operations.ListSessions(None, 0, 100),
        ),
        (
            "get-message-sessions",
            {"last-updated-time": Timestamp(1_700_000_000_000), "skip": Int(100), "top": Int(100)},
            operations.ListSessions(1_700_000_000_000, 100, 100),
        ),
        (
            "batch-delete-messages",
            {"message-count": Int(500), "enqueued-time-utc": Timestamp(9)},
            operations.DeleteMessages(500, 9),
        ),
    ],
)
def test_a_request_is_read(name: str, body: dict[Any, Any], expected: Operation) -> None:
    found = operation(name, body)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("renew-lock", {}),
        ("renew-lock", {"lock-tokens": []}),
        ("renew-lock", {"lock-tokens": ["text"]}),
        ("renew-lock", {"lock-tokens": A}),
        ("renew-lock", {"lock-tokens": [A] * 5001}),
        ("peek-message", {"from-sequence-number": 1}),
        ("peek-message", {"from-sequence-number": "1", "message-count": 1}),
        ("peek-message", {"from-sequence-number": -1, "message-count": 1}),
        ("peek-message", {"from-sequence-number": 1, "message-count": 0}),
        ("peek-message", {"from-sequence-number": True, "message-count": 1}),
        ("peek-message", {"from-sequence-number": 1, "message-count": 1, "session-id": 5}),
        ("receive-by-sequence-number", {"sequence-numbers": [1], "receiver-settle-mode": UInt(2)}),
        ("receive-by-sequence-number", {"sequence-numbers": [1.5], "receiver-settle-mode": UInt(1)}),
        ("receive-by-sequence-number", {"sequence-numbers": [1]}),
        ("update-disposition", {"lock-tokens": [A]}),
        ("update-disposition", {"disposition-status": "lost", "lock-tokens": [A]}),
        ("update-disposition", {"disposition-status": ["completed"], "lock-tokens": [A]}),
        ("update-disposition", {"disposition-status": "completed"}),
        ("update-disposition", {"disposition-status": "abandoned", "lock-tokens": [A], "properties-to-modify": 1}),
        (
            "update-disposition",
            {"disposition-status": "suspended", "lock-tokens": [A], "deadletter-reason": "x" * 4097},
        ),
        ("schedule-message", {"messages": [b"bytes"]}),
        ("schedule-message", {"messages": [{"message": "text"}]}),
        ("schedule-message", {"messages": []}),
        ("cancel-scheduled-message", {"sequence-numbers": "1"}),
        ("renew-session-lock", {}),
        ("renew-session-lock", {"session-id": "s" * 129}),
        ("get-session-state", {"session-id": None}),
        ("set-session-state", {"session-id": "s", "session-state": "text"}),
        ("get-message-sessions", {"skip": 0, "top": 1}),
        ("get-message-sessions", {"last-updated-time": Timestamp(1), "skip": -1, "top": 1}),
        ("batch-delete-messages", {"message-count": 1}),
    ],
)
def test_what_is_missing_or_mistyped_is_an_argument_error(name: str, body: dict[Any, Any]) -> None:
    with pytest.raises(BusError) as caught:
        operation(name, body)
    assert caught.value.fault is Fault.ARGUMENT


def test_an_operation_that_is_not_offered() -> None:
    with pytest.raises(BusError) as caught:
        operation("rename-rule", {})
    assert caught.value.fault is Fault.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    ("body", "decoded"),
    [
        (operations.expirations([5, 6]), {b"expirations": [5, 6]}),
        (operations.expiration(5), {b"expiration": 5}),
        (operations.peeked([b"one"]), {b"messages": [{b"message": b"one"}]}),
        (operations.peeked([]), {b"messages": []}),
        (
            operations.received([(b"one", A.bytes_le)]),
            {b"messages": [{b"message": b"one", b"lock-token": A}]},
        ),
        (
            operations.received([(b"one", b"")]),
            {b"messages": [{b"message": b"one", b"lock-token": UUID(int=0)}]},
        ),
        (operations.sequence_numbers([1, 2**40]), {b"sequence-numbers": [1, 2**40]}),
        (operations.session_state(b"x"), {b"session-state": b"x"}),
        (operations.session_state(None), {b"session-state": None}),
        (operations.session_ids(2, ["a", "b"]), {b"skip": 2, b"sessions-ids": [b"a", b"b"]}),
        (operations.session_ids(0, []), {b"skip": 0, b"sessions-ids": []}),
        (operations.deleted(3), {b"message-count": 3}),
    ],
)
def test_the_official_client_reads_a_success_body(
    azure_decode: Callable[[bytes], Any], body: dict[str, Any], decoded: dict[bytes, Any]
) -> None:
    assert azure_decode(response("1", 200, "OK", body)).value == decoded
