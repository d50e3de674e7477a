"""Requests to `$management` and `$cbs` as the clients write them, responses as they read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus._pyamqp import _encode
from azure.servicebus._pyamqp.message import Message, Properties
from azure.servicebus._pyamqp.types import AMQPTypes

from twinbus.amqp import codec
from twinbus.amqp.types import ULong
from twinbus.model.errors import BusError, Fault
from twinbus.wire.management import cbs_response, read_request, read_token_request, response

ID = UUID(int=7)


def azure(**sections: Any) -> bytes:
    output = bytearray()
    _encode.encode_payload(output, Message(**sections))
    return bytes(output)


def section(code: int, value: Any) -> bytes:
    return bytes((0x00, 0x53, code)) + codec.encode(value)


class TestManagementRequest:
    def test_of_the_python_client(self) -> None:
        request = read_request(
            azure(
                value={
                    _typed("STRING", "from-sequence-number"): _typed("LONG", 5),
                    _typed("STRING", "message-count"): _typed("INT", 2),
                },
                properties=Properties(message_id=ID, reply_to="q/$management"),
                application_properties={
                    "operation": "com.microsoft:peek-message",
                    "type": "entity-mgmt",
                    "com.microsoft:server-timeout": _typed("UINT", 60_000),
                    "associated-link-name": "link-1",
                },
            )
        )
        assert request.operation == "com.microsoft:peek-message"
        assert request.message_id == ID
        assert request.reply_to == "q/$management"
        assert request.associated_link_name == "link-1"
        assert request.server_timeout_ms == 60_000
        assert request.tracking_id is None
        assert request.body == {"from-sequence-number": 5, "message-count": 2}

    def test_of_a_client_with_string_ids_and_a_tracking_id(self, proton: Any) -> None:
        message = proton.Message(
            id="request-1",
            reply_to="uuid-of-the-link",
            body={"session-id": "s"},
            properties={"operation": "com.microsoft:get-session-state", "com.microsoft:tracking-id": "t-1"},
        )
        request = read_request(bytes(message.encode()))
        assert (request.message_id, request.reply_to, request.tracking_id) == (
            "request-1",
            "uuid-of-the-link",
            "t-1",
        )
        assert request.server_timeout_ms is None
        assert request.body == {"session-id": "s"}

    def test_without_a_body(self) -> None:
        request = read_request(section(0x74, {"operation": "o"}))
        assert (request.body, request.message_id, request.reply_to) == ({}, None, None)

    @pytest.mark.parametrize(
        ("payload", "fault"),
        [
            (b"", Fault.ARGUMENT),
            (section(0x74, {"operation": 5}), Fault.ARGUMENT),
            (section(0x74, {"operation": "o"}) + section(0x77, "text"), Fault.ARGUMENT),
            (section(0x73, [True]) + section(0x74, {"operation": "o"}), Fault.DECODE),
            (section(0x73, [[]]) + section(0x74, {"operation": "o"}), Fault.DECODE),
            (b"\x00\x53\x74\xc1\x50", Fault.DECODE),
            (b"garbage", Fault.DECODE),
            (section(0x74, {"operation": "o"}) * 2, Fault.DECODE),
        ],
    )
    def test_malformed(self, payload: bytes, fault: Fault) -> None:
        with pytest.raises(BusError) as caught:
            read_request(payload)
        assert caught.value.fault is fault


class TestTokenRequest:
    def test_of_the_python_client(self) -> None:
        request = read_token_request(
            azure(
                value="SharedAccessSignature sr=x",
                properties=Properties(message_id=ID),
                application_properties={
                    "name": "sb://host/q",
                    "operation": "put-token",
                    "type": "jwt",
                    "expiration": datetime(2030, 1, 1),
                },
            )
        )
        assert request == (ID, None, "sb://host/q", "SharedAccessSignature sr=x")
        assert "SharedAccessSignature" not in repr(request)

    def test_of_the_javascript_client(self, proton: Any) -> None:
        message = proton.Message(
            id="1",
            address="$cbs",
            reply_to="cbs-link",
            body="SharedAccessSignature sr=y",
            properties={
                "operation": "put-token",
                "name": "sb://host/q/$management",
                "type": "servicebus.windows.net:sastoken",
            },
        )
        request = read_token_request(bytes(message.encode()))
        assert request == ("1", "cbs-link", "sb://host/q/$management", "SharedAccessSignature sr=y")

    @pytest.mark.parametrize(
        ("payload", "fault"),
        [
            (section(0x74, {"operation": "put-token", "name": "n"}), Fault.ARGUMENT),
            (section(0x74, {"operation": "put-token", "name": "n"}) + section(0x77, b"t"), Fault.ARGUMENT),
            (section(0x74, {"operation": "put-token"}) + section(0x77, "t"), Fault.ARGUMENT),
            (section(0x74, {"operation": "delete-token", "name": "n"}), Fault.NOT_IMPLEMENTED),
            (b"\x00", Fault.DECODE),
        ],
    )
    def test_malformed(self, payload: bytes, fault: Fault) -> None:
        with pytest.raises(BusError) as caught:
            read_token_request(payload)
        assert caught.value.fault is fault


class TestResponse:
    @pytest.mark.parametrize("message_id", ["text", ID, ULong(5), b"\x00\x01"])
    def test_answers_an_id_with_the_same_type(self, message_id: Any) -> None:
        for payload in (response(message_id, 200, "OK"), cbs_response(message_id, 200, "OK")):
            properties, _ = codec.decode(payload, 3)
            assert properties == [None] * 5 + [message_id]
            assert type(properties[5]) is type(message_id)

    def test_of_a_success(self, azure_decode: Callable[[bytes], Any]) -> None:
        message = azure_decode(response(ID, 200, "OK", {"expiration": 5}))
        assert message.properties.correlation_id == ID
        assert message.application_properties == {b"statusCode": 200, b"statusDescription": b"OK"}
        assert message.value == {b"expiration": 5}

    def test_of_a_success_without_anything_to_say_has_a_body(self, azure_decode: Callable[[bytes], Any]) -> None:
        assert azure_decode(response(ID, 200, "OK")).value == {}

    def test_of_an_error(self, azure_decode: Callable[[bytes], Any]) -> None:
        message = azure_decode(response("1", 410, "lost", condition="com.microsoft:message-lock-lost", tracking_id="t"))
        assert message.application_properties == {
            b"statusCode": 410,
            b"statusDescription": b"lost",
            b"errorCondition": b"com.microsoft:message-lock-lost",
            b"com.microsoft:tracking-id": b"t",
        }

    def test_of_cbs_has_names_of_its_own(self, azure_decode: Callable[[bytes], Any]) -> None:
        message = azure_decode(cbs_response(ID, 202, "Accepted"))
        assert message.properties.correlation_id == ID
        assert message.application_properties == {b"status-code": 202, b"status-description": b"Accepted"}


def _typed(kind: str, value: Any) -> Any:
    """A value as the client's own encoder marks its type."""
    if kind == "STRING":
        return value
    return {"TYPE": getattr(AMQPTypes, kind.lower()), "VALUE": value}
