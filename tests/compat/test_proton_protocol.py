"""The AMQP door towards peers that are strange, silent or hostile, with proton and with bytes on a socket.

Whatever one connection does, the others and the queue go on.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from proton import ConnectionException, Endpoint, Link, Message, Terminus
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached

from support.broker import BrokerProcess, NewQueue
from support.frames import (
    AMQP_HEADER,
    BEGIN,
    NULL,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    TIMEOUT_S,
    RawConnection,
    frame,
    performative,
    string,
)
from support.peer import Modes, Receiver, connected, pump

FRAMING_ERROR = b"amqp:connection:framing-error"
DECODE_ERROR = b"amqp:decode-error"
INVALID_FIELD = b"amqp:invalid-field"
NOT_ALLOWED = b"amqp:not-allowed"
CLOSE = b"\x00\x53\x18"

MALFORMED = {
    "a frame smaller than its header": (struct.pack(">IBBH", 7, 2, 0, 0), FRAMING_ERROR),
    "a frame larger than was agreed": (struct.pack(">IBBH", 2**31, 2, 0, 0), FRAMING_ERROR),
    "a data offset inside the header": (struct.pack(">IBBH", 16, 1, 0, 0) + bytes(8), FRAMING_ERROR),
    "a data offset behind the frame": (struct.pack(">IBBH", 16, 9, 0, 0) + bytes(8), FRAMING_ERROR),
    "a frame of a type that is not known": (frame(performative(0x18), kind=7), FRAMING_ERROR),
    "a performative that is not known": (frame(performative(0x6F)), DECODE_ERROR),
    "a list longer than its frame": (frame(b"\x00\x53\x11\xc0\xff\x04\x40\x43"), DECODE_ERROR),
    "a list that claims 4 GiB": (frame(b"\x00\x53\x11\xd0\xff\xff\xff\xff\xff\xff\xff\xff"), DECODE_ERROR),
    "a constructor that is not known": (frame(b"\x00\x53\x11\xc0\x02\x01\x0b"), DECODE_ERROR),
    "a field of the wrong type": (frame(performative(0x11, NULL, string("x"), b"\x43", b"\x43")), INVALID_FIELD),
    "a string that is not UTF-8": (
        BEGIN + frame(performative(0x12, b"\xa1\x02\xff\xfe", b"\x43", b"\x41")),
        DECODE_ERROR,
    ),
    "lists nested a thousand deep": (frame(b"\x00\x53\x10" + b"\xc0\x7f\x01" * 1000), DECODE_ERROR),
    "a session that never began": (frame(performative(0x12, string("l"), b"\x43", b"\x41"), 5), NOT_ALLOWED),
    "random bytes": (b"\x9d\x1f\x00\xe4\x55\x17\x80\xc3" * 64, FRAMING_ERROR),
}


class Coordinator(LinkOption):
    """Makes a sender's target the coordinator of transactions."""

    def apply(self, link: Link) -> None:
        link.target.type = Terminus.COORDINATOR


class Named(LinkOption):
    """Keeps a link in sight that the blocking client gives up."""

    def __init__(self) -> None:
        self.link: Any = None

    def apply(self, link: Link) -> None:
        self.link = link


def works(connection: BlockingConnection, queue: str) -> bool:
    sender = connection.create_sender(queue)
    sender.send(Message(body="still here"))
    sender.close()
    receiver = Receiver(connection, queue, credit=1, options=Modes(snd=Link.SND_SETTLED))
    message, _ = receiver.take()
    receiver.link.close()
    return bool(message.body == "still here")


@pytest.mark.feature("amqp-malformed-input")
def test_malformed_frames_close_their_own_connection_with_the_right_condition(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    answers = {}
    with connected(broker) as bystander:
        assert works(bystander, queue)
        for name, (data, _) in MALFORMED.items():
            with RawConnection(broker) as raw:
                raw.open()
                raw.write(data)
                answer = raw.read_to_end()
            close = answer.rpartition(CLOSE)[2] if CLOSE in answer else b"(no close)"
            conditions = (FRAMING_ERROR, DECODE_ERROR, INVALID_FIELD, NOT_ALLOWED)
            answers[name] = next((found for found in conditions if found in close), close)
        assert works(bystander, queue)
    assert answers == {name: condition for name, (_, condition) in MALFORMED.items()}


@pytest.mark.feature("amqp-malformed-input")
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        SASL_HEADER + frame(b"\x00\x53\x41\xc0\x02\x01\x0b", kind=1),
        SASL_HEADER + struct.pack(">IBBH", 2**30, 2, 1, 0),
    ],
    ids=["http", "amqp 0-9-1", "tls", "bad sasl", "huge sasl"],
)
def test_what_is_not_amqp_is_cut_off_before_it_begins(broker: BrokerProcess, new_queue: NewQueue, data: bytes) -> None:
    with RawConnection(broker) as raw:
        raw.write(data)
        answer = raw.read_to_end()
    assert answer == b"" or answer.startswith(b"AMQP")
    with connected(broker) as connection:
        assert works(connection, new_queue())


