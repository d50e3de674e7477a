"""Messages from clients that we did not write, and their reading of what we write."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp import _decode, _encode
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from twinbus.model.message import Delivered, Incoming
from twinbus.wire.message import read

TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")
ENQUEUED_MS = 1_700_000_000_000
LOCKED_MS = 1_700_000_030_000


@pytest.fixture(scope="session")
def proton() -> Any:
    """Apache Qpid Proton, a client of any AMQP 1.0; where it was left out, its tests are skipped."""
    return importlib.import_module("proton")


@pytest.fixture(scope="session")
def azure_encode() -> Callable[[Any], bytes]:
    """The official client's encoding of a message, or of a batch."""

    def encode(message: ServiceBusMessage | ServiceBusMessageBatch) -> bytes:
        if isinstance(message, ServiceBusMessageBatch):
            outgoing = message._message
        else:
            outgoing = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)
        output = bytearray()
        _encode.encode_payload(output, outgoing)
        return bytes(output)

    return encode


@pytest.fixture(scope="session")
def azure_decode() -> Callable[[bytes], Any]:
    """The official client's decoding of a payload."""
    return lambda payload: _decode.decode_payload(memoryview(payload))


@pytest.fixture(scope="session")
def read_one() -> Callable[..., Incoming]:
    """One message read, with an id that is easy to recognise when it has none."""

    def one(payload: bytes, *, ttl_ceiling_ms: int | None = None) -> Incoming:
        (incoming,) = read(bytes(payload), 0, ttl_ceiling_ms=ttl_ceiling_ms, new_id=lambda: "f" * 32)
        return incoming

    return one


@pytest.fixture(scope="session")
def at_rest() -> Callable[..., Delivered]:
    """A message as the store hands it out."""

    def deliver(incoming: Incoming, **changes: Any) -> Delivered:
        return Delivered(
            sequence_number=1,
            record=incoming.record,
            message_id=incoming.message_id,
            delivery_count=0,
            enqueued_at_ms=ENQUEUED_MS,
            token=TOKEN.bytes_le,
            locked_until_ms=LOCKED_MS,
            session_id=incoming.session_id,
        )._replace(**changes)

    return deliver