@pytest.mark.feature("amqp-malformed-input")
def test_a_peer_that_writes_byte_by_byte_is_understood(broker: BrokerProcess) -> None:
    with RawConnection(broker) as raw:
        for byte in SASL_HEADER + SASL_INIT + AMQP_HEADER + OPEN + frame(performative(0x18)):
            raw.write(bytes([byte]))
        answer = raw.read_to_end()
    assert CLOSE in answer
    assert b"amqp:" not in answer.rpartition(CLOSE)[2], "a polite close is answered politely"


@pytest.mark.feature("amqp-heartbeats")
def test_idle_connections_are_kept_alive_by_heartbeats(broker: BrokerProcess, new_queue: NewQueue) -> None:
    """Proton gives a connection up when it hears nothing for the time it asked for."""
    queue = new_queue()
    with connected(broker, heartbeat=8.0) as connection, RawConnection(broker) as raw:
        # container-id, hostname, max-frame-size, channel-max, idle-time-out: one second
        raw.open(frame(performative(0x10, string("raw"), NULL, NULL, NULL, b"\x70\x00\x00\x03\xe8")))
        raw.received = b""
        pump(connection, 10)
        assert works(connection, queue)
        raw.read_until(b"\x00\x00\x00\x08\x02\x00\x00\x00" * 2)


@pytest.mark.feature("amqp-transactions")
def test_a_coordinator_link_is_refused_as_not_implemented(broker: BrokerProcess, new_queue: NewQueue) -> None:
    with connected(broker) as connection:
        with pytest.raises(LinkDetached) as caught:
            connection.create_sender(None, name="coordinator", options=Coordinator())
        assert caught.value.condition == "amqp:not-implemented"
        assert works(connection, new_queue())


@pytest.mark.feature("amqp-links")
@pytest.mark.parametrize("kind", ["sender", "receiver"])
def test_an_unknown_entity_is_refused_by_attach_and_detach(
    broker: BrokerProcess, new_queue: NewQueue, kind: str
) -> None:
    with connected(broker) as connection:
        seen = Named()
        create = connection.create_sender if kind == "sender" else connection.create_receiver
        with pytest.raises(LinkDetached) as caught:
            create("no-such-queue", options=seen)
        assert caught.value.condition == "amqp:not-found"
        # Attached first, with a null terminus, and then detached.
        remote = seen.link.remote_target if kind == "sender" else seen.link.remote_source
        assert remote.type == Terminus.UNSPECIFIED
        assert works(connection, new_queue())


@pytest.mark.feature("amqp-links")
def test_a_dynamic_node_is_refused_and_the_connection_goes_on(broker: BrokerProcess, new_queue: NewQueue) -> None:
    with connected(broker) as connection:
        with pytest.raises(LinkDetached):
            connection.create_receiver(None, dynamic=True)
        assert works(connection, new_queue())


@pytest.mark.feature("amqp-links")
def test_addresses_are_matched_without_regard_to_case_and_with_or_without_a_host(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    addresses = [queue, queue.upper(), f"amqps://{broker.host}:{broker.amqp_port}/{queue}"]
    with connected(broker) as connection:
        for address in addresses:
            connection.create_sender(address).send(Message(body="m"))
    assert broker.count(queue) == len(addresses)


@pytest.mark.feature("amqp-links")
def test_a_stop_of_the_broker_ends_connections_and_no_link_by_itself(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    """Clients that reconnect, such as JMS, ProtonJ2 and rhea, do not make a link anew that the broker has ended."""
    queue = new_queue()
    with connected(broker) as connection:
        receiver = Receiver(connection, queue, credit=1)
        broker.stop()
        try:
            with pytest.raises((LinkDetached, ConnectionException)) as caught:
                connection.wait(lambda: False, timeout=TIMEOUT_S)
            assert "amqp:connection:forced" in str(caught.value)
            assert not receiver.link.state & Endpoint.REMOTE_CLOSED
        finally:
            broker.start()
